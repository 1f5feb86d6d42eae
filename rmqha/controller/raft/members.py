"""Who is in the group: what the log says of it, and what may become of it. No node, no messages.

A group begins as its nodes' configuration files say. Each change is an entry of the log that names
the whole group as it is from there on, ``[4, [[id, host, port, votes], ...]]``, and counts as soon
as a node holds it, committed or not (dissertation 4.1). One node joins or leaves at a time, so any
majority before a change and any majority after it share a node, and no two leaders can be elected
by two groups that do not know of each other.

A node joins without a vote (``votes`` false): it is fed, and counts for nothing. When it has caught
up the leader gives it its vote by a second change (dissertation 4.2.1).

Source: Ongaro, "Consensus: Bridging Theory and Practice" (2014), chapter 4.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from rmqha.base.errors import StoreCorrupted

MEMBERS_MAX = 9
"""More nodes than these make a group slower and no safer."""

MARK = b"\x92\x04"
"""How the data of such an entry begins: a list of two, the first of them 4."""

SNAPSHOT_MARK = b"RQM1"
"""Before a snapshot's state, when the group is another one than the configuration's."""


class Member(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A node: where it listens, and whether it counts.

    Attributes:
        votes: false while it joins.
    """

    id: str
    host: str
    port: int
    votes: bool = True


class Members(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    """A whole group, ascending by id."""

    members: tuple[Member, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """All nodes, those that join too."""
        return tuple(one.id for one in self.members)

    @property
    def voters(self) -> tuple[str, ...]:
        """The nodes that majorities are made of."""
        return tuple(one.id for one in self.members if one.votes)

    def find(self, node: str) -> Member | None:
        """A node of the group; None when it is not in it."""
        return next((one for one in self.members if one.id == node), None)

    def joined_by(self, member: Member) -> Members:
        """The group with one more, or with another form of one."""
        others = (one for one in self.members if one.id != member.id)
        return Members(tuple(sorted((*others, member), key=lambda one: one.id)))

    def without(self, node: str) -> Members:
        """The group with one less."""
        return Members(tuple(one for one in self.members if one.id != node))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Members).decode


def encode_members(members: Members) -> bytes:
    """The data of the entry that names this group."""
    return _encode(members)


def is_members(data: bytes) -> bool:
    """Whether an entry's data names a group."""
    return data[:2] == MARK


def decode_members(data: bytes) -> Members:
    """The group that an entry names.

    Raises:
        StoreCorrupted: it cannot be read, has no voter, a node twice, or too many.
    """
    try:
        found: Members = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreCorrupted(f"not a group of controllers: {error}") from error
    ids = found.ids
    if not found.voters or list(ids) != sorted(set(ids)) or len(ids) > MEMBERS_MAX:
        raise StoreCorrupted(f"not a group of controllers: {', '.join(ids) or 'nobody'}")
    return found


def to_snapshot(members: Members | None, state: bytes) -> bytes:
    """A snapshot of the state and, where the log has named one, the group."""
    if members is None:
        return state
    named = encode_members(members)
    return b"".join((SNAPSHOT_MARK, len(named).to_bytes(4, "big"), named, state))


def from_snapshot(data: bytes) -> tuple[Members | None, bytes]:
    """What :func:`to_snapshot` joined.

    Raises:
        StoreCorrupted: a group is announced and none is there.
    """
    if not data.startswith(SNAPSHOT_MARK):
        return None, data
    start = len(SNAPSHOT_MARK) + 4
    end = start + int.from_bytes(data[len(SNAPSHOT_MARK) : start], "big")
    return decode_members(data[start:end]), data[end:]
