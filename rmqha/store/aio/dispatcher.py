"""From the commit log into the queues: whole records up to the limit, and nothing beyond it.

Source: RocketMQ's protocol as observed; Java calls its position reputFromOffset.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable

from rmqha.base.errors import DiskFailed, DiskFull, RmqhaError, StoreDamaged
from rmqha.runtime.logs import Logger
from rmqha.store.aio.cold_reads import ColdReads, ReadAhead
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.consume_queues import ConsumeQueues, Flush, Key
from rmqha.store.aio.metadata_reader import MetadataRecord, metadata_record
from rmqha.store.aio.room import Room
from rmqha.store.metadata_records import METADATA_KEY
from rmqha.store.record import BLANK_SIZE, MAGIC_V1, MAGIC_V2, MIN_SIZE, Head
from rmqha.store.settings import StoreSettings

_PREFIX = struct.Struct(">iI")

GATHER_S = 0.001
"""After a batch that has reached the end: under load the next one then is of several records. What
comes after a pause is dispatched at once. Java looks once a millisecond."""

FLOOD_PAUSE_S = 0.01
"""Between two batches while a log grows faster than it is dispatched: a slave that catches up
receives and acknowledges first. Java has a thread for each."""

BEHIND_BYTES_MAX = 1 << 30
"""No pause once so much is waiting: then both get the same share of the time."""


SPACE_PAUSE_S = 1.0
"""Between two tries while the disk is full: files expire meanwhile, or somebody makes room."""

MAKINGS_MAX = 3
"""Of room in the queues for one run. While one queue's page was waited for, the disk may have taken
another's, which then waits once more."""


