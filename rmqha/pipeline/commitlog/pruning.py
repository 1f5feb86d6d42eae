"""Which parts of a commit log can hold what is wanted: by offsets, and by the times of its files.

The names say where files begin. When they begin, the first record of each says: a file's records
are stored between that and the first of the next one, for a log is written in the order of time.
A broker's clock may be set back meanwhile, so ``CLOCK_MS`` on either side are granted.
"""

from __future__ import annotations

from rmqha.ha.epochs import OFFSET_MAX
from rmqha.pipeline.commitlog.batches import INT64_MAX, INT64_MIN, Bounds, Wanted
from rmqha.pipeline.commitlog.columns import Columns
from rmqha.pipeline.commitlog.header_walk import walk_headers
from rmqha.pipeline.commitlog.splits import PART_BYTES, Part, plan_range
from rmqha.pipeline.commitlog.store_folder import LogFile, StoreFolder, log_pages

FIRST_BYTES = 8 << 20
"""Of a file that has to be copied, to see its first record; a message has 4 MiB at most by default."""
CLOCK_MS = 10 * 60 * 1000
"""By how much a clock may be set, inside of one file, without that a record is missed."""


def plan_wanted(
    replica: StoreFolder, wanted: Wanted, part_bytes: int = PART_BYTES, end: int = OFFSET_MAX
) -> list[Part]:
    """``plan`` without the parts that hold nothing wanted; their damage goes with them.

    Args:
        end: of records that begin there or behind nothing is read.

    Raises:
        OSError: times are asked for, and a file cannot be read.
    """
    low, high = wanted.physical_offset.low, wanted.physical_offset.high
    parts = [
        part
        for part in plan_range(replica, (0, end), part_bytes)
        if part.file.base + part.stop + part.missing > low and part.file.base + part.start <= high
    ]
    if wanted.store_timestamp == Bounds():
        return parts
    bases = {part.file.base for part in parts}
    times = file_times([file for file in replica.files if file.base in bases])
    asked = wanted.store_timestamp
    return [
        part
        for part in parts
        if times[part.file.base].low <= asked.high and times[part.file.base].high >= asked.low
    ]


def file_times(files: list[LogFile]) -> dict[int, Bounds]:
    """By the files' physical offsets, the store times that their records can have.

    Raises:
        OSError: a file cannot be read.
    """
    firsts = [_first_ms(file) for file in files]
    after: list[int | None] = [None] * len(files)
    for number in range(len(files) - 2, -1, -1):
        following = firsts[number + 1]
        after[number] = after[number + 1] if following is None else following
    found, before = {}, None
    for file, first, next_first in zip(files, firsts, after, strict=True):
        before = before if first is None else first
        known = [one for one in (before, next_first) if one is not None]
        found[file.base] = Bounds(
            INT64_MIN if before is None else min(known) - CLOCK_MS,
            INT64_MAX if next_first is None else max(known) + CLOCK_MS,
        )
    return found


def _first_ms(file: LogFile) -> int | None:
    """When a file's first record was stored; None when no record stands at its beginning, or it has
    expired."""
    pages = log_pages(file.path, file.base, scattered=True, bytes_max=FIRST_BYTES)
    run = None if pages is None else walk_headers(pages, 0, 1, file.base, 1)
    if pages is None or run is None or not run.positions:
        return None
    columns = Columns(pages, run.positions)
    return None if columns.bad[0] else int(columns.store_timestamps()[0])
