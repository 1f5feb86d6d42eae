"""The HA service of one replica: its port, its connection to the master, its timer, its disk lane.

It turns sockets and disk into events, carries out effects in order, and decides nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, cast

from rmqha.base.errors import ConnectFailed, DiskFull, StoreDamaged
from rmqha.base.ids import MasterEpoch, SyncStateSetEpoch
from rmqha.base.invariants import unknown_effect
from rmqha.base.machine import Note, Ticked
from rmqha.ha import events as ev
from rmqha.ha.aio.batches import Batches
from rmqha.ha.aio.client import MasterConnection
from rmqha.ha.aio.connection import SlaveConnection
from rmqha.ha.aio.epoch_file import EpochFile
from rmqha.ha.busy_wait import BusyWait, Processor
from rmqha.ha.epochs import EpochEntry
from rmqha.ha.events import Effect, Event, PutStatus
from rmqha.ha.ports import ReplicatedLog
from rmqha.ha.settings import HaSettings
from rmqha.runtime.aio.driver import Driver, Lane, Recorder
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Listener, Network

GATHER_MS = 1
"""Java's dispatcher, which a master's consumers wait for, looks at the log once a millisecond."""

SPACE_PAUSE_MS = 1_000
"""Between two tries to write the epoch file while the disk is full."""

WALKED_BYTES = 8 << 20
"""Of the log, looked at before others get their turn: some ten milliseconds."""


class Core(Protocol):
    """The machine behind the service: ``HaCore``, or what a test wraps around it."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When to send ``Ticked`` next."""

    @property
    def reign_number(self) -> int:
        """Grows whenever this replica leaves its reign."""

    def is_leased(self, now_ms: int) -> bool:
        """Whether puts complete by the settings alone."""

    def check_put(self, *, wait_store_ok: bool = True, now_ms: int | None = None) -> PutStatus:
        """What a put would meet."""

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """Take one event."""


class HaListener(Protocol):
    """The broker around the service. Calls come from the event loop and must not wait."""

    def alter_sync_state_set(self, ids: frozenset[int], epoch: SyncStateSetEpoch) -> None:
        """Send 1001; answer with ``SyncStateSetConfirmed``, ``AlterRefused`` or ``AlterLost``."""

    def ha_failed(self, error: Exception) -> None:
        """The disk failed, or a safety rule broke: the process must stop."""


