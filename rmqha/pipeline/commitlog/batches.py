"""A part of a commit log to Arrow record batches, with a filter on what heads and topics say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from rmqha.base.errors import StoreDamaged
from rmqha.pipeline.commitlog import claimed_records as chains
from rmqha.pipeline.commitlog.claim_coverage import ClaimCoverage
from rmqha.pipeline.commitlog.claimed_records import ClaimedRecords
from rmqha.pipeline.commitlog.claims import Claims, Sought, claims
from rmqha.pipeline.commitlog.columns import SCHEMA, Columns, Slices
from rmqha.pipeline.commitlog.elsewhere import is_elsewhere
from rmqha.pipeline.commitlog.pages import forget
from rmqha.pipeline.commitlog.splits import Gap, Part, Rows, Step, walk
from rmqha.pipeline.commitlog.store_folder import log_pages

RECORDS_PER_BATCH = 16_384
BYTES_PER_BATCH = 32 << 20
BODIES_PER_BATCH = 12 << 20
"""Bytes of log in a batch with bodies, of which a worker has several copies at a time."""
SPAN_PER_BATCH = 1 << 30
"""Arrow counts the bytes from a batch's first record to its last in 31 bits."""
AROUND_BYTES = 64 << 10
"""Reading one byte of a mapped file brings so many around it into a process' memory (Linux)."""
SCATTERED = 1 / 16
"""When less than this share of a part's bytes is wanted, nothing is read ahead."""
EXPIRED = "its file has expired since the reading began"
SIZE_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_Numbers = Sequence[int] | npt.NDArray[np.int64]


