"""One pair of topics in which transactions wait, as a master reads it: half messages, and what ends them.

Brokers of 5.5 with ``transRocksDBEnable`` and without ``transWriteOriginTransHalfEnable`` keep theirs in a
pair of their own. A master of ours serves what is there and writes nothing new to it but ends.

Source: TransactionalMessageBridge and TransMessageRocksDBStore, RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from rmqha.broker.deferred.open_transactions import Open, OpenTransactions
from rmqha.broker.deferred.transactions import (
    GROUP,
    QUEUE,
    HalfPair,
    check_times,
    ended_offsets,
    ended_place,
    first_offset,
    immunity_ms,
    newer_op_message,
    op_message,
)
from rmqha.broker.groups.aio.ports import Broker
from rmqha.runtime.logs import Logger
from rmqha.store.aio.cold_reads import NotInMemory
from rmqha.store.aio.record_walk import RecordWalk, places
from rmqha.store.record import Message, Record

HOUR_MS = 3_600_000


class HalfTopics:
    """A pair of topics.

    Attributes:
        pair: their names.
        open: half messages without an end, as far as they were read.
        keep_ms: for how long one is asked about at most.
        round_to: those before it are asked about in this round; None between two rounds.
    """

    renews = True
    """Who asks about one stores it anew, with the question counted."""

    def __init__(self, broker: Broker, pair: HalfPair, log: Logger) -> None:
        self.pair = pair
        self._broker = broker
        self._log = log
        self._open_max = broker.config.integer("transactionsOpenMax")
        self.keep_ms = broker.config.store.file_reserved_time * HOUR_MS
        self.begin()

    def begin(self) -> None:
        """A reign begins."""
        half, op = (offset or 0 for offset in self._offsets())
        self.open = OpenTransactions(half, op, self._open_max)
        self.round_to: int | None = None
        self._walk = RecordWalk(self._broker.store)

    def _offsets(self) -> list[int | None]:
        table = self._broker.offsets.table
        return [table.query(GROUP, topic, QUEUE) for topic in self.pair]

    def keep(self, kept: tuple[int, int], wall_ms: int) -> None:
        """Remember how far all have ended."""
        for topic, offset in zip(self.pair, kept, strict=True):
            self._broker.offsets.table.commit(GROUP, topic, QUEUE, offset, wall_ms)
        self._broker.offsets.changed()

    @property
    def is_kept(self) -> bool:
        """Whether how far all have ended is remembered."""
        return tuple(self._offsets()) == self.open.kept()

    # -- ends --------------------------------------------------------------------------------------

    def first_of(self, half: Record) -> int:
        """Where it stood before it was renewed."""
        return first_offset(half)

    def ops(
        self, half_offsets: list[int], half: Record | None, wall_ms: int, host: bytes, key: str
    ) -> list[Message]:
        """What says in the log that these half messages have ended.

        Args:
            half: one of them, None when the log has it no more.
        """
        return [op_message(half_offsets, wall_ms, host, key)]

    def _ended(self, op: Record) -> list[int]:
        """Queue offsets of the half messages that it ends.

        Raises:
            NotInMemory: to know them would have to wait.
        """
        found = ended_offsets(op)
        if not found:
            self.skipped("op_message_illegal", op, "it ends nothing")
        return found

    def skipped(self, event: str, record: Record, reason: str) -> None:
        """One is set aside."""
        self._broker.statistics.records_skipped += 1
        self._log.log("error", event, offset=record.physical_offset, reason=reason)

    # -- reading -----------------------------------------------------------------------------------

    def read(self, walk: RecordWalk, left: int) -> int:
        """Read on as far as it is in memory. Op messages first: they need no room.

        Args:
            left: records to look at.

        Returns:
            How many of them are left; 0 when there may be more.

        Raises:
            NotInMemory: what comes next would have to wait.
        """
        self._walk, reader = walk, self._broker.store.reader
        half_topic, op_topic = self.pair
        while left and self.open.op_next < reader.max_offset(op_topic, QUEUE):
            at, left = self.open.op_next, left - 1
            record = self._record(op_topic, at)
            if record is None:
                self.open.skip_ops(max(at + 1, reader.min_offset(op_topic, QUEUE)))
            else:
                self.open.op(at, self._ended(record))
        while left and self.open.half_next < reader.max_offset(half_topic, QUEUE):
            if self.open.is_full:
                break
            at, left = self.open.half_next, left - 1
            record = self._record(half_topic, at)
            if record is None:
                self.open.skip_halves(max(at + 1, reader.min_offset(half_topic, QUEUE)))
            else:
                self.open.half(self._opened(at, record))
        return left

    def _record(self, topic: str, at: int) -> Record | None:
        reader = self._broker.store.reader
        unit = reader.unit(topic, QUEUE, at)
        try:
            record = None if unit is None else self._walk.look(unit.physical_offset)
        except NotInMemory:
            self._walk.ahead(places(reader, topic, QUEUE, at))
            raise
        return record if record is not None and record.queue_offset == at else None

    def _opened(self, at: int, half: Record) -> Open:
        ask_ms = half.store_timestamp
        if not check_times(half.properties):
            # One that the log has lost before is in the way of others for no longer than that.
            timeout_ms = self._broker.config.integer("transactionTimeOut")
            ask_ms += min(immunity_ms(half.properties, timeout_ms), self.keep_ms)
        return Open(at, half.physical_offset, ask_ms, self.first_of(half))


class NewerHalfTopics(HalfTopics):
    """Those of 5.5's RocksDB, which finds a half message by its place in the log.

    It counts its questions beside the log, so a half message is not stored anew, and each reign counts
    from 0.
    """

    renews = False

    def first_of(self, half: Record) -> int:
        """It is never renewed."""
        return half.queue_offset

    def ops(
        self, half_offsets: list[int], half: Record | None, wall_ms: int, host: bytes, key: str
    ) -> list[Message]:
        """One for each, which are one here; none that nobody could read a half message to."""
        return [] if half is None else [newer_op_message(half, wall_ms, host, key)]

    def _ended(self, op: Record) -> list[int]:
        place = ended_place(op)
        if place is None:
            self.skipped("op_message_illegal", op, "it ends nothing")
            return []
        try:
            half = self._walk.look(place)
        except NotInMemory:
            self._walk.ahead([place])
            raise
        # One that has expired is open for nobody.
        return [half.queue_offset] if half is not None and half.topic == self.pair.half else []

    @property
    def is_kept(self) -> bool:
        """Whether how far all have ended is remembered; most brokers have nothing here."""
        return tuple(offset or 0 for offset in self._offsets()) == self.open.kept()