class Dispatcher:
    """Feeds the queues in the background.

    Args:
        room: of the store; a unit goes into a page of each queue.
        logger: told that it waits for space, and that it goes on.
        limit: the offset that may not be passed: the confirm offset, or the log's end.
        flush: makes the log durable up to an offset.
        on_failed: called once, with a failed disk or a damaged record; the dispatcher then stops.

    Attributes:
        offset: records before it are in the queues.
        last_timestamp: store timestamp, ms, of the newest of them.
        lock: held while it writes; a cut takes it.
        lacks_space: queues get nothing new until there is room on the disk; nothing is lost, for the
            log has it.
        on_arrived: told the watched queues that have grown, once they have.
        on_metadata: given each record of the internal topic, in order, once it was passed.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        settings: StoreSettings,
        cold: ColdReads,
        room: Room,
        logger: Logger,
        *,
        limit: Callable[[], int],
        flush: Flush,
        on_failed: Callable[[RmqhaError], None],
    ) -> None:
        self._log = log
        self._room = room
        self._logger = logger
        self.lacks_space = False
        self._queues = queues
        self._batch = settings.dispatch_batch_max
        self._ahead = ReadAhead(cold, log)
        self._limit = limit
        self._flush = flush
        self._on_failed = on_failed
        self._wake = asyncio.Event()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        # Whole records end before this offset, although the limit is there already.
        self._idle_at = 0
        self._error: RmqhaError | None = None
        self.offset = 0
        self.last_timestamp = 0
        self.lock = asyncio.Lock()
        self.on_dispatched: Callable[[], None] | None = None
        self.on_arrived: Callable[[list[Key]], None] | None = None
        self.on_metadata: Callable[[MetadataRecord], None] | None = None

    def wake(self) -> None:
        """The limit may have moved."""
        self._wake.set()

    def restart_at(self, offset: int) -> None:
        """Go on from the start of a record; the caller holds the lock, or nothing runs yet."""
        self.offset = self._idle_at = offset
        self.wake()

    async def wait(self, offset: int) -> None:
        """Return once every whole record before ``offset`` is in its queue.

        Raises:
            DiskFailed, StoreDamaged: the dispatcher has stopped.
        """
        if self._error is not None:
            raise self._error
        if max(self.offset, self._idle_at) >= offset:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, future))
        await future

    async def run(self) -> None:
        """Work until cancelled, or until something fails."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while await self._turn():
                    pass
                await asyncio.sleep(GATHER_S)
        except (DiskFailed, StoreDamaged) as error:
            self._error = error
            for _, future in self._waiting:
                if not future.done():
                    future.set_exception(error)
            self._waiting = []
            self._on_failed(error)

    async def finish(self) -> None:
        """Dispatch all that may be; what has no room on the disk is left to the next start.

        Raises:
            DiskFailed, StoreDamaged: as :meth:`step`.
        """
        async with self.lock:
            with contextlib.suppress(DiskFull):
                while await self.step():
                    pass

    async def _turn(self) -> bool:
        """Dispatch a batch, or wait for space; whether there may be more."""
        grown, done = self._log.max_offset, self.offset
        try:
            async with self.lock:
                more = await self.step()
        except DiskFull as error:
            # What was written of it may come again. Whoever waits does so until there is room.
            self._tell()
            self._note_space("error", "dispatch_lacks_space", lacks=True, error=str(error))
            await asyncio.sleep(SPACE_PAUSE_S)
            return True
        self._note_space("info", "dispatch_has_space", lacks=False)
        self._tell()
        if more:
            await asyncio.sleep(0)
            if self._is_flooded(self._log.max_offset - grown, self.offset - done):
                await asyncio.sleep(FLOOD_PAUSE_S)
        return more

    def _note_space(self, level: str, event: str, *, lacks: bool, **facts: str) -> None:
        if lacks != self.lacks_space:
            self.lacks_space = lacks
            self._logger.log(level, event, offset=self.offset, **facts)

    def _is_flooded(self, grown: int, done: int) -> bool:
        """Whether more has come in one turn of the loop than one batch took from it."""
        return grown > done and self._log.max_offset - self.offset < BEHIND_BYTES_MAX

    def _tell(self) -> None:
        if not self._waiting:
            return
        reached = max(self.offset, self._idle_at)
        ready = [future for goal, future in self._waiting if goal <= reached]
        self._waiting = [pair for pair in self._waiting if pair[0] > reached]
        for future in ready:
            if not future.done():
                future.set_result(None)

    async def step(self) -> bool:
        """Dispatch up to a batch of records; whether there may be more.

        Raises:
            DiskFull: no room for a queue's file; the same may be tried again.
            DiskFailed: the log cannot be read.
            StoreDamaged: bytes below the limit are no record.
        """
        try:
            await self._ahead.reach(self.offset)
            return await self._step(self._limit())
        finally:
            self._log.dispatched(self.offset)
            if self.on_dispatched is not None:
                self.on_dispatched()
            if self._queues.arrived:
                self._tell_arrived()

    def _tell_arrived(self) -> None:
        arrived, self._queues.arrived = list(self._queues.arrived), {}
        if self.on_arrived is not None:
            self.on_arrived(arrived)

    async def _step(self, limit: int) -> bool:
        done = 0
        while done < self._batch:
            if self.offset >= limit:
                return False
            if self._room.is_short:
                await self._make_room(limit, self._batch - done)
            passed = self._step_run(limit, self._batch - done)
            done += passed or 1
            if passed:
                continue
            buffer, head = self._log.check(self.offset)
            end = self._end_of(buffer, head, limit)
            if end > limit:
                self._idle_at = limit
                return False
            if head.size:
                await self._queues.take(head, buffer, self._flush)
                self.last_timestamp = head.store_timestamp
                if head.store_timestamp > self._log.last_timestamp:
                    self._log.last_timestamp = head.store_timestamp
            self.offset = end
            if head.size and head.topic == METADATA_KEY and self.on_metadata is not None:
                self.on_metadata(metadata_record(head, buffer))
        return True

    async def _make_room(self, limit: int, count_max: int) -> None:
        """Have the queues' pages take what comes next; it is looked at once more afterwards."""
        run = self._log.scan(
            self.offset, limit, count_max=count_max, open_queue_run=self._queues.open_queue_run
        )
        if run is None or not run.records:
            return
        for _ in range(MAKINGS_MAX):
            waited = self._room.waited
            for file, place in self._queues.tails(run.queue_runs):
                with contextlib.suppress(DiskFailed):  # whoever writes learns why
                    await self._room.make_in(file, [place])
            if self._room.waited == waited:
                break

    def _step_run(self, limit: int, count_max: int) -> int:
        """Dispatch the ordinary records that come next; how many there were."""
        run = self._log.scan(
            self.offset, limit, count_max=count_max, open_queue_run=self._queues.open_queue_run
        )
        if run is None or not run.records:
            return 0
        begun_ms = self._room.now_ms()
        self._queues.put_queue_runs(run.queue_runs)
        self._room.wrote(begun_ms)
        self.last_timestamp = run.timestamp
        if run.timestamp > self._log.last_timestamp:
            self._log.last_timestamp = run.timestamp
        self.offset = run.end
        return run.records

    def _end_of(self, buffer: memoryview, head: Head, limit: int) -> int:
        """Where the next record ends; behind the limit when it is not whole yet."""
        if head.size > 0:
            return head.offset + head.size
        if head.size == 0:
            return self._log.file_end(head.offset)
        within = head.offset % self._log.file_size
        written = min(self._log.file_size - within, self._log.max_offset - head.offset)
        if head.offset + written < self._log.file_end(head.offset):
            # The log ends in this record: on a slave its rest may still be on the way.
            if written < BLANK_SIZE:
                return limit + 1
            size, magic = _PREFIX.unpack_from(buffer, within)
            # A master may take longer messages than this broker does.
            size_max = self._log.file_size - within - BLANK_SIZE
            if magic in (MAGIC_V1, MAGIC_V2) and max(MIN_SIZE, written) <= size <= size_max:
                return limit + 1
        raise StoreDamaged(
            f"commit log at offset {head.offset}, below the confirmed {limit}: {head.reason}"
        )