class Bounds(Struct, frozen=True):
    """Both bounds are inclusive."""

    low: int = INT64_MIN
    high: int = INT64_MAX

    def cut(self, low: int = INT64_MIN, high: int = INT64_MAX) -> Bounds:
        """What is within both."""
        return Bounds(max(self.low, low), min(self.high, high))

    def hold(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which values lie within."""
        return (values >= self.low) & (values <= self.high)


class Mode(Enum):
    """What becomes of damage, by the names that Spark's own sources have for it."""

    PERMISSIVE = "PERMISSIVE"
    """It is a row."""
    DROPMALFORMED = "DROPMALFORMED"
    """It is left out."""
    FAILFAST = "FAILFAST"
    """It ends the reading."""


class Wanted(Struct, frozen=True):
    """What a reader asks for; rows outside may be left out, damage as ``mode`` says.

    Attributes:
        columns: names of ``SCHEMA``, in the order of the batches' columns.
        topics: None for all.
        queue_id, physical_offset, queue_offset, store_timestamp (ms): bounds.
        use_queues: whether topics are found by the consume queues, where these account for the log;
            of all topics every record is read, with the queues only more of them at once.
        mode: whether damage is told, left out, or an error.
    """

    columns: tuple[str, ...] = tuple(SCHEMA.names)
    topics: frozenset[str] | None = None
    queue_id: Bounds = Bounds()
    physical_offset: Bounds = Bounds()
    queue_offset: Bounds = Bounds()
    store_timestamp: Bounds = Bounds()
    use_queues: bool = True
    mode: Mode = Mode.PERMISSIVE

    @property
    def step(self) -> Step:
        """For a batch; a record belongs to the one in which it begins."""
        return step_for(bodies="body" in self.columns)


def step_for(*, bodies: bool) -> Step:
    """How much of the log for a batch, with its bodies or without."""
    return Step(RECORDS_PER_BATCH, BODIES_PER_BATCH if bodies else BYTES_PER_BATCH)


def topics_named(text: str) -> frozenset[str]:
    """Topics of ``a, b``; none of an empty text."""
    return frozenset(filter(None, re.split(r"[\s,]+", text)))


class Piece(NamedTuple):
    """Rows of a part that stand together in the log.

    Attributes:
        batch: their columns.
        bodies: a body for each row, still in the file; none of damage.
    """

    batch: pa.RecordBatch
    bodies: Slices | None


def read_part(part: Part, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """The part's rows, in the log's order.

    A damaged range is one row with its place, its size and ``_corrupt``; all else of it is null.

    Raises:
        OSError: the file cannot be read.
        StoreDamaged: it is damaged, and the mode is ``FAILFAST``.
    """
    return (piece.batch for piece in read_pieces(part, wanted))


def read_pieces(
    part: Part, wanted: Wanted, step: Step | None = None, pages: memoryview | None = None
) -> Iterator[Piece]:
    """As ``read_part``, with the places of the bodies, whether or not they are a column.

    Args:
        step: of the log at a time; what suits the columns when it is None.
        pages: the file's, of ``log_pages``: whoever reads a part twice sees the same both times.

    Raises:
        OSError, StoreDamaged: as ``read_part``.
    """
    named = _claims(part, wanted)
    if pages is None:
        pages = log_pages(
            part.file.path, part.file.base, scattered=_is_scattered(part, wanted, named)
        )
    if pages is None:
        yield from expired(part, wanted)
        return
    part = _as_far_as(part, pages)
    maker, step = _BatchMaker(part, wanted), step or wanted.step
    coverage = claimed = None
    if named is not None and wanted.topics is None:
        claimed = ClaimedRecords(named, pages, part.file.base)
    elif named is not None:
        coverage = ClaimCoverage(named, pages, part.file.base, part.start)
    for found in walk(part, pages, step, coverage, claimed):
        if isinstance(found, Gap):
            yield from maker.gap(found)
            continue
        for rows in _portions(pages, found, step.bytes_max):
            yield from maker.records(Columns(pages, rows.positions, rows.heads))
            forget(pages, int(rows.positions[0]), int(rows.positions[-1]))


def expired(part: Part, wanted: Wanted) -> Iterator[Piece]:
    """What is told of a part whose file has expired: nothing of it is there, like damage.

    Raises:
        StoreDamaged: the mode is ``FAILFAST``.
    """
    if part.start < part.stop:
        yield from _BatchMaker(part, wanted).gap(Gap(part.start, part.stop, EXPIRED))


def _is_scattered(part: Part, wanted: Wanted, named: Claims | None) -> bool:
    if wanted.topics is None or named is None:
        return False
    return named.wanted_bytes < SCATTERED * (part.stop - part.start)


def _as_far_as(part: Part, pages: memoryview) -> Part:
    """Of a packed file the size is known by the next one's name, and one between may be missing."""
    if not is_elsewhere(part.file.path) or len(pages) >= part.stop:
        return part
    stop = max(part.start, len(pages))
    return replace(part, stop=stop, missing=part.missing + part.stop - stop)


def _claims(part: Part, wanted: Wanted) -> Claims | None:
    """What the consume queues say of the part; None when they are not to be asked."""
    if not wanted.use_queues:
        return None
    root, low, high = part.replica.root, part.file.base + part.start, part.file.base + part.stop
    if wanted.topics is None:
        return claims(root, Sought(), low, high, chains.QUEUES_MAX)
    ids, offsets = wanted.queue_id, wanted.queue_offset
    sought = Sought(wanted.topics, (ids.low, ids.high), (offsets.low, offsets.high))
    return claims(root, sought, low, high)


def _portions(buffer: memoryview, rows: Rows, bytes_max: int) -> Iterator[Rows]:
    """Few enough bytes of pages at a time, whatever the records' size and their distance.

    A walk keeps to a step's bytes itself but for records here and there; of these it knows the sizes.
    """
    positions, sizes = rows.positions, rows.sizes
    if sizes is None or positions[-1] - positions[0] <= bytes_max:
        yield rows
        return
    apart = np.diff(positions, append=positions[-1] + sizes[-1])
    ends = np.cumsum(np.minimum(sizes + AROUND_BYTES, apart))
    begin = 0
    while begin < len(positions):
        before = ends[begin - 1] if begin else 0
        stop = int(np.searchsorted(ends, before + bytes_max, side="right"))
        near = int(np.searchsorted(positions, positions[begin] + SPAN_PER_BATCH))
        stop = max(min(stop, near), begin + 1)
        yield Rows(positions[begin:stop])
        begin = stop


class _BatchMaker:
    def __init__(self, part: Part, wanted: Wanted) -> None:
        self._part = part
        self._wanted = wanted
        self._schema = pa.schema([SCHEMA.field(name) for name in wanted.columns])
        self._epoch_starts = np.asarray([start for start, _ in part.replica.epochs], np.int64)
        self._epochs = pa.array([epoch for _, epoch in part.replica.epochs], pa.int32())

    def gap(self, gap: Gap) -> Iterator[Piece]:
        """One row for a gap, if it is to be told."""
        at = self._part.file.base + gap.start
        size = min(gap.stop - gap.start, SIZE_MAX)
        yield from self._damage([at], [size], [gap.reason])

    def records(self, columns: Columns) -> Iterator[Piece]:
        """Rows of good records, and of those whose parts do not fill them."""
        if columns.bad.any():
            positions, sizes = columns.take_bad()
            reasons = ["the record's parts do not fill it"] * len(positions)
            yield from self._damage(positions + self._part.file.base, sizes, reasons)
        self._filter(columns)
        count = len(columns.positions)
        if count:
            arrays = columns.to_arrays(self._wanted.columns)
            offsets = columns.positions + self._part.file.base
            batch = self._batch(arrays, offsets, columns.number("size"), None)
            yield Piece(batch, columns.bodies_in_place())

    def _damage(self, offsets: _Numbers, sizes: _Numbers, reasons: list[str]) -> Iterator[Piece]:
        if self._wanted.mode is Mode.FAILFAST:
            path, size = self._part.file.path, int(sizes[0])
            raise StoreDamaged(
                f"{path}: no record in {size} bytes at offset {int(offsets[0])}: {reasons[0]}"
            )
        if self._wanted.mode is Mode.PERMISSIVE:
            yield Piece(self._batch({}, offsets, sizes, reasons), None)

    def _filter(self, columns: Columns) -> None:
        wanted = self._wanted
        everything = Bounds()
        bounded: tuple[tuple[Bounds, Callable[[], npt.NDArray[np.int64]]], ...] = (
            (wanted.physical_offset, lambda: columns.number("physicalOffset")),
            (wanted.queue_id, lambda: columns.number("queueId")),
            (wanted.queue_offset, lambda: columns.number("queueOffset")),
            (wanted.store_timestamp, columns.store_timestamps),
        )
        for bounds, values in bounded:
            if bounds != everything and len(columns.positions):
                columns.keep(bounds.hold(values()))
        if wanted.topics is not None and len(columns.positions):
            names = pa.array(sorted(wanted.topics), pa.string())
            kept = pc.is_in(columns.topics(), names)
            columns.keep(kept.to_numpy(zero_copy_only=False))

    def _batch(
        self,
        arrays: dict[str, pa.Array],
        offsets: _Numbers,
        sizes: _Numbers,
        corrupt: list[str] | None,
    ) -> pa.RecordBatch:
        count = len(offsets)
        replica = self._part.replica
        made: dict[str, Any] = {
            "replica": lambda: pa.repeat(replica.name, count),
            "brokerId": lambda: (
                pa.nulls(count, pa.int64())
                if replica.broker_id is None
                else pa.array(np.full(count, replica.broker_id, np.int64))
            ),
            "epoch": lambda: self._epoch_of(np.asarray(offsets, np.int64)),
            "physicalOffset": lambda: pa.array(offsets, pa.int64()),
            "size": lambda: pa.array(np.asarray(sizes, np.int64)).cast(pa.int32()),
            "_corrupt": lambda: (
                pa.nulls(count, pa.string()) if corrupt is None else pa.array(corrupt, pa.string())
            ),
        }
        columns = [
            made[field.name]()
            if field.name in made
            else arrays[field.name]
            if field.name in arrays
            else pa.nulls(count, field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _epoch_of(self, offsets: npt.NDArray[np.int64]) -> pa.Array:
        """The epoch in whose span each offset lies; null before the first and without any."""
        found = np.searchsorted(self._epoch_starts, offsets, side="right") - 1
        if not len(self._epochs):
            return pa.nulls(len(offsets), pa.int32())
        return self._epochs.take(pa.array(np.maximum(found, 0), mask=found < 0))
