"""What happens to a Raft node (events) and what its shell must do (effects).

The shell's contract, on which safety rests:

1. Effects of one step are carried out in list order, steps in the order they were made.
2. A ``Send`` listed after a ``Persist`` leaves only when that persist is durable.
3. No ``Send`` at all leaves while a ``Persist`` with a hard state is not yet durable.
4. When a persist is durable the shell reports ``Persisted(seq)``; the disk works in order.
5. A failed write is reported as ``DiskBroken`` and nothing is written afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from rmqha.base.ids import NO_TERM, Term
from rmqha.base.machine import Note, Ticked
from rmqha.controller.raft.members import Member, Members
from rmqha.controller.raft.messages import Entry, Message


class Standing(NamedTuple):
    """Whether a node may vote, and by what it is known (``standing.py`` has the rules).

    Attributes:
        kind: ``new`` (an empty store that may belong to a new group), ``voter``, or
            ``recovering`` (it lost something, and a leader has not caught it up yet).
        store_id: drawn when the store was made; a store that was emptied gets another one.
            Empty for stores that are older than standings.
        founders: (node, store id) of every node, as agreed when the group was founded; empty
            before that.
    """

    kind: str = "voter"
    store_id: str = ""
    founders: tuple[tuple[str, str], ...] = ()


class HardState(NamedTuple):
    """What a node must never forget: its term, its vote in it, and whether it may vote at all."""

    term: Term = NO_TERM
    vote: str | None = None
    standing: Standing = Standing()


class SnapshotMeta(NamedTuple):
    """The newest durable snapshot: the last entry it holds, its size in bytes and its CRC-32."""

    last_index: int = 0
    term: Term = NO_TERM
    size: int = 0
    digest: int = 0


# -- events ------------------------------------------------------------------------------------


class Received(Struct, frozen=True):
    """A message from another node."""

    message: Message


class Proposed(Struct, frozen=True):
    """Append these records, if this node leads."""

    records: tuple[bytes, ...]


class Persisted(Struct, frozen=True):
    """The persist with this number, and so every one before it, is durable."""

    seq: int


class ReadRequested(Struct, frozen=True):
    """Tell me when a read of the applied state is linearizable."""

    token: int


class PeerLost(Struct, frozen=True):
    """The connection from a peer was closed or reset."""

    peer: str


class TransferRequested(Struct, frozen=True):
    """Hand leadership to the peer that is furthest, or to ``target``."""

    target: str | None = None


class SnapshotTaken(Struct, frozen=True):
    """A snapshot of the applied state is durable; the log before it may go."""

    meta: SnapshotMeta


class SnapshotInstalled(Struct, frozen=True):
    """The snapshot asked for by ``InstallSnapshot`` is durable and loaded.

    Attributes:
        group: that it names; None when it is the configuration's.
    """

    meta: SnapshotMeta
    group: Members | None = None


class MembersAsked(Struct, frozen=True):
    """A node shall join the group, or leave it; ``MembersAnswered`` says what became of it."""

    token: int
    member: Member
    joins: bool


class PeerMet(Struct, frozen=True):
    """A node that this one's log does not know says hello: it may know a newer group.

    Attributes:
        instead_of: another such node that is listened to no more; empty for none.
    """

    peer: str
    instead_of: str = ""


class SpaceChanged(Struct, frozen=True):
    """The disk is full, or has space again: a full one takes terms and votes, but no entries."""

    enough: bool


class DiskWaited(Struct, frozen=True):
    """Writes wait, and the disk has finished none for this long."""

    waited_ms: int


class DiskBroken(Struct, frozen=True):
    """A write failed: this node must not take part any more."""


Event = (
    Received
    | Ticked
    | Proposed
    | Persisted
    | ReadRequested
    | PeerLost
    | TransferRequested
    | SnapshotTaken
    | SnapshotInstalled
    | SpaceChanged
    | DiskWaited
    | DiskBroken
    | MembersAsked
    | PeerMet
)

# -- effects -----------------------------------------------------------------------------------


class Persist(NamedTuple):
    """Make the hard state (if given) and these entries durable; entries cut what they overlap."""

    seq: int
    hard_state: HardState | None
    entries: tuple[Entry, ...]


class Send(NamedTuple):
    """A message for a peer; it may be lost."""

    to: str
    message: Message


class SendSnapshot(NamedTuple):
    """Read ``length`` bytes at ``offset`` of the snapshot and send them as a SnapshotRequest."""

    to: str
    term: Term
    meta: SnapshotMeta
    offset: int
    length: int
    round: int


class Apply(NamedTuple):
    """These entries are committed: give them to the state machine, in order."""

    entries: tuple[Entry, ...]


class RoleChanged(NamedTuple):
    """``role`` is follower, pre_candidate, candidate, leader or stopped."""

    role: str
    term: Term
    leader_id: str | None


class LeaderReady(NamedTuple):
    """This leader has applied the first entry of its term: its state is the newest."""

    term: Term


class ReadReady(NamedTuple):
    """Reads of the applied state are linearizable for these tokens."""

    tokens: tuple[int, ...]


class Refused(NamedTuple):
    """Proposals or reads that this node cannot serve, because it does not lead."""

    records: tuple[bytes, ...]
    tokens: tuple[int, ...]


class StoreSnapshotChunk(NamedTuple):
    """Keep these bytes of an incoming snapshot; ``offset`` 0 starts anew."""

    offset: int
    data: bytes


class InstallSnapshot(NamedTuple):
    """All bytes are here: make the snapshot durable, load it, report SnapshotInstalled."""

    meta: SnapshotMeta


class CompactLog(NamedTuple):
    """Entries up to this index are never needed again."""

    up_to_index: int


class MembersAnswered(NamedTuple):
    """A change of the group is committed, or why it is not; ``reason`` is empty when it is."""

    token: int
    reason: str


class PeersChanged(NamedTuple):
    """Whom this node speaks to from here on; nobody once it has been removed."""

    peers: tuple[Member, ...]


LocalEffect = (
    Apply
    | RoleChanged
    | LeaderReady
    | ReadReady
    | Refused
    | StoreSnapshotChunk
    | InstallSnapshot
    | CompactLog
    | MembersAnswered
    | PeersChanged
    | Note
)
Effect = Persist | Send | SendSnapshot | LocalEffect
