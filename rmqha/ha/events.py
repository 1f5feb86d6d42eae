"""What happens to a replica (events) and what its shell must do (effects).

The shell's contract, on which safety rests:

1. Effects of one step are carried out in list order, steps in the order they were made.
2. Effects that wait (``CutInvalidTail``, ``TruncateLog``, ``WriteEpochs``, ``WaitDispatched``,
   ``Flush``) never overlap: one begins when the one before has ended, in order. Each but
   ``Flush`` carries a ``seq`` and ends in the event that repeats it. Everything else is carried
   out at once, without waiting for those.
3. Body bytes arrive in order and are counted in the log (``received``) before
   ``BodyReceived`` is given; of a body that a lost connection cut short, what has arrived is
   counted and given too, before ``MasterClosed``. It says where the log is damaged, if it is.
4. A disk that fails stops the process; nothing is sent afterwards.

Offsets are physical, in bytes. ``conn`` numbers a connection and is never reused.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from rmqha.base.ids import MasterEpoch, SyncStateSetEpoch
from rmqha.base.machine import Note, Ticked
from rmqha.ha.epochs import EpochEntry
from rmqha.ha.frames import MasterFrame, SlaveFrame


class Role(Enum):
    """What a replica is; it starts as a slave without a master."""

    SLAVE = "slave"
    MASTER = "master"


class PutStatus(Enum):
    """How a put ends, with Java's names; the codes are those that clients see."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    SERVICE_NOT_AVAILABLE = 14
    OS_PAGE_CACHE_BUSY = 1
    IN_SYNC_REPLICAS_NOT_ENOUGH = -1
    WRITE_LEASE_EXPIRED = -2

    @property
    def response_code(self) -> int:
        """The remoting code: IN_SYNC_REPLICAS_NOT_ENOUGH shares SYSTEM_ERROR (1).

        WRITE_LEASE_EXPIRED, which Java does not have, shares SERVICE_NOT_AVAILABLE (14): Java
        producers then try another broker.
        """
        return _SHARED_CODES.get(self, self.value)

    @property
    def remark(self) -> str | None:
        """The text beside the code, where Java has a fixed one."""
        return _REMARKS.get(self)


_SHARED_CODES = {PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: 1, PutStatus.WRITE_LEASE_EXPIRED: 14}
_REMARKS = {
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: "in-sync replicas not enough",
    PutStatus.WRITE_LEASE_EXPIRED: (
        "the write lease has expired: this master reaches neither the controllers nor every "
        "replica that may be elected in its place"
    ),
}

# -- events: commands ----------------------------------------------------------------------------


class ChangedToMaster(Struct, frozen=True):
    """The controller elected this replica; ends in ``RoleChanged`` or ``RoleRefused``."""

    epoch: MasterEpoch
    sync_state_set: frozenset[int]
    sync_state_set_epoch: SyncStateSetEpoch


class ChangedToSlave(Struct, frozen=True):
    """The controller elected another replica, or none yet (``master_id`` None)."""

    epoch: MasterEpoch
    master_id: int | None
    master_address: str | None = None


class MasterFound(Struct, frozen=True):
    """The master's HA address ``host:port`` is known now, or has changed."""

    address: str


class SyncStateSetConfirmed(Struct, frozen=True):
    """The controller's set and its epoch: the answer to an alteration, or a poll."""

    ids: frozenset[int]
    epoch: SyncStateSetEpoch


class AlterRefused(Struct, frozen=True):
    """The controller answered that it did not apply the newest alteration.

    That an older one was refused is ``AlterLost``: the newest may be applied all the same.

    Attributes:
        for_a_member: because it does not know, or does not hear, one of those in it.
    """

    for_a_member: bool = False


class AlterLost(Struct, frozen=True):
    """No answer: the controller may hold either set."""


class SetHeard(Struct, frozen=True):
    """A slave asked the controllers, and this is the SyncStateSet of the reign that it follows."""

    ids: frozenset[int]


