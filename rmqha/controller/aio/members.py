"""What the shell around the core knows of the group: the file's members, and a snapshot's parts."""

from __future__ import annotations

from rmqha.controller.raft.members import Member, Members, from_snapshot, is_members
from rmqha.controller.raft.messages import Entry
from rmqha.controller.settings import Peer


class ConfiguredGroup:
    """The group as this node's file has it.

    The log decides who is in the group, once it has changed; an address in the file is newer.
    """

    def __init__(self, peers: tuple[Peer, ...]) -> None:
        found = sorted(peers, key=lambda peer: peer.id)
        self.members = Members(tuple(Member(one.id, one.host, one.port) for one in found))

    def addresses(self, members: tuple[Member, ...]) -> tuple[Peer, ...]:
        """Where these listen."""
        return tuple(
            Peer(one.id, one.host, one.port)
            for one in (self.members.find(member.id) or member for member in members)
        )


class SnapshotParts:
    """Takes snapshots apart; a large one not again and again."""

    def __init__(self) -> None:
        self._newest: tuple[bytes, Members | None, bytes] = (b"", None, b"")

    def of(self, data: bytes) -> tuple[Members | None, bytes]:
        """The group that a snapshot names, if any, and the state.

        Raises:
            StoreCorrupted: see ``members.from_snapshot``.
        """
        if self._newest[0] is not data:
            self._newest = (data, *from_snapshot(data))
        return self._newest[1:]


def for_machine(entry: Entry) -> Entry:
    """Who is in the group is no business of the state machine: it sees an empty entry."""
    return Entry(entry.log_index, entry.term, b"") if is_members(entry.data) else entry
