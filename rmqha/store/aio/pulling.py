"""Reading a queue for a consumer: whole records as slices of the log, filtered by their tags' hash.

The filter looks at the queue's units only, so that what nobody wants is never touched in the log; but
for units of a Java broker that keeps the hashes elsewhere.

Source: DefaultMessageStore.getMessage of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from rmqha.store.aio.cold_reads import ColdReads
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
from rmqha.store.consume_queue import EXT_ADDRESSES_END, FILLER_SIZE
from rmqha.store.transfer import SENT_BYTES_MAX, Transfer
from rmqha.store.whole import pass_whole

Placed = tuple[int, int, int, int]
"""Physical offset, size and tags code of a unit, and the queue offset after it."""

NEVER = 1 << 63
FETCHES_MAX = 32
"""For one pull or pop; then its consumer is told how far nothing was for it, and asks again."""

FETCH_BYTES = 1 << 20
"""Of records that a filter wants to look at, fetched at a time."""

LOOKS_MAX = 1000
"""Records that a filter looks at in one go: some milliseconds."""

NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
MESSAGE_DAMAGED = "MESSAGE_DAMAGED"
"""The next message is not what was written: nothing is shown from there on. No word of Java's."""


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
        starts: for each message, where in its queue to read on in order to get it.
        damaged: where the message behind them stands in the log that is not whole; -1 for none.
        missing: what the filter would have had to wait for, which ended this read before it had
            found anything: fetch it, and go on at ``next_offset``.
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
    missing: Sequence[Sequence[int]] = ()
    starts: Sequence[int] = ()
    damaged: int = -1