class HaService:
    """One replica's replication.

    Args:
        core: the machine; it has been given what the store recovered.
        log: the same store.
        epoch_file: of the same store.
        settings: of the core.
        clock, network: ports.
        listener: the broker.
        logger: for notes.
        rejected: counts, by reason, the connections that were turned away.
        processor: for waits without sleep, if the settings want some; None where time is simulated.

    Attributes:
        busy_waits: counts those waits by their ends.
        is_fenced: whether somebody may have another master elected right now, whatever lease was
            granted; looked at before anything is decided.
    """

    def __init__(
        self,
        *,
        core: Core,
        log: ReplicatedLog,
        epoch_file: EpochFile,
        settings: HaSettings,
        clock: Clock,
        network: Network,
        listener: HaListener,
        logger: Logger,
        rejected: Counter[str] | None = None,
        processor: Processor | None = None,
    ) -> None:
        self.core = core
        self.rejected = Counter[str]() if rejected is None else rejected
        self.in_flight_bytes_max = settings.in_flight_bytes_max
        self.busy_waits = Counter[str]()
        self._busy_wait_us = settings.ha_busy_wait_us
        self._processor = processor
        self._log = log
        self._epoch_file = epoch_file
        self._clock = clock
        self._network = network
        self._listener = listener
        self._logger = logger
        self._driver: Driver[Event, Effect] = Driver(
            core,
            clock,
            self._carry_out,
            on_error=self.broken,
            next_deadline_ms=lambda: core.next_deadline_ms,
            on_due=lambda: self.give(Ticked()),
        )
        self._closed = False
        self._slaves: dict[int, SlaveConnection] = {}
        self._batches = Batches(self, log, logger)
        self._connections = 0
        self._master: tuple[int, MasterConnection] | None = None
        self._tasks = Tasks(logger, self._task_failed)
        self._lane: Lane[ev.DiskEffect] = Lane(
            self._tasks, "disk of replication", self._wait_for, self.broken
        )
        self._puts: dict[int, Callable[[PutStatus], None]] = {}
        self._asked: list[tuple[int, int, Callable[[PutStatus], None]]] = []
        self._tokens = 0
        self._roles: deque[asyncio.Future[bool]] = deque()
        self._append_scheduled = False
        self._appended_ms = -GATHER_MS
        self._port: Listener | None = None
        self.is_fenced: Callable[[], bool] = bool

    # -- life ------------------------------------------------------------------------------------

    async def start(self, host: str, port: int) -> int:
        """Listen for slaves; returns the port in use.

        Raises:
            OSError: the address cannot be used.
        """
        self._port = await self._network.listen(
            host, port, cast(Any, lambda: SlaveConnection(self))
        )
        self._driver.arm()
        return self._port.port

    def record(self, recorder: Recorder[Event]) -> None:
        """Have every event of the core recorded, from here on."""
        self._driver.recorder = recorder

    async def close(self) -> None:
        """Close every connection and stop; what is in the log stays there."""
        self._stop()
        await self._tasks.close()
        if self._port is not None:
            await self._port.wait_closed()

    def _stop(self) -> None:
        self._closed = True
        if self._port is not None:
            self._port.close()
        self._driver.close()
        self._lane.close()
        for connection in list(self._slaves.values()):
            connection.abort()
        if self._master is not None:
            self._master[1].close()
        ended = [*self._puts.values(), *(done for *_, done in self._asked)]
        self._puts.clear()
        self._asked.clear()
        for done in ended:
            done(PutStatus.SERVICE_NOT_AVAILABLE)
        for role in self._roles:
            if not role.done():
                role.set_result(False)
        self._roles.clear()

    def broken(self, error: Exception) -> None:
        """Nothing may be sent any more; the broker is told."""
        if not self._closed:
            self._logger.log("error", "ha_broken", error=repr(error))
            self._stop()
            self._listener.ha_failed(error)

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what a connection waits for, until replication ends."""
        self._tasks.start(work, name="replication waits")

    def _task_failed(self, error: BaseException) -> None:
        self.broken(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    # -- what the broker calls ---------------------------------------------------------------------

    async def change_to_master(
        self,
        epoch: MasterEpoch,
        sync_state_set: frozenset[int],
        sync_state_set_epoch: SyncStateSetEpoch,
    ) -> bool:
        """Become the master of ``epoch``; True when it is done, False when it was refused."""
        command = ev.ChangedToMaster(epoch, sync_state_set, sync_state_set_epoch)
        return await self._change_role(command)

    async def change_to_slave(
        self, epoch: MasterEpoch, master_id: int | None, master_ha_address: str | None = None
    ) -> bool:
        """Follow another master; True when it is begun, False when it was refused."""
        return await self._change_role(ev.ChangedToSlave(epoch, master_id, master_ha_address))

    async def _change_role(self, command: ev.ChangedToMaster | ev.ChangedToSlave) -> bool:
        if self._closed:
            return False
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._roles.append(done)
        self.give(command)
        return await done

    def check_put(self, *, wait_store_ok: bool = True) -> PutStatus:
        """What a put would meet, before it is written."""
        if self.is_fenced():
            self.granted(0)
        return self.core.check_put(wait_store_ok=wait_store_ok, now_ms=self._clock.now_ms())

    @property
    def is_leased(self) -> bool:
        """Whether a put may be answered by the settings alone, at this very moment."""
        return not self.is_fenced() and self.core.is_leased(self._clock.now_ms())

    @property
    def reign_number(self) -> int:
        """Of the reign in which what is written now is written."""
        return self.core.reign_number

    def granted(self, until_ms: int) -> None:
        """The controllers elect nobody else until then."""
        self.give(ev.LeaseGranted(until_ms))

    def appended(self) -> int:
        """The log has grown; slaves hear of it once a loop turn, however many records came.

        Without slaves nobody waits for it but consumers: they hear of the first record at once,
        and of what follows it within ``GATHER_MS``.

        Returns:
            The number of the reign in which it has, for :meth:`when_put`.
        """
        reign = self.core.reign_number
        if self._append_scheduled:
            return reign
        self._append_scheduled = True
        now_ms = self._clock.now_ms()
        if self._slaves or now_ms - self._appended_ms >= GATHER_MS:
            asyncio.get_running_loop().call_soon(self._tell_appended)
        else:
            self._clock.call_later(GATHER_MS, self._tell_appended)
        self._appended_ms = now_ms
        return reign

    def flushed(self, offset: int) -> None:
        """Everything before ``offset`` is durable, whoever asked for it."""
        self.give(ev.Flushed(offset))

    def _tell_appended(self) -> None:
        if self._asked:
            # Those who wait for what was appended: the core looks at the log once.
            self._tell_asked()
        elif self._append_scheduled:
            self._append_scheduled = False
            self.give(ev.Appended(self._log.max_offset))

    def when_put(self, end_offset: int, reign: int, done: Callable[[PutStatus], None]) -> None:
        """Call ``done`` once: when enough slaves hold a record, or at its deadline. It must not
        raise, nor wait.

        The records of one loop turn go to the slaves together, before anything waits for them.

        Args:
            end_offset: where the record ends.
            reign: ``reign_number`` when it was written; of an earlier one it is refused.
            done: is told.
        """
        if self._closed:
            done(PutStatus.SERVICE_NOT_AVAILABLE)
            return
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._tell_asked)
        self._asked.append((end_offset, reign, done))

    def _tell_asked(self) -> None:
        """Tell the core of all that was asked for; the log comes first."""
        asked, self._asked = self._asked, []
        if self._closed or not asked:
            return
        self._append_scheduled = False
        events: list[Event] = [ev.Appended(self._log.max_offset)]
        for end_offset, reign, done in asked:
            self._tokens += 1
            self._puts[self._tokens] = done
            events.append(ev.PutWaited(self._tokens, end_offset, reign))
        self._take(*events)

    async def wait_put(self, end_offset: int, reign: int) -> PutStatus:
        """Wait until enough slaves hold a record, or its deadline; as ``when_put``."""
        future: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()

        def done(status: PutStatus) -> None:
            if not future.done():
                future.set_result(status)

        self.when_put(end_offset, reign, done)
        return await future

    def give(self, event: Event) -> None:
        """Take an event."""
        if self._closed:
            return
        if self._append_scheduled:
            # Whatever it is, the core judges it by the log as it is.
            self._append_scheduled = False
            self._take(ev.Appended(self._log.max_offset), event)
        else:
            self._take(event)

    def _take(self, *events: Event) -> None:
        """Step; a replica that stood still learns of its fence before anything else."""
        if self.is_fenced() and not self._driver.is_running:
            self._driver.give(ev.LeaseGranted(0), *events)
        else:
            self._driver.give(*events)

    # -- what connections call -----------------------------------------------------------------------

    def busy_wait(self) -> BusyWait | None:
        """For one connection; None where loops sleep."""
        if self._processor is None or not self._busy_wait_us:
            return None
        return BusyWait(self._processor, self._busy_wait_us, self.busy_waits)

    def opened(self, connection: SlaveConnection) -> int:
        """Number a new connection of a slave; never the same number twice."""
        self._connections += 1
        self._slaves[self._connections] = connection
        if self._closed:
            connection.abort()
        return self._connections

    def forgotten(self, conn: int) -> None:
        """A slave's connection is gone."""
        self._slaves.pop(conn, None)

    # -- effects ---------------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case ev.SendBatch():
                self._batches.send(self._slaves.get(effect.conn), effect)
            case ev.SendAck(conn, offset):
                if self._master is not None and self._master[0] == conn:
                    self._master[1].send_ack(offset)
            case ev.SetConfirmOffset(offset):
                self._log.set_confirm_offset(offset)
            case ev.PutCompleted(token, status):
                done = self._puts.pop(token, None)
                if done is not None:
                    done(status)
            case Note():
                self._logger.note(effect)
            case ev.SendToSlave() | ev.CloseSlave():
                self._to_slave(effect)
            case ev.Connect() | ev.SendToMaster() | ev.CloseMaster():
                self._to_master(effect)
            case _:
                self._rare(effect)

    def _to_slave(self, effect: ev.SendToSlave | ev.CloseSlave) -> None:
        connection = self._slaves.get(effect.conn)
        if connection is None:
            return
        match effect:
            case ev.SendToSlave(_, data):
                connection.send(data)
            case ev.CloseSlave(_, reason):
                if reason == ev.TOO_MANY:
                    self.rejected["connections"] += 1
                connection.abort()

    def _to_master(self, effect: ev.Connect | ev.SendToMaster | ev.CloseMaster) -> None:
        if isinstance(effect, ev.Connect):
            connection = MasterConnection(self, effect.conn, self._log)
            self._master = (effect.conn, connection)
            self._tasks.start(self._connect(effect, connection), name="connect to the master")
        elif self._master is not None and self._master[0] == effect.conn:
            match effect:
                case ev.SendToMaster(_, data):
                    self._master[1].send(data)
                case ev.CloseMaster():
                    connection = self._master[1]
                    self._master = None
                    connection.close()

    def _rare(
        self,
        effect: ev.DiskEffect | ev.AlterSyncStateSet | ev.RoleChanged | ev.RoleRefused,
    ) -> None:
        match effect:
            case ev.AlterSyncStateSet(ids, epoch):
                self._listener.alter_sync_state_set(ids, epoch)
            case ev.RoleChanged() | ev.RoleRefused():
                done = self._roles.popleft() if self._roles else None
                if done is not None and not done.done():
                    done.set_result(isinstance(effect, ev.RoleChanged))
            case _:
                self._lane.add(effect)

    async def _connect(self, effect: ev.Connect, connection: MasterConnection) -> None:
        host, _, port = effect.address.rpartition(":")
        try:
            await self._network.connect(
                host.strip("[]"),
                int(port),
                cast(Any, lambda: connection),
                timeout_ms=effect.timeout_ms,
            )
        except (ConnectFailed, ValueError) as error:
            connection.fail(str(error))

    async def _wait_for(self, effect: ev.DiskEffect) -> None:
        log = self._log
        match effect:
            case ev.CutInvalidTail(seq, acknowledged):
                await log.truncate(await self._valid_end(acknowledged))
                self.give(ev.TailCut(seq, log.max_offset))
            case ev.TruncateLog(seq, offset):
                await log.truncate(offset)
                self.give(ev.LogTruncated(seq, log.max_offset))
            case ev.WriteEpochs(seq, entries):
                await self._write_epochs(entries)
                self.give(ev.EpochsWritten(seq))
            case ev.WaitDispatched(seq, offset):
                await log.wait_dispatched(offset)
                await log.rebuild_queue_offsets()
                self.give(ev.DispatchReached(seq))
            case ev.Flush(offset):
                self.give(ev.Flushed(await log.flush(offset)))
            case _:
                unknown_effect(effect)

    async def _write_epochs(self, entries: tuple[EpochEntry, ...]) -> None:
        """Write the epoch file; on a full disk once there is room, and what comes behind waits."""
        is_told = False
        while True:
            try:
                await self._epoch_file.write(entries)
                return
            except DiskFull as error:
                if not is_told:
                    self._logger.log("error", "epochs_lack_space", error=str(error))
                is_told = True
                await self._clock.sleep(SPACE_PAUSE_MS)

    async def _valid_end(self, acknowledged: int | None) -> int:
        """Where the last whole record of the log ends; others get their turn meanwhile.

        Raises:
            StoreDamaged: what is damaged there was acknowledged, or durable (ADR 0012).
        """
        log = self._log
        start = max(log.dispatched_offset, log.min_offset, 0)
        while start < log.max_offset:
            reached = log.valid_end(start, min(log.max_offset, start + WALKED_BYTES))
            if reached == start:
                # A record longer than that, or none.
                reached = log.valid_end(start, log.max_offset)
            if reached == start:
                break
            start = reached
            await asyncio.sleep(0)
        kept = log.flushed_offset if acknowledged is None else acknowledged
        if start < kept and log.damaged_at is not None:
            raise StoreDamaged(f"commit log: damaged at offset {start}, below the kept {kept}")
        return start
