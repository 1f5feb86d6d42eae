"""Parts of a commit log that tasks read alone, and how a task gets into step with the records.

A part is a range of bytes of one file; it holds the records that begin in it. A body may hold bytes
that look like a record for the very place where they stand, so looking like one is not enough to
begin there. A task begins at an *anchor* before its part, a place where the broker's consume queue
names a record, or the file's beginning, and goes from header to header from there.

Behind damage the next anchor is where the log goes on. Where no queue names one (it is not there, or
does not reach so far), a record counts that is whole: all lengths fit and its checksum is right.

With ``coverage`` the log is read only where the consume queues do not account for it; with ``claimed``
all of it is read, many records at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise, zip_longest

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from rmqha.ha.epochs import OFFSET_MAX
from rmqha.pipeline.commitlog.claim_coverage import ClaimCoverage
from rmqha.pipeline.commitlog.claimed_records import ClaimedRecords, Heads
from rmqha.pipeline.commitlog.elsewhere import is_elsewhere
from rmqha.pipeline.commitlog.header_walk import End, candidates, is_zeros, walk_headers
from rmqha.pipeline.commitlog.pages import forget, has_data
from rmqha.pipeline.commitlog.store_folder import LogFile, Queues, StoreFolder
from rmqha.store import record

PART_BYTES = 128 * 1024 * 1024
ANCHOR_WINDOWS = (8 << 20, 64 << 20)
ANCHOR_TRIES = 8


class Part(Struct, frozen=True):
    """The records of one file that begin in ``[start, stop)`` (positions in the file).

    Attributes:
        replica: whose it is; without its files when ``plan`` made the part.
        missing: bytes from this part's end to the next file's first, which no file has.
    """

    replica: StoreFolder
    file: LogFile
    start: int
    stop: int
    is_last_file: bool
    missing: int = 0


class Gap(Struct, frozen=True):
    """Bytes of which no record could be made: positions in the file, and why."""

    start: int
    stop: int
    reason: str


class Step(Struct, frozen=True):
    """How much of the log is gone through before its rows are handed on.

    Its pages count as the worker's memory until then.
    """

    records_max: int
    bytes_max: int


class Rows(Struct, frozen=True):
    """Where records begin, in order.

    Attributes:
        heads: their ``HEAD``s, when these were read.
        sizes: of those that are not one behind the other.
    """

    positions: npt.NDArray[np.int64]
    heads: Heads | None = None
    sizes: npt.NDArray[np.int64] | None = None

    def since(self, number: int) -> Rows:
        """Without the first ones."""
        heads = None if self.heads is None else self.heads[number:]
        sizes = None if self.sizes is None else self.sizes[number:]
        return Rows(self.positions[number:], heads, sizes)


def plan(replica: StoreFolder, part_bytes: int = PART_BYTES) -> list[Part]:
    """Cut a store's commit log into parts of about the same size, by names and sizes only."""
    return plan_range(replica, (0, OFFSET_MAX), part_bytes)


