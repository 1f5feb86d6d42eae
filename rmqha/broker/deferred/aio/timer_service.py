"""The timer service: reads the timers' queue, delivers what is due, keeps its mark.

It runs while this broker is a serving master.
"""

from __future__ import annotations

import sys
from collections import deque

from rmqha.base.errors import MessageIllegal
from rmqha.broker.common.aio.writer import Writer
from rmqha.broker.deferred.aio.deliveries import Deliveries
from rmqha.broker.deferred.aio.timer_mark_file import TimerMarkFile
from rmqha.broker.deferred.delays import (
    DELETE_KEY,
    TIMER_QUEUE,
    TIMER_TOPIC,
    due_message,
    real_place,
    recalled_key,
    timer_key,
    timer_out_ms,
)
from rmqha.broker.deferred.timer_progress import TimerProgress
from rmqha.broker.deferred.timer_table import TimerTable
from rmqha.broker.deferred.timers import Due, TimerFigures, TimerMark
from rmqha.broker.groups.aio.ports import Broker
from rmqha.runtime.logs import Logger
from rmqha.store import properties as props
from rmqha.store.aio.cold_reads import NotInMemory
from rmqha.store.aio.record_walk import LOOKS_A_TURN, RecordWalk, places
from rmqha.store.aio.room import Stretch
from rmqha.store.record import Record

LOOK_MS = 50
READABLE_MS = 5
"""Between two looks while the queues lack what is in the log."""
BATCH_MAX = 256
"""Timers that are taken from the table at once."""


