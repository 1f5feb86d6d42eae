"""Reading a queue for a consumer: whole records as slices of the log, filtered by their tags' hash.

The filter looks at the queue's units only, so that what nobody wants is never touched in the log.

Source: DefaultMessageStore.getMessage of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.consume_queues import ConsumeQueues
from rmqha.store.aio.queue_files import QueueFiles
from rmqha.store.aio.reader import (
    FOUND,
    NO_MATCHED_LOGIC_QUEUE,
    NO_MESSAGE_IN_QUEUE,
    OFFSET_OVERFLOW_BADLY,
    OFFSET_OVERFLOW_ONE,
    OFFSET_TOO_SMALL,
)
from rmqha.store.consume_queue import FILLER_SIZE
from rmqha.store.transfer import Transfer

READS_MAX = 2
"""Of places far behind the log's end, at a time."""

NEVER = 1 << 63
COLD_BYTES = 64 << 20
"""So near to the log's end nothing has left the memory yet."""

NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"


class Pulled(NamedTuple):
    """What a read found.

    Attributes:
        status: a word of Java's GetMessageStatus.
        parts: slices of the log, each one or more whole records one behind the other.
        messages, size: how many, and their bytes.
        next_offset: where to read on.
        min_offset, max_offset: of the queue.
        lag_bytes: from the last record that was found to the log's end; 0 without one.
        runs: where the parts begin and end in the log.
    """

    status: str
    parts: list[memoryview]
    messages: int
    size: int
    next_offset: int
    min_offset: int
    max_offset: int
    lag_bytes: int = 0
    runs: Sequence[Sequence[int]] = ()


class Pulling:
    """Read access for consumers.

    Args:
        limit: nothing at or after this physical offset is shown.
    """

    def __init__(self, log: CommitLog, queues: ConsumeQueues, limit: Callable[[], int]) -> None:
        self._log = log
        self._queues = queues
        self._limit = limit
        self._reads = asyncio.Semaphore(READS_MAX)

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        hashes: frozenset[int] | None,
        *,
        count_max: int,
        bytes_max: int,
        scan_max: int,
        transfer: Transfer,
        matches: Callable[[memoryview], bool] | None = None,
    ) -> Pulled:
        """Messages of a queue from ``offset`` on; at least one if one is wanted.

        Args:
            hashes: of the wanted tags; None takes every message.
            count_max, bytes_max: what the asker takes.
            transfer: what this store gives at a time.
            matches: asked of each record that the tags let through; None takes them all.
            scan_max: units that are looked at, however few are wanted.
        """
        key = (topic.encode(), queue_id)
        queue = self._queues.queues.get(key)
        low = high = 0
        if queue is not None:
            low, high = queue.min_offset(self._log.min_offset), queue.max_offset
        if queue is not None and low <= offset < high:
            near = transfer.near_bytes, *_least(count_max, bytes_max, transfer[1:3])
            bounds = Transfer(*near, *_least(count_max, bytes_max, transfer[3:]))
            return self._collect(queue, offset, hashes, bounds, scan_max, matches)
        # A replica that has just become master has not dispatched all of its log yet.
        end = max(high, self._queues.next_offsets.get(key, 0))
        if offset < low:
            return Pulled(OFFSET_TOO_SMALL, [], 0, 0, low, low, high)
        if offset <= end:
            status = OFFSET_OVERFLOW_ONE if high else NO_MESSAGE_IN_QUEUE
            return Pulled(status, [], 0, 0, offset, low, high)
        if queue is None or not high:
            status = NO_MATCHED_LOGIC_QUEUE if queue is None else NO_MESSAGE_IN_QUEUE
            return Pulled(status, [], 0, 0, 0, 0, 0)
        return Pulled(OFFSET_OVERFLOW_BADLY, [], 0, 0, high, low, high)

    def is_cached(self, found: Pulled) -> bool:
        """Whether what was found can be sent without waiting for the disk."""
        return all(self._log.is_cached(begin, end) for begin, end in found.runs)

    async def fetch(self, found: Pulled) -> bool:
        """Bring what was found into memory if it is not there; whether anybody had to wait.

        A few reads at a time: others need the threads for their syncs.

        Raises:
            DiskFailed: it cannot be read.
        """
        waited = False
        for begin, end in found.runs:
            if not self._log.is_cached(begin, end):
                waited = True
                async with self._reads:
                    await self._log.fetch(begin, end)
        return waited

    def place(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Where in the log the message at a queue offset is; None when it is not there."""
        queue = self._queues.queues.get((topic.encode(), queue_id))
        low = self._log.min_offset
        if queue is None or not queue.min_offset(low) <= offset < queue.max_offset:
            return None
        for physical, size, _, _ in _units(queue, offset, low):
            return physical if size != FILLER_SIZE else None
        return None

    def _collect(
        self,
        queue: QueueFiles,
        offset: int,
        hashes: frozenset[int] | None,
        bounds: Transfer,
        scan_max: int,
        matches: Callable[[memoryview], bool] | None,
    ) -> Pulled:
        low, high = queue.min_offset(self._log.min_offset), queue.max_offset
        limit, start = self._limit(), offset
        near_from = self._log.max_offset - bounds.near_bytes
        count_max, bytes_max = bounds.far_count, bounds.far_size
        runs: list[list[int]] = []
        count = size_sum = last_end = 0
        units = islice(_units(queue, offset, self._log.min_offset), scan_max)
        for physical, size, code, following in units:
            if physical >= near_from:
                # Whatever follows in a queue is further on in the log.
                near_from, count_max, bytes_max = NEVER, bounds.near_count, bounds.near_size
            if count >= count_max:
                break
            if size != FILLER_SIZE:
                if physical + size > limit:
                    break
                if (hashes is None or code in hashes) and (
                    matches is None or matches(self._slice(physical, physical + size))
                ):
                    if count and size_sum + size > bytes_max:
                        break
                    if runs and runs[-1][1] == physical and self._same_file(runs[-1][0], physical):
                        runs[-1][1] += size
                    else:
                        runs.append([physical, physical + size])
                    count, size_sum, last_end = count + 1, size_sum + size, physical + size
            offset = following
        parts = [self._slice(begin, end) for begin, end in runs]
        if count:
            lag = max(0, self._log.max_offset - last_end)
            return Pulled(FOUND, parts, count, size_sum, offset, low, high, lag, runs)
        status = NO_MATCHED_MESSAGE if offset > start else OFFSET_OVERFLOW_ONE
        return Pulled(status, parts, 0, 0, offset, low, high)

    def _same_file(self, one: int, other: int) -> bool:
        size = self._log.file_size
        return one // size == other // size

    def _slice(self, begin: int, end: int) -> memoryview:
        buffer, start = self._log.file_of(begin)
        return buffer[begin - start : end - start]


def _least(count_max: int, bytes_max: int, given: tuple[int, ...]) -> tuple[int, int]:
    return min(count_max, given[0]), min(bytes_max, given[1])


def _units(queue: QueueFiles, offset: int, log_min: int) -> Iterator[tuple[int, int, int, int]]:
    """Physical offset, size and tags code of each unit, and the queue offset after it."""
    if not queue.batch:
        yield from queue.coded_places(offset)
        return
    for index in range(queue.batch_index(offset, log_min), queue.count_end):
        unit = queue.batch_unit(index)
        yield unit.physical_offset, unit.size, unit.tags_code, unit.base_offset + unit.batch_size