class Pulling:
    """Read access for consumers.

    Args:
        limit: nothing at or after this physical offset is shown.
    """

    def __init__(
        self, log: CommitLog, queues: ConsumeQueues, limit: Callable[[], int], cold: ColdReads
    ) -> None:
        self._log = log
        self._queues = queues
        self._limit = limit
        self._cold = cold

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
        fetched_to: int = 0,
    ) -> Pulled:
        """Messages of a queue from ``offset`` on; at least one if one is wanted.

        Args:
            hashes: of the wanted tags; None takes every message.
            count_max, bytes_max: what the asker takes.
            transfer: what this store gives at a time.
            matches: asked of each record that the tags let through; None takes them all.
            scan_max: units that are looked at, however few are wanted.
            fetched_to: what ``matches`` is asked of before this place in the log was just fetched.
        """
        key = (topic.encode(), queue_id)
        queue = self._queues.queues.get(key)
        low = high = 0
        if queue is not None:
            low, high = queue.min_offset(self._log.min_offset), queue.max_offset
        if queue is not None and low <= offset < high:
            near = transfer.near_bytes, *_least(count_max, bytes_max, transfer[1:3])
            bounds = Transfer(*near, *_least(count_max, bytes_max, transfer[3:]))
            return self._collect(queue, offset, hashes, bounds, scan_max, matches, fetched_to)
        # A replica that has just become master has not dispatched all of its log yet.
        end = max(high, self._queues.next_offsets.get(key, 0))
        if offset < low:
            return Pulled(OFFSET_TOO_SMALL, [], 0, 0, low, low, high)
        if offset <= end:
            status = OFFSET_OVERFLOW_ONE if end else NO_MESSAGE_IN_QUEUE
            return Pulled(status, [], 0, 0, offset, low, high)
        if queue is None or not high:
            status = NO_MATCHED_LOGIC_QUEUE if queue is None else NO_MESSAGE_IN_QUEUE
            return Pulled(status, [], 0, 0, 0, 0, 0)
        return Pulled(OFFSET_OVERFLOW_BADLY, [], 0, 0, high, low, high)

    def is_cold(self, found: Pulled) -> bool:
        """Whether who sends it, or looks on, would have to wait for the disk."""
        runs = found.runs
        if not runs:
            return bool(found.missing)
        # The first one is the furthest behind.
        return runs[0][0] < self._cold.far_to and any(self._cold.is_cold(*run) for run in runs)

    async def fetch(self, found: Pulled) -> bool:
        """Bring what was found, or has to be looked at, into memory; whether it was not there.

        Raises:
            DiskFailed: it cannot be read.
        """
        return await self._cold.fetch(found.missing or found.runs)

    def whole(self, found: Pulled) -> Pulled:
        """What of it is whole: it ends before the first message that is not.

        To be asked once it is in memory, and before anybody is shown it. A consumer at the end of the
        log gets what was never read from a disk: to check it would cost as much as all else of a pull.
        """
        cold = self._cold
        if not cold.mending.damaged and all(cold.is_own(begin) for begin, _ in found.runs):
            return found
        messages = size = 0
        for number, (begin, end) in enumerate(found.runs):
            buffer, start = self._log.file_of(begin)
            whole = pass_whole(buffer, begin - start, end - start, start)
            messages += whole.records
            at = start + whole.position
            size += at - begin
            if whole.reason:
                self._cold.mending.met(at, whole.reason)
                return self._until(found, number, at, messages, size)
        return found

    def _until(self, found: Pulled, number: int, at: int, messages: int, size: int) -> Pulled:
        """The same without what stands at ``at`` in the run of a number, and behind it."""
        runs = [*found.runs[:number], [found.runs[number][0], at]]
        if runs[-1][0] == at:
            del runs[-1]
        parts = self._slices(runs)
        lag = max(0, self._log.max_offset - runs[-1][1]) if runs else 0
        return found._replace(
            status=FOUND if messages else MESSAGE_DAMAGED, parts=parts, messages=messages,
            size=size, next_offset=found.starts[messages], lag_bytes=lag, runs=runs,
            starts=found.starts[:messages], damaged=at,
        )  # fmt: skip

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
        fetched_to: int,
        *,
        looks: bool = False,
    ) -> Pulled:
        """Those of a queue that the log shows; with ``looks`` units may be without a hash."""
        asked = queue, offset, hashes, bounds, scan_max, matches, fetched_to
        low, high = queue.min_offset(self._log.min_offset), queue.max_offset
        limit, start = self._limit(), offset
        near_from = self._log.max_offset - bounds.near_bytes
        count_max, bytes_max = bounds.far_count, bounds.far_size
        runs: list[list[int]] = []
        starts: list[int] = []
        count = size_sum = last_end = 0
        missing: list[list[int]] = []
        units: Iterator[Placed] = islice(_units(queue, offset, self._log.min_offset), scan_max)
        # Who looks at records leaves nothing to filter.
        looks = looks or matches is not None
        units = (
            self._matching(units, hashes, matches, limit, fetched_to, missing) if looks else units
        )
        hashes = None if looks else hashes
        for physical, size, code, following in units:
            if physical >= near_from:
                # Whatever follows in a queue is further on in the log.
                near_from, count_max, bytes_max = NEVER, bounds.near_count, bounds.near_size
            if count >= count_max:
                break
            if size != FILLER_SIZE:
                if physical + size > limit:
                    break
                if hashes is not None and code not in hashes:
                    if code < EXT_ADDRESSES_END:
                        return self._collect(*asked, looks=True)
                elif size <= SENT_BYTES_MAX or self._cold.mending.oversized(physical, size):
                    if count and size_sum + size > bytes_max:
                        break
                    self._join(runs, physical, size)
                    starts.append(offset)
                    count, size_sum, last_end = count + 1, size_sum + size, physical + size
            offset = following
        passed = offset > start or missing
        status = FOUND if count else NO_MATCHED_MESSAGE if passed else OFFSET_OVERFLOW_ONE
        lag = max(0, self._log.max_offset - last_end) if count else 0
        return Pulled(
            status, self._slices(runs), count, size_sum, offset, low, high, lag, runs,
            () if count else missing, starts,
        )  # fmt: skip

    def _matching(
        self,
        units: Iterator[Placed],
        hashes: frozenset[int] | None,
        matches: Callable[[memoryview], bool] | None,
        limit: int,
        fetched_to: int,
        missing: list[list[int]],
    ) -> Iterator[Placed]:
        """Units, as fillers where their records are not wanted, up to one that is in no memory."""
        # Records in between may have left the memory.
        far_to, looks = self._cold.far_to, 0
        for unit in units:
            physical, size, code, following = unit
            is_hash = code >= EXT_ADDRESSES_END
            if size == FILLER_SIZE or physical + size > limit:
                yield unit
            elif is_hash and hashes is not None and code not in hashes:
                yield physical, FILLER_SIZE, code, following
            elif is_hash and matches is None:
                yield unit
            elif fetched_to <= physical < far_to and self._cold.is_cold(physical, physical + size):
                self._miss(missing, unit, units, hashes)
                return
            else:
                wanted = self._wants(physical, size, None if is_hash else hashes, matches)
                yield unit if wanted else (physical, FILLER_SIZE, code, following)
                looks += 1
                if looks == LOOKS_MAX:
                    return

    def _wants(
        self,
        physical: int,
        size: int,
        hashes: frozenset[int] | None,
        matches: Callable[[memoryview], bool] | None,
    ) -> bool:
        """Whether a record is wanted; one that is damaged is, for nobody knows what it was."""
        if hashes is not None:
            buffer, head = self._log.check(physical)
            if head.size > 0 and self._queues.code_of(head, buffer) not in hashes:
                return False
        return matches is None or matches(self._slice(physical, physical + size))

    def _miss(
        self,
        runs: list[list[int]],
        first: Placed,
        units: Iterator[Placed],
        hashes: frozenset[int] | None,
    ) -> None:
        """Add where the records are that a filter looks at next, some of them."""
        runs.append([first[0], first[0] + first[1]])
        left = FETCH_BYTES
        for physical, size, code, _ in units:
            is_other = hashes is not None and code >= EXT_ADDRESSES_END and code not in hashes
            if size == FILLER_SIZE or is_other:
                continue
            left -= size
            if left < 0 or physical >= self._cold.far_to:
                break
            runs.append([physical, physical + size])

    def _join(self, runs: list[list[int]], physical: int, size: int) -> None:
        """Add a record to the runs: to the last one, if it follows in the same file."""
        last, file_size = runs[-1] if runs else (-1, -1), self._log.file_size
        if last[1] == physical and last[0] // file_size == physical // file_size:
            runs[-1][1] += size
        else:
            runs.append([physical, physical + size])

    def _slices(self, runs: Sequence[Sequence[int]]) -> list[memoryview]:
        return [self._slice(begin, end) for begin, end in runs]

    def _slice(self, begin: int, end: int) -> memoryview:
        buffer, start = self._log.file_of(begin)
        return buffer[begin - start : end - start]


def _least(count_max: int, bytes_max: int, given: tuple[int, ...]) -> tuple[int, int]:
    return min(count_max, given[0]), min(bytes_max, given[1])


def _units(queue: QueueFiles, offset: int, log_min: int) -> Iterator[Placed]:
    if not queue.batch:
        yield from queue.coded_places(offset)
        return
    for index in range(queue.batch_index(offset, log_min), queue.count_end):
        unit = queue.batch_unit(index)
        yield unit.physical_offset, unit.size, unit.tags_code, unit.base_offset + unit.batch_size