class TimerService:
    """Delivers timers when they are due."""

    def __init__(
        self, broker: Broker, writer: Writer, deliveries: Deliveries, file: TimerMarkFile,
        log: Logger,
    ) -> None:  # fmt: skip
        config = broker.config
        self._broker = broker
        self._writer = writer
        self._deliveries = deliveries
        self._file = file
        self._log = log
        self._timers_max = config.integer("timersInMemoryMax")
        self._mark_ms = config.integer("timerFlushIntervalMs")
        self._delay_max_ms = config.integer("timerMaxDelaySec") * 1000
        self._table = TimerTable(self._timers_max, TimerMark(), 0)
        # Whether the table is that of this reign.
        self._has_place = False
        self._walk = RecordWalk(broker.store)
        # Taken from the table, and not looked at yet.
        self._taken: deque[Due] = deque()
        self._progress = TimerProgress()
        # Where the last delivery ends.
        self._written_to = 0
        self._marked_ms = 0

    @property
    def delivered_ms(self) -> int:
        """By the wall clock; whatever was stored and due before it is delivered, where consumers read,
        and is as safe as an acknowledged message. 0 while nothing is known."""
        return self._progress.delivered_ms

    async def run(self) -> None:
        """Deliver until cancelled.

        Raises:
            DiskFailed: the store has stopped.
        """
        self._progress, self._written_to = TimerProgress(), 0
        mark = self._file.mark
        first = await self._broker.store.cold.look(lambda: self._first(mark))
        self._table = TimerTable(self._timers_max, mark, first)
        self._walk, self._taken = RecordWalk(self._broker.store), deque()
        self._has_place = True
        while True:
            more = await self._read_and_deliver()
            self._keep_in_time()
            waited = await self._walk.fetch()
            await self._broker.clock.sleep(0 if more or waited else self._pause_ms())

    async def _read_and_deliver(self) -> bool:
        """One round; whether there is more to do at once."""
        progress, table = self._progress, self._table
        progress.note(self._broker.clock.wall_ms(), self._broker.store.max_offset)
        self._look_at_queues()
        more_to_read = await self._walk.turns(self._read)
        progress.read(table.position)
        if not self._taken:
            # What takes back a timer that was due by then has been read, when it was acknowledged by then.
            self._taken.extend(table.take(progress.read_ms, BATCH_MAX))
        count = len(self._taken)
        end, more = await self._writer.batches(self._deliver)
        while end and not await self._writer.settle(end):
            await self._broker.clock.sleep(LOOK_MS)
        self._written_to = max(self._written_to, end)
        if not self._taken:
            table.settled()
            more = count == BATCH_MAX
            # The table goes back in the queue when it has to read again what it left out.
            if table.next_ms > progress.read_ms and table.position >= progress.read_to:
                progress.written(self._written_to)
                self._look_at_queues()
        return more or more_to_read

    def _look_at_queues(self) -> None:
        store = self._broker.store
        end = store.reader.max_offset(TIMER_TOPIC, TIMER_QUEUE)
        self._progress.dispatched(store.dispatched_offset, end)

    def _keep_in_time(self) -> None:
        now_ms = self._broker.clock.now_ms()
        if now_ms - self._marked_ms >= self._mark_ms:
            self._marked_ms = now_ms
            self._file.mark = self._table.mark(self._broker.clock.wall_ms())

    def figures(self) -> TimerFigures:
        """For request 28."""
        wall_ms = self._broker.clock.wall_ms()
        behind_ms = wall_ms - self.delivered_ms if self.delivered_ms else 0
        high = self._broker.store.reader.max_offset(TIMER_TOPIC, TIMER_QUEUE)
        unread = max(0, high - self._table.position) if self.delivered_ms else 0
        waiting = dict(self._table.waiting)
        return TimerFigures(behind_ms // 1000, unread, len(self._table), waiting)

    def keep(self) -> None:
        """The role ends in order: the mark of this moment is worth keeping.

        One that ends before its table is made leaves the mark as it is: that of an empty table, or of
        an earlier reign, would have all timers since then come again.
        """
        if self._has_place:
            self._has_place = False
            self._file.mark = self._table.mark(self._broker.clock.wall_ms())

    def _pause_ms(self) -> int:
        left_ms = self._table.next_ms - self._broker.clock.wall_ms()
        # One that is due is not taken before the queues have what is in the log.
        least_ms = READABLE_MS if self._progress.waits_for_queues else 1
        return max(least_ms, min(LOOK_MS, left_ms))

    def _first(self, mark: TimerMark) -> int:
        """Where to begin: a timer is never stored longer before its time than the limit."""
        reader = self._broker.store.reader
        low = reader.min_offset(TIMER_TOPIC, TIMER_QUEUE)
        high = reader.max_offset(TIMER_TOPIC, TIMER_QUEUE)
        first = mark.first
        if not first and mark.read_ms:
            early_ms = mark.read_ms - self._delay_max_ms
            first = reader.offset_by_time(TIMER_TOPIC, TIMER_QUEUE, early_ms)
        return min(max(first, low), high)

    def _read(self) -> bool:
        """Read stored timers; whether there may be more."""
        reader, table = self._broker.store.reader, self._table
        high = reader.max_offset(TIMER_TOPIC, TIMER_QUEUE)
        for _ in range(LOOKS_A_TURN):
            at = table.position
            if at >= high:
                return False
            unit = reader.unit(TIMER_TOPIC, TIMER_QUEUE, at)
            try:
                record = None if unit is None else self._walk.look(unit.physical_offset)
            except NotInMemory:
                self._walk.ahead(places(reader, TIMER_TOPIC, TIMER_QUEUE, at))
                return True
            if record is None:
                table.skip(max(at + 1, reader.min_offset(TIMER_TOPIC, TIMER_QUEUE)))
                continue
            self._add(at, record)
        return True

    def _add(self, at: int, record: Record) -> None:
        out_ms = timer_out_ms(record.properties)
        if out_ms is None:
            self._skipped(record.physical_offset, "it does not say when it is due")
            self._table.skip(at + 1)
            return
        self._broker.statistics.timers_in += 1
        recalls = recalled_key(record)
        found = None if recalls else real_place(record.properties)
        topic = "" if found is None else sys.intern(found[0])
        self._table.add(Due(out_ms, at, record.physical_offset, topic), recalls)

    def _deliver(self, stretch: Stretch) -> tuple[int, bool]:
        """Deliver what was taken; where the last record ends, 0 for none, and whether there is more."""
        if not self._writer.is_open:
            return 0, False
        end, taken = 0, self._taken
        while taken:
            try:
                record = self._walk.look(taken[0].physical_offset)
            except NotInMemory:
                self._walk.ahead(timer.physical_offset for timer in taken)
                return end, False
            # One that has expired takes its time in this turn, too.
            if not stretch.takes(0 if record is None else record.size):
                return end, True
            end = self._write(taken.popleft(), record) or end
            self._broker.statistics.timers_out += 1
        return end, False

    def _write(self, timer: Due, record: Record | None) -> int:
        if record is None:
            self._log.log("error", "timer_expired", offset=timer.physical_offset)
            return 0
        if props.find(record.properties, DELETE_KEY) is not None:
            return 0
        key = timer_key(record)
        if key is not None and self._table.is_recalled(key, timer.due_ms):
            return 0
        message = due_message(record)
        try:
            if message is not None:
                return self._deliveries.append(message).end
            reason = "it does not say where it belongs"
        except MessageIllegal as error:
            reason = str(error)
        self._skipped(timer.physical_offset, reason)
        return 0

    def _skipped(self, offset: int, reason: str) -> None:
        self._broker.statistics.records_skipped += 1
        self._log.log("error", "timer_illegal", offset=offset, reason=reason)