class LeaseGranted(Struct, frozen=True):
    """The controllers elect nobody else before ``until_ms``, by this replica's clock.

    From the first of these events on, a put without the lease is complete only when every
    replica holds it that may be elected. A core that never gets one has no lease to lose.
    """

    until_ms: int


class PutWaited(Struct, frozen=True):
    """A record that ends at ``end_offset`` is in the log; say when enough slaves have it.

    ``reign`` is ``HaCore.reign_number`` when it was written: whoever waited for the disk first may
    come when this replica has followed another master meanwhile, and the place is another record's.
    """

    token: int
    end_offset: int
    reign: int


# -- events: the log -----------------------------------------------------------------------------


class Appended(Struct, frozen=True):
    """A master's log has grown."""

    max_offset: int


class Flushed(Struct, frozen=True):
    """Everything before ``offset`` is durable."""

    offset: int


class Trimmed(Struct, frozen=True):
    """The oldest files are gone."""

    min_offset: int


class TailCut(Struct, frozen=True):
    """The log ends at a whole record."""

    seq: int
    max_offset: int


class LogTruncated(Struct, frozen=True):
    """The cut is durable."""

    seq: int
    max_offset: int


class EpochsWritten(Struct, frozen=True):
    """The epoch file is durable."""

    seq: int


class DispatchReached(Struct, frozen=True):
    """The consume queues hold everything that was asked for."""

    seq: int


# -- events: slaves of this master -----------------------------------------------------------------


class SlaveConnected(Struct, frozen=True):
    """Somebody opened a connection to the HA port."""

    conn: int
    address: str


class SlaveSent(Struct, frozen=True):
    """A slave's frame."""

    conn: int
    frame: SlaveFrame


class SlaveWritable(Struct, frozen=True):
    """The transport can take another frame after the last ``SendBatch``."""

    conn: int


class SlaveClosed(Struct, frozen=True):
    """The connection is gone."""

    conn: int
    reason: str


# -- events: the master of this slave ---------------------------------------------------------------


class MasterConnected(Struct, frozen=True):
    """``Connect`` reached the master."""

    conn: int


class MasterSent(Struct, frozen=True):
    """A master's handshake reply, or a transfer header whose body is still to come."""

    conn: int
    frame: MasterFrame


class MasterHeard(Struct, frozen=True):
    """Bytes of a body arrive: on a slow link long before it is whole."""

    conn: int


class BodyReceived(Struct, frozen=True):
    """Body bytes ``[offset, offset + length)`` are in the log, which may be damaged by them.

    Attributes:
        damaged_at: see ``ReplicatedLog.damaged_at``.
    """

    conn: int
    offset: int
    length: int
    damaged_at: int | None = None


class MasterClosed(Struct, frozen=True):
    """The connection is gone, or could not be made."""

    conn: int
    reason: str


Event = (
    Ticked
    | ChangedToMaster
    | ChangedToSlave
    | MasterFound
    | SyncStateSetConfirmed
    | AlterRefused
    | AlterLost
    | SetHeard
    | LeaseGranted
    | PutWaited
    | Appended
    | Flushed
    | Trimmed
    | TailCut
    | LogTruncated
    | EpochsWritten
    | DispatchReached
    | SlaveConnected
    | SlaveSent
    | SlaveWritable
    | SlaveClosed
    | MasterConnected
    | MasterSent
    | MasterHeard
    | BodyReceived
    | MasterClosed
)

# -- effects: disk -----------------------------------------------------------------------------------


class CutInvalidTail(NamedTuple):
    """Cut what follows the last whole record; ends in ``TailCut``.

    Where the log is damaged, nothing that was durable or acknowledged is cut: replication ends instead.

    Attributes:
        acknowledged: see ``LogFacts.acknowledged``.
    """

    seq: int
    acknowledged: int | None = None


class TruncateLog(NamedTuple):
    """Cut log and queues, durably; ends in ``LogTruncated``."""

    seq: int
    offset: int


class WriteEpochs(NamedTuple):
    """Replace the epoch file, durably; ends in ``EpochsWritten``."""

    seq: int
    entries: tuple[EpochEntry, ...]