def plan_range(replica: StoreFolder, span: tuple[int, int], part_bytes: int) -> list[Part]:
    """As ``plan``, of the records that begin in a range of physical offsets."""
    parts = []
    # A part travels to its task alone: with all files in each, a plan grows with their square.
    owner = replace(replica, files=(), foreign=())
    nexts = [file.base for file in replica.files[1:]]
    for file, following in zip_longest(replica.files, nexts):
        low, high = max(0, span[0] - file.base), min(file.size, span[1] - file.base)
        if low > high or (low == high and file.size):
            continue
        # What has to be copied is copied once.
        count = 1 if is_elsewhere(file.path) else max(1, -(-(high - low) // part_bytes))
        edges = [low + (high - low) * number // count for number in range(count + 1)]
        is_last = following is None
        parts += [Part(owner, file, start, stop, is_last) for start, stop in pairwise(edges)]
        if not is_last and high == file.size and following > file.base + file.size:
            parts[-1] = replace(parts[-1], missing=following - file.base - file.size)
    return parts


def walk(
    part: Part,
    buffer: memoryview,
    step: Step,
    coverage: ClaimCoverage | None = None,
    claimed: ClaimedRecords | None = None,
) -> Iterator[Rows | Gap]:
    """The part's records and gaps in order, together all its bytes but blanks and a zero end.

    What is missing between two files is a gap behind the former.

    A gap belongs to the part in which it begins. With ``coverage``, records that are claimed for
    unwanted topics are left out, and so is damage inside of them. ``claimed`` only makes it quicker.
    """
    if part.is_last_file and part.start and _ends_before(buffer, part.file.path, part.start):
        return
    done = 0
    for found in _follow(part, buffer, step, coverage, claimed):
        begin = found.start if isinstance(found, Gap) else int(found.positions[0])
        forget(buffer, done, begin)
        done = begin
        if isinstance(found, Gap):
            if found.start >= part.start:
                yield found
        elif found.positions[-1] >= part.start:
            yield found.since(int(np.searchsorted(found.positions, part.start)))
    if part.missing:
        stop = part.stop + part.missing
        base = part.file.base
        yield Gap(part.stop, stop, f"no file has bytes {base + part.stop} to {base + stop}")


def _follow(
    part: Part,
    buffer: memoryview,
    step: Step,
    coverage: ClaimCoverage | None,
    claimed: ClaimedRecords | None,
) -> Iterator[Rows | Gap]:
    records_max, bytes_max = step.records_max, step.bytes_max
    queues = Queues(part.replica.root)
    position: int | None = _anchor(part, buffer, queues, coverage, claimed)
    resume = _Resume(part, buffer, queues)
    while position is not None and position < part.stop:
        limit, steps = min(part.stop, position + bytes_max), records_max
        if claimed is not None:
            linked = claimed.link(position, records_max, bytes_max)
            if linked is not None:
                yield Rows(linked.positions, linked.heads)
                position = linked.stop
                continue
            steps = min(claimed.steps(), records_max)
        if coverage is not None:
            stretch = coverage.stretch(position)
            if stretch is not None:
                wanted, sizes, position = stretch
                for begin in range(0, len(wanted), records_max):
                    some = slice(begin, begin + records_max)
                    yield Rows(wanted[some], None, sizes[some])
                continue
            limit = min(limit, coverage.next_after(position))
        run = walk_headers(buffer, position, limit, part.file.base, steps)
        if run.positions:
            yield Rows(np.asarray(run.positions, np.int64))
        position = run.position
        if run.end is End.LIMIT:
            continue
        if run.end is End.BLANK or (run.end is End.ZEROS and part.is_last_file):
            return
        reason = run.reason or "zeros in the middle of the log"
        found = resume.after(position)
        yield Gap(position, len(buffer) if found is None else found, reason)
        position = found


def _ends_before(buffer: memoryview, path: str, position: int) -> bool:
    """Whether a file has nothing but zeros from ``position`` on: the log's last file is sparse."""
    return not has_data(path, position) or is_zeros(buffer, position)


def _anchor(
    part: Part,
    buffer: memoryview,
    queues: Queues,
    coverage: ClaimCoverage | None,
    claimed: ClaimedRecords | None,
) -> int:
    """A certain record before the part, as near as one is found; else the file's beginning."""
    if coverage is not None:
        found = coverage.anchor(part.start, ANCHOR_WINDOWS[0])
        if found is not None:
            return found
    if claimed is not None:
        likely = islice(claimed.before(part.start, ANCHOR_WINDOWS[0]), ANCHOR_TRIES)
        found = next((at for at in likely if _is_named(part, buffer, at, queues)), None)
        if found is not None:
            return found
    for window in ANCHOR_WINDOWS:
        begin = part.start - window
        if begin <= 0 or not queues.known:
            return 0
        found = _named(part, buffer, begin, part.start, queues)
        if found is not None:
            return found
    return 0


class _Resume:
    """Where the log goes on behind damage."""

    def __init__(self, part: Part, buffer: memoryview, queues: Queues) -> None:
        self._part, self._buffer, self._queues = part, buffer, queues
        # Once no queue names a record up to the file's end, none does behind later damage either: to
        # look each time would go through the rest of the file for every damaged record.
        self._may_be_named = queues.known

    def after(self, position: int) -> int | None:
        """The first certain record behind a position; None when there is none in this file."""
        part, buffer, begin = self._part, self._buffer, position + 1
        if self._may_be_named:
            found = _named(part, buffer, begin, len(buffer), self._queues)
            if found is not None:
                return found
            self._may_be_named = False
        while (at := candidates(buffer, begin, len(buffer), part.file.base)) is not None:
            head = record.check_record(buffer, at, len(buffer), part.file.base + at, check_crc=True)
            if head.size > 0:
                return at
            begin = at + 1
        return None


def _named(part: Part, buffer: memoryview, begin: int, stop: int, queues: Queues) -> int | None:
    """The first record in a range that a consume queue names."""
    position = begin
    while (at := candidates(buffer, position, stop, part.file.base)) is not None:
        if _is_named(part, buffer, at, queues):
            return at
        position = at + 1
    return None


def _is_named(part: Part, buffer: memoryview, at: int, queues: Queues) -> bool:
    """Whether a whole record stands there that the queue of which it says it is names, too."""
    head = record.check_record(buffer, at, len(buffer), part.file.base + at, check_crc=True)
    return head.size > 0 and queues.names(
        head.topic.decode("utf-8", "replace"), head.queue_id, head.queue_offset,
        part.file.base + at, head.size,
    )  # fmt: skip
