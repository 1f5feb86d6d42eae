"""One replica of an explored broker set: the real HA core, and the smallest shell around it.

A core under way in a change of role holds a generator, which cannot be copied; so a replica is
what its disk held when it started, and the inputs since: a step plays them again. Equal replicas
are found by everything that a core holds (``replica_plain``).

Records are one byte long and are numbers here. What a master writes is flushed at once; a slave
acknowledges what is flushed. The disk's only waits are cuts, epoch files and flushes of slaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum
from types import GeneratorType
from typing import Any, NamedTuple, assert_never

import msgspec

from rmqha.base.ids import MasterEpoch, SyncStateSetEpoch
from rmqha.base.invariants import invariant
from rmqha.base.machine import Note, Ticked
from rmqha.ha import events as ev
from rmqha.ha.epochs import EpochCache, EpochEntry
from rmqha.ha.events import PutStatus
from rmqha.ha.frames import (
    Ack,
    ConnectionState,
    HandshakeRequest,
    MasterFrame,
    MasterFrameParser,
    SlaveFrame,
    SlaveFrameParser,
)
from rmqha.ha.ha_core import HaCore
from rmqha.ha.settings import HaSettings
from rmqha.ha.state import LogFacts

SETTINGS = HaSettings(
    all_ack_in_sync_state_set=True,
    ack_flushed_data=True,
    reconnect_delay_ms=0,
    reconnect_delay_max_ms=0,
    ha_max_time_slave_not_catchup_ms=1_000,
)
FILE_SIZE = 1 << 20
CONNS = 8
"""Connection ``number`` of slave ``id`` is ``number * CONNS + id`` to a master."""

Log = tuple[int, ...]


class ReplicaDisk(NamedTuple):
    """What a replica starts from."""

    log: Log = ()
    confirm: int = 0
    epochs: tuple[EpochEntry, ...] = ()


class Item(NamedTuple):
    """Something on its way.

    Attributes:
        kind: ``begins`` (a connection, towards the master), ``of master`` or ``of slave``, by who
            sent it.
        conn: the number of the connection between these two.
        frame: None for a beginning, and for an end.
        body: the records behind a transfer header.
    """

    kind: str
    conn: int
    frame: MasterFrame | SlaveFrame | None = None
    body: Log = ()


class Input(NamedTuple):
    """Something that happens to a replica; ``what`` depends on the kind."""

    kind: str
    now_ms: int
    what: Any = None


class RunningReplica:
    """A running replica; ``sent`` and ``acked`` are of its last input.

    Attributes:
        flushed: records that are durable.
        target: whom it wants to connect to; None when it does not.
        conn, peer: the connection to its master, and who that is; 0 when there is none.
        slave_conn: the same connection's number in its own core.
        alters: how many alterations it has asked for.
        asked: (number, alteration) of those that the controller has not seen yet.
        answers: (number, the controller's word) of those that have not arrived yet.
        told: the newest election that it has heard of.
        acked: (offset, record) of puts that a producer is told of.
    """

    def __init__(self, own_id: int, disk: ReplicaDisk, now_ms: int) -> None:
        self.id = own_id
        self.log = disk.log
        self.flushed = len(disk.log)
        self.epochs = disk.epochs
        self.now_ms = now_ms
        self.target: int | None = None
        self.conn = self.peer = 0
        self.slave_conn = 0
        self.alters = 0
        self.asked: tuple[tuple[int, ev.AlterSyncStateSet], ...] = ()
        self.answers: tuple[tuple[int, ev.SyncStateSetConfirmed | ev.AlterRefused], ...] = ()
        self.told = 0
        self.puts: dict[int, int] = {}
        self.lane: deque[ev.Effect] = deque()
        self._events: deque[ev.Event] = deque()
        self._begin()
        facts = LogFacts(
            FILE_SIZE,
            0 if self.log else -1,
            len(self.log),
            self.flushed,
            min(disk.confirm, len(self.log)),
        )
        self.core = HaCore(
            own_id=own_id,
            settings=SETTINGS,
            log=facts,
            epochs=EpochCache(disk.epochs),
            now_ms=now_ms,
        )

    def _begin(self) -> None:
        self.sent: list[tuple[int, Item]] = []
        self.acked: list[tuple[int, int]] = []

    @property
    def confirm(self) -> int:
        """What consumers may see ends here."""
        return self.core.ha.log.confirm_offset

    @property
    def follows(self) -> bool:
        """Whether it is a slave that takes what its master sends."""
        client = self.core.client
        return client is not None and client.state is ConnectionState.TRANSFER and self.conn > 0

    @property
    def may_put(self) -> bool:
        """Whether a producer's record would be written."""
        status = self.core.check_put(now_ms=self.now_ms)
        return self.core.is_serving and status is PutStatus.PUT_OK

    # -- inputs --------------------------------------------------------------------------------

    def take(self, given: Input) -> None:
        """One input, and all that follows from it at once.

        Raises:
            InvariantBroken: a rule of the core, or of this file, does not hold.
        """
        self._begin()
        self.now_ms = given.now_ms
        getattr(self, f"_{given.kind}")(given.what)
        self._drain()

    def _drain(self) -> None:
        while self._events or self._at_once():
            for effect in self.core.step(self.now_ms, self._events.popleft()):
                self._carry_out(effect)

    def _at_once(self) -> bool:
        """Waits that change nothing on this disk end at once."""
        match self.lane[0] if self.lane else None:
            case ev.CutInvalidTail(seq):
                self._events.append(ev.TailCut(seq, len(self.log)))
            case ev.WaitDispatched(seq):
                self._events.append(ev.DispatchReached(seq))
            case _:
                return False
        self.lane.popleft()
        return True

    def _due(self, _: Any) -> None:
        self._events.append(Ticked())

    def _told(self, election: tuple[MasterEpoch, int, frozenset[int], SyncStateSetEpoch]) -> None:
        epoch, master, ids, set_epoch = election
        self.told = epoch
        if master == self.id:
            self._events.append(ev.ChangedToMaster(epoch, ids, set_epoch))
        else:
            self._events.append(ev.ChangedToSlave(epoch, master, f"r{master}"))

    def _put(self, record: int) -> None:
        self.log += (record,)
        self.flushed = len(self.log)
        self.puts[record] = self.flushed - 1
        self._events += [
            ev.Appended(self.flushed), ev.Flushed(self.flushed),
            ev.PutWaited(record, self.flushed, self.core.reign_number),
        ]  # fmt: skip

    def _disk(self, _: Any) -> None:
        match self.lane.popleft():
            case ev.TruncateLog(seq, offset):
                invariant(
                    offset >= self.confirm,
                    "a log is cut below its confirmOffset",
                    replica=self.id,
                    offset=offset,
                    confirm_offset=self.confirm,
                )
                self.log = self.log[:offset]
                self.flushed = min(self.flushed, offset)
                self._events.append(ev.LogTruncated(seq, offset))
            case ev.WriteEpochs(seq, entries):
                self.epochs = entries
                self._events.append(ev.EpochsWritten(seq))
            case ev.Flush():
                self.flushed = len(self.log)
                self._events.append(ev.Flushed(self.flushed))
            case effect:
                invariant(False, "an effect does not wait", effect=effect)

    def _connected(self, number: int) -> None:
        assert self.target is not None
        self.conn, self.peer, self.target = number, self.target, None
        self._events.append(ev.MasterConnected(self.slave_conn))

    def _arrived(self, what: tuple[int, Item]) -> None:
        sender, item = what
        if item.kind == "of master":
            self._of_master(item)
            return
        conn = item.conn * CONNS + sender
        match item.frame:
            case None if item.kind == "begins":
                self._events.append(ev.SlaveConnected(conn, f"r{sender}"))
            case None:
                self._events.append(ev.SlaveClosed(conn, "reset"))
            case HandshakeRequest() | Ack() as frame:
                self._events.append(ev.SlaveSent(conn, frame))
            case frame:
                invariant(False, "a slave does not send this", frame=frame)

    def _of_master(self, item: Item) -> None:
        if item.frame is None:
            self.conn = 0
            self._events.append(ev.MasterClosed(self.slave_conn, "reset"))
            return
        self._events.append(ev.MasterSent(self.slave_conn, item.frame))  # type: ignore[arg-type]  # a master's
        self._drain()
        if item.body and self.conn == item.conn:  # else the core has left the connection
            offset = len(self.log)
            self.log += item.body
            self._events.append(ev.BodyReceived(self.slave_conn, offset, len(item.body)))

    def _altered(self, answer: ev.SyncStateSetConfirmed | ev.AlterRefused) -> None:
        number, _ = self.asked[0]
        self.asked = self.asked[1:]
        self.answers = (*self.answers, (number, answer))

    def _answered(self, _: Any) -> None:
        """An answer arrives; that an older alteration was refused says nothing of the newest."""
        (number, answer), *rest = self.answers
        self.answers = tuple(rest)
        stale = isinstance(answer, ev.AlterRefused) and number < self.alters
        self._events.append(ev.AlterLost() if stale else answer)

    def _polled(self, what: tuple[frozenset[int], SyncStateSetEpoch]) -> None:
        self._events.append(ev.SyncStateSetConfirmed(*what))

    def _lost(self, _: Any) -> None:
        if self.answers:
            self.answers = self.answers[1:]
        else:
            self.asked = self.asked[1:]
        self._events.append(ev.AlterLost())

    # -- effects -------------------------------------------------------------------------------

    def _carry_out(self, effect: ev.Effect) -> None:  # noqa: C901 - one case an effect
        match effect:
            case ev.SendToSlave(conn, data):
                self._to_slave(conn, data, ())
            case ev.SendBatch(conn, header, offset, length):
                self._to_slave(conn, header, self.log[offset : offset + length])
                self._events.append(ev.SlaveWritable(conn))
            case ev.CloseSlave(conn):
                self.sent.append((conn % CONNS, Item("of master", conn // CONNS)))
            case ev.Connect(conn, address):
                self.slave_conn, self.target = conn, int(address[1:])
            case ev.SendToMaster(_, data):
                frames = SlaveFrameParser().feed(data)
                self.sent += [(self.peer, Item("of slave", self.conn, one)) for one in frames]
            case ev.SendAck(_, offset):
                self.sent.append((self.peer, Item("of slave", self.conn, Ack(offset))))
            case ev.CloseMaster():
                if self.conn:
                    self.sent.append((self.peer, Item("of slave", self.conn)))
                self.conn, self.target = 0, None
            case ev.AlterSyncStateSet():
                self.alters += 1
                self.asked = (*self.asked, (self.alters, effect))
            case ev.PutCompleted(token, PutStatus.PUT_OK):
                self.acked.append((self.puts[token], token))
            case ev.CutInvalidTail() | ev.WaitDispatched():
                self.lane.append(effect)
            case ev.TruncateLog() | ev.WriteEpochs() | ev.Flush():
                self.lane.append(effect)
            case ev.PutCompleted() | ev.RoleChanged() | ev.RoleRefused() | Note():
                pass  # Nobody was promised anything.
            case ev.SetConfirmOffset():
                pass  # There are no queues here, and ``confirm`` is asked where it matters.
            case _:
                assert_never(effect)

    def _to_slave(self, conn: int, data: bytes, body: Log) -> None:
        parser = MasterFrameParser()
        frame = None
        while frame is None:
            size = parser.wanted
            frame, data = parser.feed(data[:size]), data[size:]
        self.sent.append((conn % CONNS, Item("of master", conn // CONNS, frame, body)))


SKIPPED = {"_ha", "_sessions", "settings", "sent", "acked", "_events", "id", "own_id"}
"""Stands elsewhere, is the same all through a walk, or is of the last input only."""


def replica_plain(value: Any) -> Any:
    """Everything that what a replica does next depends on, as lists, numbers and texts."""
    kind = type(value)
    if kind in (int, str, bytes, bool, type(None)):
        return value
    if isinstance(value, Enum):
        return value.value
    if kind in (set, frozenset):
        return sorted(value)
    if kind is dict:
        return [[key, replica_plain(value[key])] for key in sorted(value)]
    if isinstance(value, (tuple, list, deque)):
        return [kind.__name__, *map(replica_plain, value)]
    if isinstance(value, msgspec.Struct):
        return [replica_plain(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, GeneratorType):
        # A change of role under way: where it waits, and for what.
        invariant(
            value.gi_yieldfrom is None, "a plan waits inside another, which is not looked into"
        )
        frame = value.gi_frame
        if frame is None:  # it has ended
            return [value.gi_code.co_name]
        inside = {k: v for k, v in frame.f_locals.items() if k not in ("replica", "ha")}
        return [value.gi_code.co_name, frame.f_lasti, replica_plain(inside)]
    return [[k, replica_plain(v)] for k, v in sorted(vars(value).items()) if k not in SKIPPED]


def played(
    own_id: int, disk: ReplicaDisk, began_ms: int, inputs: Iterable[Input]
) -> RunningReplica:
    """A replica that started from a disk, after some inputs."""
    replica = RunningReplica(own_id, disk, began_ms)
    for one in inputs:
        replica.take(one)
    return replica