class WaitDispatched(NamedTuple):
    """Wait until the consume queues hold everything before, then recompute each queue's next offset
    from the log; ends in ``DispatchReached``. Nothing is appended meanwhile; what confirmOffset allows
    is dispatched."""

    seq: int
    offset: int


class Flush(NamedTuple):
    """Make the log before ``offset`` durable; ends in ``Flushed``."""

    offset: int


DiskEffect = CutInvalidTail | TruncateLog | WriteEpochs | WaitDispatched | Flush


class SetConfirmOffset(NamedTuple):
    """What consumers may see ends here."""

    offset: int


# -- effects: slaves of this master --------------------------------------------------------------------


class SendToSlave(NamedTuple):
    """A whole frame, in one write."""

    conn: int
    data: bytes


class SendBatch(NamedTuple):
    """A transfer header and ``length`` bytes of the log from ``offset``, in one gathered write.

    The next one comes after ``SlaveWritable``.
    """

    conn: int
    header: bytes
    offset: int
    length: int


TOO_MANY = "too many connections"
"""Why the port of replication closes a connection for another one, or a new one at once."""


class CloseSlave(NamedTuple):
    """Abort the connection; what it still buffers is dropped. ``SlaveClosed`` may follow."""

    conn: int
    reason: str


# -- effects: the master of this slave ------------------------------------------------------------------


class Connect(NamedTuple):
    """Open a connection; ends in ``MasterConnected`` or ``MasterClosed``."""

    conn: int
    address: str
    timeout_ms: int


class SendToMaster(NamedTuple):
    """A whole frame, in one write."""

    conn: int
    data: bytes


class SendAck(NamedTuple):
    """Acknowledge everything before ``offset``; later ones of a loop turn replace earlier."""

    conn: int
    offset: int


class CloseMaster(NamedTuple):
    """Abort the connection; the rest of a body is not wanted. ``MasterClosed`` may follow."""

    conn: int
    reason: str


# -- effects: the rest of the broker ----------------------------------------------------------------------


class AlterSyncStateSet(NamedTuple):
    """Ask the controller for this set, given that it still holds the one of ``epoch``."""

    ids: frozenset[int]
    epoch: SyncStateSetEpoch


class PutCompleted(NamedTuple):
    """The answer to ``PutWaited``."""

    token: int
    status: PutStatus


class RoleChanged(NamedTuple):
    """The change that was asked for is complete."""

    role: Role
    epoch: MasterEpoch


class RoleRefused(NamedTuple):
    """The epoch is older than one that this log knows."""

    epoch: MasterEpoch
    last_epoch: MasterEpoch


Effect = (
    DiskEffect
    | SetConfirmOffset
    | SendToSlave
    | SendBatch
    | CloseSlave
    | Connect
    | SendToMaster
    | SendAck
    | CloseMaster
    | AlterSyncStateSet
    | PutCompleted
    | RoleChanged
    | RoleRefused
    | Note
)


def describe(item: Event | Effect) -> str:
    """One line for a trace: name and facts, frames spelled out, sets sorted."""
    if isinstance(item, Note):
        facts = " ".join(f"{key}={value}" for key, value in item.facts.items())
        return f"note {item.event} {facts}".rstrip()
    names = item._fields if isinstance(item, tuple) else item.__struct_fields__
    parts = [f"{name}={_show(getattr(item, name))}" for name in names]
    return " ".join([type(item).__name__, *parts])


def _show(value: object) -> str:
    if isinstance(value, frozenset):
        return _set(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, EpochEntry):
        return f"{value.epoch}-{value.start}"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        inner = ",".join(_show(part) for part in value)
        return f"{type(value).__name__}({inner})"
    if isinstance(value, tuple):
        return "[" + ",".join(_show(part) for part in value) + "]"
    return str(value)


def _set(value: Iterable[int]) -> str:
    return "{" + ",".join(str(one) for one in sorted(value)) + "}"
