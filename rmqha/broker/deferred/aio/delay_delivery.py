"""The delivery service of delayed messages, and the file that remembers how far it is.

It runs while this broker is a serving master. Units of SCHEDULE_TOPIC_XXXX say when their messages
are due; they exist for confirmed messages only, so nothing beyond the confirm offset is delivered.

Source: ScheduleMessageService of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from rmqha.base.errors import MessageIllegal
from rmqha.broker.common.aio.config_file import ConfigFile, FileTroubles, content_of
from rmqha.broker.common.aio.writer import Writer
from rmqha.broker.deferred.aio.deliveries import Deliveries
from rmqha.broker.deferred.delay_offsets import DelayOffsets
from rmqha.broker.deferred.delays import SCHEDULE_TOPIC, due_message, due_ms
from rmqha.broker.deferred.logical_queues import Elsewhere
from rmqha.broker.groups.aio.ports import Broker
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Disk
from rmqha.store.aio.cold_reads import NotInMemory
from rmqha.store.aio.record_walk import RecordWalk
from rmqha.store.aio.room import Stretch
from rmqha.store.record import Message, Record

LOOK_MS = 100
"""Between two looks at queues whose next message is not due yet; Java's DELAY_FOR_A_WHILE."""

AWAY_MAX = 32
"""Messages on their way to other broker sets: they are held in memory."""


class DelayOffsetFile:
    """``config/delayOffset.json``.

    Attributes:
        offsets: what it says; a slave's are those of its master.
        file: of the offsets; whoever changes them calls its ``changed``.
    """

    def __init__(
        self, disk: Disk, clock: Clock, path: str, troubles: FileTroubles, *, period_ms: int,
        after: Callable[[], Awaitable[object]],
    ) -> None:  # fmt: skip
        self.offsets = DelayOffsets()
        self.file = ConfigFile(
            disk,
            clock,
            path,
            content_of(lambda: self.offsets.members()),
            troubles,
            period_ms=period_ms,
            after=after,
        )

    async def load(self) -> None:
        """Read the file; raises as ``ConfigFile.read``."""
        await self.file.read(self._take)

    def _take(self, value: dict[str, Any]) -> None:
        self.offsets = DelayOffsets.of(value)

    def copy(self, offsets: DelayOffsets) -> None:
        """Take what the master says (45)."""
        if offsets.kept != self.offsets.kept:
            self.file.changed()
        self.offsets = offsets


class DelayDelivery:
    """Delivers what is due, level by level."""

    def __init__(
        self, broker: Broker, writer: Writer, deliveries: Deliveries, file: DelayOffsetFile,
        log: Logger,
    ) -> None:  # fmt: skip
        self._broker = broker
        self._writer = writer
        self._deliveries = deliveries
        self._file = file
        self._log = log
        self._away: list[tuple[Message, Elsewhere]] = []
        self._walk = RecordWalk(broker.store)
        self._levels_ms = broker.config.store.message_delay_levels_ms

    async def run(self) -> None:
        """Deliver until cancelled.

        Raises:
            DiskFailed: the store has stopped.
        """
        reader, offsets = self._broker.store.reader, self._file.offsets
        self._away, self._walk = [], RecordWalk(self._broker.store)
        for level in range(1, len(self._levels_ms) + 1):
            low = reader.min_offset(SCHEDULE_TOPIC, level - 1)
            offsets.begin(level, low, reader.max_offset(SCHEDULE_TOPIC, level - 1))
        while True:
            end, more = await self._writer.batches(self._deliver)
            if self._away:
                away, self._away = self._away, []
                end = max(end, await self._deliveries.send_on(away))
                more = True
            while end and not await self._writer.settle(end):
                await self._broker.clock.sleep(LOOK_MS)
            clock = self._broker.clock
            version = self._broker.topics.table.version.state_version
            if offsets.keep(clock.wall_ms(), version):
                self._file.file.changed()
            waited = await self._walk.fetch()
            await clock.sleep(0 if more or waited else LOOK_MS)

    def _deliver(self, stretch: Stretch) -> tuple[int, bool]:
        """Deliver what is due now, as far as there is room.

        Returns:
            Where the last record ends that was written, 0 for none; and whether more can be.
        """
        end = 0
        if not self._writer.is_open:
            return 0, False
        for level, delay_ms in enumerate(self._levels_ms, 1):
            while len(self._away) < AWAY_MAX:
                try:
                    record = self._due(level, delay_ms)
                except NotInMemory:
                    self._walk.ahead(self._next_due(level, delay_ms))
                    break
                if record is None:
                    break
                if not stretch.takes(record.size):
                    return end, True
                end = self._write(record) or end
                self._file.offsets.passed(level, record.queue_offset + 1)
        return end, False

    def _due(self, level: int, delay_ms: int) -> Record | None:
        """The next message of a level, if its time has come; raises NotInMemory."""
        reader, offsets = self._broker.store.reader, self._file.offsets
        queue_id = level - 1
        while True:
            at = offsets.next(level)
            low = reader.min_offset(SCHEDULE_TOPIC, queue_id)
            if at < low:
                # Its records have expired; nobody can deliver them any more.
                self._log.log(
                    "error", "delayed_messages_expired", delay_level=level, count=low - at
                )
                offsets.passed(level, low)
                continue
            if at >= reader.max_offset(SCHEDULE_TOPIC, queue_id):
                return None
            unit = reader.unit(SCHEDULE_TOPIC, queue_id, at)
            wall_ms = self._broker.clock.wall_ms()
            if unit is not None and due_ms(unit.tags_code, wall_ms, delay_ms) > wall_ms:
                return None
            record = None if unit is None else self._walk.look(unit.physical_offset)
            if record is not None and record.queue_offset == at:
                return record
            offsets.passed(level, at + 1)

    def _next_due(self, level: int, delay_ms: int) -> Iterator[int]:
        """Where messages of a level are whose time has come."""
        reader, wall_ms = self._broker.store.reader, self._broker.clock.wall_ms()
        high = reader.max_offset(SCHEDULE_TOPIC, level - 1)
        for at in range(self._file.offsets.next(level), high):
            unit = reader.unit(SCHEDULE_TOPIC, level - 1, at)
            if unit is not None and due_ms(unit.tags_code, wall_ms, delay_ms) > wall_ms:
                break
            if unit is not None:
                yield unit.physical_offset

    def _write(self, record: Record) -> int:
        """Write a message that is due; 0 for one that cannot be, or is for another set."""
        message = due_message(record)
        reason = "it does not say where it belongs"
        try:
            if message is not None:
                place = self._deliveries.elsewhere(message)
                if place is not None:
                    self._away.append((message, place))
                    return 0
                return self._deliveries.append(message).end
        except MessageIllegal as error:
            reason = str(error)
        self._broker.statistics.records_skipped += 1
        self._log.log(
            "error", "delayed_message_illegal", offset=record.physical_offset, error=reason
        )
        return 0
