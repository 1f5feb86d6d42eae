"""Recovery of the commit log, as pure functions over its files' bytes.

Where to begin, how far whole records go, whether what follows may be cut, and what becomes of the
confirm offset. The shell reads files, dispatches and cuts.

The rule for the place where whole records end (``check_stop``):

* Bytes that were durable must be whole. If the checkpoint's mark says that the log was durable
  beyond that place, the middle is damaged: StoreDamaged, and nothing is changed.
* Without the mark (Java wrote the checkpoint): after a clean stop the confirm offset and the
  queues' end say how far the log went. After an unclean one, a later whole record older than
  ``physicMsgTimestamp`` less 3 s was durable, so the bytes before it were as well.
* After a clean stop any later whole record that is not older than the last good one shows a hole:
  StoreDamaged. Older ones are the remains of a tail that Java cut without erasing.
* Everything else is a tail that the power cut tore: it is cut, and erased.

Of a record's topic and properties no CRC tells whether a power cut has taken a page. Where nobody
knows that a record was durable (``vouched``), one that looks so counts as torn. Elsewhere its CRC and
its lengths decide: clients may send what looks the same, and Java's brokers store it.

A mark is at most one checkpoint period (1 s) older than the newest flush; within that second
after a power cut a bad sector cannot be told from a torn tail.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from rmqha.base.errors import StoreDamaged
from rmqha.store.checkpoint import Checkpoint
from rmqha.store.properties import has_crc
from rmqha.store.record import Head, check_record, lost_page
from rmqha.store.scan import OpenQueueRun, Run, scan

CHUNK = 1 << 20
_ZEROS = bytes(CHUNK)
_MAGIC = re.compile(rb"\xda\xa3\x20[\xa7\xab]")
_MAGIC_AT = 4
RUN_MAX = 8_192
RUN_BYTES_MAX = 8 << 20
"""Checked in one go: some ten milliseconds."""
NO_LIMIT = 1 << 62


class Segment(Struct, frozen=True):
    """One commit-log file: its first offset, its bytes, and its path for people."""

    start: int
    buffer: memoryview
    path: str

    @property
    def end(self) -> int:
        """The first offset after it."""
        return self.start + len(self.buffer)


class Stop(Struct, frozen=True):
    """Where whole records end, and why."""

    offset: int
    reason: str
    last_timestamp: int


class Walk:
    """Iterates over whole records from a segment on; afterwards ``stop`` tells where it ended.

    It yields runs of ordinary records, and the head of each other one. While it runs, ``buffer``
    is the file of the record that it yields.

    Args:
        open_queue_run: as :func:`scan` takes it; runs of records that end at or before ``limit``
            bring their queue units with them.
        vouched: as :func:`vouched` says it.

    A blank leads to the next file, also after the last one: the log then ends at the file's end,
    so that a blank that replicas already have is not written a second time elsewhere.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        first: int,
        *,
        check_crc: bool,
        property_crc: bool,
        open_queue_run: OpenQueueRun | None = None,
        limit: int = NO_LIMIT,
        vouched: tuple[int, int] = (NO_LIMIT, 0),
    ) -> None:
        self._vouched_to, self._vouched_ms = vouched
        self._segments = segments
        self._first = first
        self._check_crc = check_crc
        self._property_crc = property_crc
        self._open_queue_run = open_queue_run
        self._limit = limit
        start = segments[first].start if segments else 0
        self.stop = Stop(start, "there is no file", 0)
        self.buffer = memoryview(b"")

    def _run(self, segment: Segment, position: int) -> Run:
        """The ordinary records from ``position`` on; none when records carry CRCs of their own.

        One that looks as if it had lost a page is none: whether that counts is said by ``_head``.
        """
        size = min(len(segment.buffer), position + RUN_BYTES_MAX)
        if self._property_crc:
            return Run(position, segment.start + position, 0, 0, {})
        below = self._open_queue_run is not None and segment.start + position < self._limit
        return scan(
            segment.buffer, position, min(size, self._limit - segment.start) if below else size,
            segment.start, check_crc=self._check_crc, count_max=RUN_MAX,
            open_queue_run=self._open_queue_run if below else None, check_pages=True,
        )  # fmt: skip

    def _head(self, segment: Segment, position: int) -> Head:
        """The record at ``position``, by the careful way."""
        offset, buffer = segment.start + position, segment.buffer
        head = check_record(
            buffer, position, len(buffer), offset,
            check_crc=self._check_crc, verify_property_crc=self._property_crc,
        )  # fmt: skip
        is_vouched = offset < self._vouched_to or head.store_timestamp <= self._vouched_ms
        if head.size <= 0 or is_vouched or not self._check_crc:
            return head
        if self._property_crc and has_crc(buffer, position + head.size):
            return head
        reason = lost_page(buffer, head)
        return Head(-1, offset, reason) if reason else head

    def __iter__(self) -> Iterator[Head | Run]:
        timestamp = 0
        end = self.stop.offset
        for segment in self._segments[self._first :]:
            if segment.start != end:
                self.stop = Stop(end, f"the file before {segment.path} is missing", timestamp)
                return
            buffer, position, size = segment.buffer, 0, len(segment.buffer)
            self.buffer = buffer
            while position < size:
                run = self._run(segment, position)
                if run.records:
                    timestamp, position = run.timestamp, run.position
                    yield run
                    continue
                head = self._head(segment, position)
                if head.size <= 0:
                    break
                timestamp = head.store_timestamp
                position += head.size
                yield head
            else:
                head = Head(0, segment.end)
            if head.size < 0:
                self.stop = Stop(segment.start + position, head.reason, timestamp)
                return
            end = segment.end
        self.stop = Stop(end, "the last file is full", timestamp)


