"""Reading messages: by queue offset, by physical offset, by time and by key. Nothing is copied.

Source: RocketMQ's protocol as observed; status words are Java's GetMessageStatus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rmqha.store.aio.cold_reads import ColdReads, NotInMemory, Run
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.consume_queues import ConsumeQueues
from rmqha.store.aio.index_files import IndexFiles
from rmqha.store.aio.queue_files import QueueFiles
from rmqha.store.consume_queue import EXT_ADDRESSES_END, FILLER_SIZE, Unit
from rmqha.store.record import Head, Record, decode

FOUND = "FOUND"
NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"

HINTS_FACTOR = 4
"""Hints that are looked at for each message that is wanted: hashes meet, and logs are cut."""


class GetResult(NamedTuple):
    """What a read of a queue found.

    Attributes:
        status: one of the words above.
        records: whole records as slices of the commit log.
        next_begin_offset: where to read on.
        min_offset, max_offset: of the queue.
    """

    status: str
    records: list[memoryview]
    next_begin_offset: int
    min_offset: int
    max_offset: int


class Reader:
    """Read access to a log and its queues.

    Args:
        limit: nothing at or after this physical offset is shown.
        cold: a look that is made through it ends where it would have to wait.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        indexes: IndexFiles,
        limit: Callable[[], int],
        cold: ColdReads,
    ) -> None:
        self._log = log
        self._queues = queues
        self._indexes = indexes
        self._limit = limit
        self._cold = cold

    def _queue(self, topic: str, queue_id: int) -> QueueFiles | None:
        return self._queues.queues.get((topic.encode(), queue_id))

    def has_topic(self, topic: str) -> bool:
        """Whether any queue of a topic is there."""
        name = topic.encode()
        return any(key[0] == name for key in self._queues.queues)

    def topics(self) -> list[str]:
        """The topics that have a queue, sorted."""
        return sorted({key[0].decode() for key in self._queues.queues})

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether a queue is there."""
        return self._queue(topic, queue_id) is not None

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first queue offset that can be read; 0 for an unknown queue."""
        queue = self._queue(topic, queue_id)
        return 0 if queue is None else queue.min_offset(self._log.min_offset)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset after the last message; 0 for an unknown queue."""
        queue = self._queue(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def get(
        self, topic: str, queue_id: int, offset: int, *, count_max: int, bytes_max: int
    ) -> GetResult:
        """Messages of a queue from ``offset`` on; at least one if there is one."""
        queue = self._queue(topic, queue_id)
        if queue is None:
            return GetResult(NO_MATCHED_LOGIC_QUEUE, [], 0, 0, 0)
        low, high = queue.min_offset(self._log.min_offset), queue.max_offset
        if high <= low:
            return GetResult(NO_MESSAGE_IN_QUEUE, [], high, low, high)
        if offset < low:
            return GetResult(OFFSET_TOO_SMALL, [], low, low, high)
        if offset >= high:
            status = OFFSET_OVERFLOW_ONE if offset == high else OFFSET_OVERFLOW_BADLY
            return GetResult(status, [], high, low, high)
        found, following = self._collect(queue, offset, count_max, bytes_max)
        return GetResult(FOUND if found else OFFSET_OVERFLOW_ONE, found, following, low, high)

    def _collect(
        self, queue: QueueFiles, offset: int, count_max: int, bytes_max: int
    ) -> tuple[list[memoryview], int]:
        """Slices of whole records, and the queue offset after the last."""
        found: list[memoryview] = []
        limit, left = self._limit(), bytes_max
        buffer, start, stop = memoryview(b""), 0, 0
        for physical, size, following in self._units(queue, offset):
            if len(found) >= count_max:
                break
            if size != FILLER_SIZE:
                left -= size
                if physical + size > limit or (found and left < 0):
                    break
                if physical < start or physical + size > stop:
                    buffer, start = self._log.file_of(physical)
                    stop = start + len(buffer)
                found.append(buffer[physical - start : physical - start + size])
            offset = following
        return found, offset

    def _units(self, queue: QueueFiles, offset: int) -> Iterator[tuple[int, int, int]]:
        """Physical offset and size of each unit, and the queue offset after it."""
        if not queue.batch:
            yield from queue.places(offset)
            return
        for index in range(queue.batch_index(offset, self._log.min_offset), queue.count_end):
            unit = queue.batch_unit(index)
            yield unit.physical_offset, unit.size, unit.base_offset + unit.batch_size

    def unit(self, topic: str, queue_id: int, offset: int) -> Unit | None:
        """The unit at an offset of a plain queue; None when there is none, or only a filler.

        Raises:
            NotInMemory: for who looks by ``ColdReads``, where only the record has its tags code.
        """
        queue = self._queue(topic, queue_id)
        if queue is None or queue.batch:
            return None
        if not queue.min_offset(self._log.min_offset) <= offset < queue.max_offset:
            return None
        unit = queue.unit(offset)
        if unit.tags_code < EXT_ADDRESSES_END:
            found = self._record(unit.physical_offset)
            if found is not None:
                buffer, head = found
                unit = unit._replace(tags_code=self._queues.code_of(head, buffer))
        return None if unit.size == FILLER_SIZE else unit

    def look(self, offset: int) -> Record | None:
        """The record at a physical offset, below the limit; None when there is no whole one.

        Raises:
            NotInMemory: it is not there, or was not tried to mend, for who looks by ``ColdReads``.
        """
        found = self._record(offset, check_crc=True)
        if found is not None:
            return decode(*found)
        if self._record(offset) is not None:
            self._cold.need_whole(self._log.check(offset, check_crc=True)[1])
        return None

    def _record(self, offset: int, *, check_crc: bool = False) -> tuple[memoryview, Head] | None:
        """Where a record is."""
        if offset < 0 or offset >= self._limit() or self._log.min_offset > offset:
            return None
        self._cold.need_record(offset)
        buffer, head = self._log.check(offset, check_crc=check_crc)
        if head.size <= 0 or offset + head.size > self._limit():
            return None
        return buffer, head

    def store_timestamp(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message at a queue offset was stored, ms; -1 when it is not there."""
        queue = self._queue(topic, queue_id)
        if queue is None or not self.min_offset(topic, queue_id) <= offset < queue.max_offset:
            return -1
        if queue.batch:
            index = queue.batch_index(offset, self._log.min_offset)
            return queue.batch_unit(index).store_timestamp
        # Its body is shown to nobody, and tables ask for many.
        found = self._record(queue.unit(offset).physical_offset)
        return -1 if found is None else found[1].store_timestamp

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The first queue offset stored at or after ``timestamp`` (ms); the end when none is."""
        queue = self._queue(topic, queue_id)
        if queue is None:
            return 0
        low, high = queue.min_offset(self._log.min_offset), queue.max_offset
        while low < high:
            middle = (low + high) // 2
            if self.store_timestamp(topic, queue_id, middle) < timestamp:
                low = middle + 1
            else:
                high = middle
        return low

    def query(
        self, topic: str, key: str, *, begin_ms: int, end_ms: int, limit: int
    ) -> list[Record]:
        """Messages of a topic by key, from the index files; newest first.

        Raises:
            DiskFailed: an index file cannot be read.
            NotInMemory: as :meth:`look`.
        """
        offsets = self._indexes.find(
            topic, key, begin_ms=begin_ms, end_ms=end_ms, limit=limit * HINTS_FACTOR
        )
        found: list[Record] = []
        missing: list[Run] = []
        damaged: list[int] = []
        for offset in offsets:
            try:
                record = self.look(offset)
            except NotInMemory as error:
                missing += error.runs
                damaged += error.damaged
                continue
            if record is not None and _has_key(record, topic, key):
                found.append(record)
        if missing:
            # All of them in one go.
            raise NotInMemory(missing, damaged=damaged)
        return [r for r in found if begin_ms <= r.store_timestamp <= end_ms][:limit]


class Looks:
    """Looks for the rows of a table: what is missing for any of them is missing together."""

    def __init__(self) -> None:
        self._missing: list[Run] = []

    def timestamp(self, reader: Reader, topic: str, queue_id: int, offset: int) -> int:
        """As ``Reader.store_timestamp``; 0 for an offset before the first, and for one that is
        missing."""
        if offset < 0:
            return 0
        try:
            return reader.store_timestamp(topic, queue_id, offset)
        except NotInMemory as error:
            self._missing += error.runs
            return 0

    def end(self) -> None:
        """The table is made.

        Raises:
            NotInMemory: it lacks something.
        """
        if self._missing:
            raise NotInMemory(self._missing)


def _has_key(record: Record, topic: str, key: str) -> bool:
    pairs = record.property_map()
    keys = [*pairs.get("KEYS", "").split(" "), pairs.get("UNIQ_KEY", "")]
    return record.topic == topic and key in keys
