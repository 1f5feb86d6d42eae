"""What happens to a replica's place in its set (events), and what its shell must do (effects).

The shell carries out effects in list order. Those that wait (``StartReplication``, the role
changes, everything of the identity files) go through one lane, one after another, and each ends in
its event; the others are carried out at once. ``Ask`` ends in ``Answered`` or ``Unanswered`` with
the same token. Offsets are bytes, epochs are the controller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from rmqha.base.ids import NEVER_ELECTED, MasterEpoch, SyncStateSetEpoch
from rmqha.base.machine import Note, Ticked
from rmqha.broker.membership.identity import RemoveTemporary, WriteIdentity, WriteTemporary
from rmqha.ha.events import Role
from rmqha.store.identity import Identity

# -- events --------------------------------------------------------------------------------------


class Started(Struct, frozen=True):
    """The process begins.

    Attributes:
        wall_ms: the wall clock now, for the stamps that go onto the wire.
        final, temporary: the identity files' content.
    """

    wall_ms: int
    final: Identity | None
    temporary: Identity | None


class Answered(Struct, frozen=True):
    """A response to ``Ask``."""

    token: int
    code: int
    fields: Mapping[str, str] | None = None
    body: bytes = b""
    remark: str = ""


class Unanswered(Struct, frozen=True):
    """No response; ``sent`` tells whether the peer may have acted on the request."""

    token: int
    sent: bool
    reason: str = ""


class Notified(Struct, frozen=True):
    """Somebody sent 1008: a hint, for anybody can; the controllers are asked."""

    fields: Mapping[str, str] | None
    body: bytes


class Told(Struct, frozen=True):
    """The leader named another master when it was asked whether this one still reigns."""

    fields: Mapping[str, str] | None
    body: bytes


class Promised(Struct, frozen=True):
    """How long controllers wait for a silent master; the shortest that one of them said last.

    Attributes:
        for_ms: 0 for the timeout that heartbeats name.
    """

    for_ms: int


class SwitchWanted(Struct, frozen=True):
    """For a planned switch: this broker shall be elected in this master's place, 0 for nobody any more."""

    heir: int


class ControllersNamed(Struct, frozen=True):
    """``controllerAddr`` has another value, or other addresses behind it; one at least.

    Attributes:
        same_group: they are the same controllers, as far as anybody knows, in a resolver's words.
    """

    addresses: tuple[str, ...]
    same_group: bool = False


class TemporaryWritten(Struct, frozen=True):
    """The temporary identity file is durable."""

    identity: Identity


class TemporaryRemoved(Struct, frozen=True):
    """The temporary identity file is gone."""


class IdentityWritten(Struct, frozen=True):
    """The final identity file is durable."""

    identity: Identity


class ReplicationStarted(Struct, frozen=True):
    """The HA service listens and takes commands.

    Attributes:
        lost_epoch: of which this log may lack what others have; 0 for none.
        is_empty: the log holds nothing.
    """

    lost_epoch: MasterEpoch = NEVER_ELECTED
    is_empty: bool = False


class RoleSettled(Struct, frozen=True):
    """A role change has ended; refused when the log knows a newer epoch."""

    epoch: MasterEpoch
    accepted: bool


class AlterWanted(Struct, frozen=True):
    """Replication wants the controller to hold this set instead of the one of ``set_epoch``."""

    ids: frozenset[int]
    set_epoch: SyncStateSetEpoch


class NameServerAnswered(Struct, frozen=True):
    """What a name server knows of the master; empty texts when it knows none."""

    master_address: str
    ha_address: str


Unasked = Notified | Told | NameServerAnswered | ControllersNamed
"""What nobody here has asked for."""

DiskDone = TemporaryWritten | TemporaryRemoved | IdentityWritten | ReplicationStarted
"""How what waits for the disk has ended."""

Event = (
    Started
    | Ticked
    | Answered
    | Unanswered
    | Notified
    | Told
    | Promised
    | SwitchWanted
    | ControllersNamed
    | TemporaryWritten
    | TemporaryRemoved
    | IdentityWritten
    | ReplicationStarted
    | RoleSettled
    | AlterWanted
    | NameServerAnswered
)

# -- effects -------------------------------------------------------------------------------------


class Ask(NamedTuple):
    """Send a request and wait for its response."""

    token: int
    address: str
    code: int
    fields: dict[str, str]
    body: bytes
    timeout_ms: int


class Beat(NamedTuple):
    """Send a one-way heartbeat (904) to each address; the shell adds epoch and offsets."""

    addresses: tuple[str, ...]
    fields: dict[str, str]


class Leave(NamedTuple):
    """Close the connections to these controllers: they shall miss this broker."""

    addresses: tuple[str, ...]


class StartReplication(NamedTuple):
    """The id is known: start the HA service; ends in ``ReplicationStarted``."""

    broker_id: int


class BecomeMaster(NamedTuple):
    """Reign in ``epoch``; ends in ``RoleSettled``."""

    epoch: MasterEpoch
    ids: frozenset[int]
    set_epoch: SyncStateSetEpoch


class BecomeSlave(NamedTuple):
    """Follow a master whose HA address is yet to be found; ends in ``RoleSettled``."""

    epoch: MasterEpoch
    master_id: int
    master_address: str


class FollowMaster(NamedTuple):
    """The master's HA address."""

    ha_address: str


class TellSet(NamedTuple):
    """The SyncStateSet of the reign that this slave follows, as a poll has just brought it."""

    ids: frozenset[int]


class ConfirmSet(NamedTuple):
    """The controller's SyncStateSet and its epoch, for replication."""

    ids: frozenset[int]
    set_epoch: SyncStateSetEpoch


class EndAlter(NamedTuple):
    """An alteration brought no new set.

    Attributes:
        refused: it surely was not applied.
        for_a_member: because of one of those in it.
    """

    refused: bool
    for_a_member: bool = False


class RefuseSwitch(NamedTuple):
    """The controllers have surely not elected the heir; it is not asked for again."""

    reason: str


class ServeAs(NamedTuple):
    """The role is complete: serve, and tell the name servers."""

    role: Role
    epoch: MasterEpoch


Effect = (
    Ask
    | Beat
    | Leave
    | WriteTemporary
    | RemoveTemporary
    | WriteIdentity
    | StartReplication
    | BecomeMaster
    | BecomeSlave
    | FollowMaster
    | TellSet
    | ConfirmSet
    | EndAlter
    | RefuseSwitch
    | ServeAs
    | Note
)