def vouched(checkpoint: Checkpoint, *, clean: bool) -> tuple[int, int]:
    """What is known to have been durable: the records before an offset, and those stored up to a time."""
    if clean:
        return NO_LIMIT, 0
    if checkpoint.flushed_offset is not None:
        return checkpoint.flushed_offset, 0
    return 0, checkpoint.durable_timestamp


def first_timestamp(segment: Segment) -> int:
    """Store timestamp, ms, of a file's first record; 0 when it has none."""
    head = check_record(segment.buffer, 0, len(segment.buffer), segment.start, check_crc=False)
    return head.store_timestamp if head.size > 0 else 0


def start_after_clean_stop(segments: Sequence[Segment], indexed: int, limit: int) -> int:
    """The newest file with a whole first record that begins at or before ``indexed``.

    Args:
        indexed: end of the highest record that any queue knows.
        limit: the confirm offset where it limits the dispatcher, else the largest offset.
    """
    for number in range(len(segments) - 1, 0, -1):
        segment = segments[number]
        if segment.start <= min(indexed, limit) and first_timestamp(segment):
            return number
    return 0


def start_after_crash(segments: Sequence[Segment], checkpoint: Checkpoint, limit: int) -> int:
    """The newest file whose first record was durable in the log and indexed durably."""
    min_timestamp = checkpoint.min_timestamp
    for mark in (checkpoint.flushed_offset, checkpoint.indexed_offset):
        if mark is not None:
            # Where a clock went back timestamps say less than the marks.
            limit = min(limit, mark)
    for number in range(len(segments) - 1, 0, -1):
        segment = segments[number]
        if segment.start <= limit and 0 < first_timestamp(segment) <= min_timestamp:
            return number
    return 0


def search_later(segments: Sequence[Segment], offset: int) -> Iterator[Head | None]:
    """Look for the first whole record after ``offset`` that stands where it says it stands.

    Yields None for each MiB in which there is none, so that others get their turn, and then the
    record if there is one.
    """
    for segment in segments:
        for low in range(max(0, offset + 1 - segment.start), len(segment.buffer), CHUNK):
            found = _record_in(segment, low, offset)
            yield found
            if found is not None:
                return


def _record_in(segment: Segment, low: int, offset: int) -> Head | None:
    """The first whole record whose magic begins within a MiB, and which begins after ``offset``."""
    chunk = bytes(segment.buffer[low : low + CHUNK])
    if chunk == _ZEROS[: len(chunk)]:
        return None
    # A magic may cross the chunk's end.
    window = segment.buffer[low : low + CHUNK + _MAGIC_AT]
    for match in _MAGIC.finditer(window):
        position = low + match.start() - _MAGIC_AT
        if position < 0 or segment.start + position <= offset:
            continue
        head = check_record(
            segment.buffer, position, len(segment.buffer), segment.start + position, check_crc=True
        )
        if head.size > 0:
            return head
    return None


def check_stop(
    segments: Sequence[Segment], stop: Stop, checkpoint: Checkpoint, later: Head | None,
    *, clean: bool, indexed: int,
) -> None:  # fmt: skip
    """Refuse to cut at ``stop`` when durable records would be lost (the rule is above).

    Args:
        later: what :func:`search_later` found behind it; needed only without our mark.
        clean: no ``abort`` file was there.
        indexed: end of the highest record that any queue knows.

    Raises:
        StoreDamaged: names file, offset and reason.
    """
    known = checkpoint.flushed_offset
    if known is None and clean:
        known = max(checkpoint.confirm_offset, indexed)
    if known is not None and stop.offset < known:
        raise _damaged(segments, stop, f"the log was durable up to {known}")
    if checkpoint.flushed_offset is not None or later is None:
        return
    if clean:
        if later.store_timestamp >= stop.last_timestamp:
            raise _damaged(segments, stop, f"a whole record follows at {later.offset}")
    elif later.store_timestamp <= checkpoint.durable_timestamp:
        raise _damaged(segments, stop, f"a durable record follows at {later.offset}")


def _damaged(segments: Sequence[Segment], stop: Stop, evidence: str) -> StoreDamaged:
    inside = [s.path for s in segments if s.start <= stop.offset < s.end]
    path = inside[0] if inside else "the commit log"
    return StoreDamaged(f"{path}: damaged at offset {stop.offset}: {stop.reason}, but {evidence}")


def corrected_confirm(confirm: int, *, min_offset: int, end: int) -> int:
    """The confirm offset after recovery: within the log that was found.

    Args:
        end: where whole records end.
    """
    return max(min_offset, min(confirm, end))
