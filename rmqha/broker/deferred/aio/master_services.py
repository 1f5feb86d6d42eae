"""What a master does besides answering: delays, timers, transactions. All of it ends with the role.

The files that these services keep belong to slaves, too: a slave has those of its master.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from rmqha.base.errors import DiskFailed
from rmqha.broker.common.aio.writer import Writer
from rmqha.broker.common.settings import BrokerConfig
from rmqha.broker.common.unique_ids import UniqueIds
from rmqha.broker.deferred.aio.delay_delivery import DelayDelivery, DelayOffsetFile
from rmqha.broker.deferred.aio.deliveries import Deliveries
from rmqha.broker.deferred.aio.timer_mark_file import TimerMarkFile
from rmqha.broker.deferred.aio.timer_service import TimerService
from rmqha.broker.deferred.aio.transaction_service import TransactionService
from rmqha.broker.deferred.delays import SCHEDULE_TOPIC, TIMER_QUEUE, TIMER_TOPIC, DelayRules
from rmqha.broker.deferred.timers import TimerFigures
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.naming.aio.other_sets import OtherSets
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Disk

HOUR_MS = 3_600_000


def delay_rules(config: BrokerConfig) -> DelayRules:
    """What the configuration says about delays.

    A timer may not be further ahead than the log reaches back, or its record would expire first.
    """
    kept_ms = config.store.file_reserved_time * HOUR_MS
    return DelayRules(
        levels_ms=config.store.message_delay_levels_ms,
        timers=config.boolean("timerWheelEnable"),
        precision_ms=config.integer("timerPrecisionMs"),
        delay_max_ms=min(config.integer("timerMaxDelaySec") * 1000, kept_ms),
    )


class MasterServices:
    """The services of one broker.

    Attributes:
        rules: about delays.
        writer: how the broker writes messages of its own.
        delay_offsets, timer_mark: files, kept by slaves as well.
        transactions: ends transactions, while it runs.
        timer_service: delivers timers, while it runs.
        since_ms: when they began to run; wall clock.
    """

    def __init__(
        self,
        broker: Broker,
        disk: Disk,
        sets: OtherSets,
        unique_ids: UniqueIds,
        log: Logger,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        config = broker.config
        path = config.store.path
        self._broker = broker
        self._log = log
        self._running = False
        self.since_ms = 0
        self._tasks = Tasks(log, on_failed)
        self.rules = delay_rules(config)
        self.writer = Writer(broker)
        self.delay_offsets = DelayOffsetFile(
            disk, broker.clock, path("config", "delayOffset.json"), broker.troubles,
            period_ms=config.integer("flushDelayOffsetInterval"), after=broker.store.flush_all,
        )  # fmt: skip
        self.timer_mark = TimerMarkFile(
            disk, broker.clock, path("config", "rmqhaTimers.json"), broker.troubles,
            after=broker.store.flush_all,
        )  # fmt: skip
        deliveries = Deliveries(broker, self.writer, sets, self.rules, log)
        self._delivery = DelayDelivery(broker, self.writer, deliveries, self.delay_offsets, log)
        self.timer_service = TimerService(broker, self.writer, deliveries, self.timer_mark, log)
        self._further: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = []
        self.transactions = TransactionService(
            broker, self.writer, deliveries, self.rules, unique_ids, log
        )

    def also(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something else where timers run, which it needs."""
        self._further.append((name, run))

    async def load(self) -> None:
        """Read the files.

        Raises:
            StoreCorrupted: a file and its backup cannot be read.
            DiskFailed: the disk cannot.
        """
        await self.delay_offsets.load()
        await self.timer_mark.load()

    @property
    def timers_stored(self) -> int:
        """Timers that the queue of timers has had, in this log."""
        return max(0, self._broker.store.reader.max_offset(TIMER_TOPIC, TIMER_QUEUE))

    @property
    def has_timers(self) -> bool:
        """Whether timers run here."""
        return self._running and self.rules.timers

    @property
    def timers(self) -> TimerFigures:
        """How far timers are; nothing waits where they do not run."""
        return self.timer_service.figures() if self._running else TimerFigures()

    @property
    def delays(self) -> dict[int, tuple[int, int]]:
        """How far each delay level is: the offset to deliver next, and its queue's end."""
        reader = self._broker.store.reader
        return {
            level: (offset, reader.max_offset(SCHEDULE_TOPIC, level - 1))
            for level, offset in sorted(self.delay_offsets.offsets.kept.items())
        }

    def start(self) -> None:
        """This broker serves as a master now; one that was elected again goes on."""
        if self._running:
            return
        self._running = True
        self.since_ms = self._broker.clock.wall_ms()
        self.transactions.begin()
        self._tasks.start(self._delivery.run(), name="delayed messages")
        self._tasks.start(self.transactions.run(), name="transactions")
        if self.rules.timers:
            self._tasks.start(self.timer_service.run(), name="timers")
            for name, run in self._further:
                self._tasks.start(run(), name=name)

    def stop(self) -> None:
        """This broker is no serving master any more: nothing is written from here on."""
        if not self._running:
            return
        self._running = False
        if self.rules.timers:
            self.timer_service.keep()
        self._tasks.cancel()

    async def keep_files(self) -> None:
        """Write the files after changes, for ever, whatever the role is."""
        await asyncio.gather(self.delay_offsets.file.run(), self.timer_mark.file.run())

    async def cut(self) -> None:
        """The log has lost its tail: what will stand in its place has not been delivered.

        By an election the queues may have grown again, and a position of the old tail would pass
        over new messages.
        """
        reader = self._broker.store.reader
        if self.delay_offsets.offsets.cut(
            lambda level: max(0, reader.max_offset(SCHEDULE_TOPIC, level - 1))
        ):
            self.delay_offsets.file.changed()
        end = max(0, reader.max_offset(TIMER_TOPIC, TIMER_QUEUE))
        self.timer_mark.mark = self.timer_mark.mark.cut(end)
        with contextlib.suppress(DiskFailed):  # told by the files, which are written again
            await self.save()

    async def save(self) -> None:
        """Write now what has changed; raises DiskFailed."""
        await self.delay_offsets.file.save()
        await self.timer_mark.file.save()

    async def close(self) -> None:
        """Stop, and keep what was reached."""
        self.stop()
        await self._tasks.close()
        try:
            await self.save()
        except DiskFailed as error:
            self._log.log("error", "delays_not_saved", reason=str(error))
