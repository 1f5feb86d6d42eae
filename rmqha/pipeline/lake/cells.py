"""Cells of a commit log, read whole by one task each, and written as a Parquet file a topic and day.

A cell's file has its rows in groups: a group holds what stands together in the log, in the order of
its queues. So the statistics of groups say of times, places and queues where to look, and a task
needs memory for some groups and not for a file.

Whatever a task writes has a name of its own, and counts only when the task tells of it: of two
attempts of one task the other's files are nobody's.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from rmqha.pipeline.commitlog.batches import (
    SPAN_PER_BATCH,
    Mode,
    Piece,
    Wanted,
    expired,
    read_pieces,
    step_for,
)
from rmqha.pipeline.commitlog.columns import SCHEMA, Slices
from rmqha.pipeline.commitlog.splits import PART_BYTES, Part, plan_range
from rmqha.pipeline.commitlog.store_folder import StoreFolder, log_pages
from rmqha.pipeline.lake.layout import SetName, Span, has_folder, topic_folder
from rmqha.pipeline.lake.parquet_out import ParquetOut

HELD_BYTES = 32 << 20
"""Of log whose rows wait to be written; their bodies wait in the log."""
GROUP_BYTES_MIN = 1 << 20
"""Of log that comes at once for a file; less is set aside until there is more, or the cell ends."""
DAY_US = 86_400_000_000
DISTINCT_MAX = 1 << 16
Ints = npt.NDArray[np.int64]
Key = tuple[str, int]
"""Topic and day."""
_IN_NAMES = ("topic", "_corrupt")
"""Columns of the source that a lake's files do not have."""
_BODY = "body"
_BODY_AT = SCHEMA.names.index(_BODY) - 1
"""Its place among a file's columns; the topic before it is none of them."""
_OF_SET = ("cluster", "brokerName")
_OF_DAMAGE = ("replica", "physicalOffset", "size", "_corrupt")
ROTTEN = "its body is not the one that its checksum was made of"
"""Why a record counts as damaged that is there as a row."""
MANIFEST = pa.schema(
    [
        ("topic", pa.string()),
        ("day", pa.string()),
        ("cell", pa.int64()),
        ("path", pa.string()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("replica", pa.string()),
        ("physicalOffset", pa.int64()),
        ("size", pa.int32()),
        ("_corrupt", pa.string()),
    ]
)
"""What a task tells: a row each file with its messages, a row each damaged range or body, and a row
without a path each topic that no folder can be named after, with its messages."""


class CellWork(Struct, frozen=True):
    """What the tasks of an export share.

    Attributes:
        replica: the store.
        name: its broker set.
        end: where the log ends, whatever was appended meanwhile.
        cell_bytes: of the lake.
        topics: None for all.
        bodies: whether files have them.
        folder: an absolute one, where files go by topic, day and cell.
    """

    replica: StoreFolder
    name: SetName
    end: int
    cell_bytes: int
    topics: frozenset[str] | None
    bodies: bool
    folder: str

    @property
    def cells(self) -> list[int]:
        """Where the cells begin that have bytes of the log, ascending."""
        found: set[int] = set()
        for file in self.replica.files:
            stop = min(self.end, file.base + max(1, file.size))
            found.update(range(file.base // self.cell_bytes, -(-stop // self.cell_bytes)))
        return [number * self.cell_bytes for number in sorted(found)]

    def parts(self, cell: int) -> list[Part]:
        """What of the log is read for a cell."""
        span: Span = (cell, min(cell + self.cell_bytes, self.end))
        return plan_range(self.replica, span, PART_BYTES)

    @property
    def wanted(self) -> Wanted:
        """Rows, damage included, and columns but the body, which is copied when its group is written."""
        return Wanted(tuple(one for one in SCHEMA.names if one != "body"), topics=self.topics)


def write_cell(work: CellWork, cell: int, held_bytes: int = HELD_BYTES) -> pa.RecordBatch:
    """Read a cell and write its files; the rows of ``MANIFEST``.

    Args:
        held_bytes: as ``HELD_BYTES``.

    Raises:
        OSError: a file cannot be read or written.
    """
    files = CellFiles(work, cell, uuid.uuid4().hex)
    damage: list[dict[str, object]] = []
    for part in work.parts(cell):
        held = Held()
        for batch, bodies in _read(part, work):
            if bodies is None:
                damage += _damage(batch, work.end)
                continue
            damage += _rotten(batch)
            held.add(batch, bodies)
            if held.log_bytes >= held_bytes or held.span >= SPAN_PER_BATCH:
                files.add(held)
                held = Held()
        if held.batches:
            files.add(held)
    return pa.RecordBatch.from_pylist([*files.close(), *damage], MANIFEST)


def _read(part: Part, work: CellWork) -> Iterator[Piece]:
    """Messages, and all damage: that of other topics stands in the way of none, but is told."""
    step = step_for(bodies=True)
    if work.topics is None:
        yield from read_pieces(part, work.wanted, step)
        return
    # Read twice, the file is opened once: one that expired meanwhile would be rows and a gap.
    pages = log_pages(part.file.path, part.file.base)
    if pages is None:
        yield from expired(part, Wanted(_OF_DAMAGE))
        return
    yield from read_pieces(part, replace(work.wanted, mode=Mode.DROPMALFORMED), step, pages)
    for piece in read_pieces(part, Wanted(_OF_DAMAGE), pages=pages):
        if piece.bodies is None:
            yield piece


def _damage(batch: pa.RecordBatch, end: int) -> Iterator[dict[str, object]]:
    """Ranges that begin before the end that was seen."""
    found = batch.select(_OF_DAMAGE).to_pylist()
    return (one for one in found if one["physicalOffset"] < end)


def _rotten(batch: pa.RecordBatch) -> list[dict[str, object]]:
    """Whole records whose bodies are not what was sent: a lake may have them from better days."""
    found = batch.filter(pc.invert(batch.column("crcOk"))).select(_OF_DAMAGE[:-1])
    return [one | {_OF_DAMAGE[-1]: ROTTEN} for one in found.to_pylist()]


class Held:
    """Rows of one file of the log that wait to be written, their bodies where they are.

    Attributes:
        log_bytes: of their records.
    """

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.log_bytes = 0
        self._bodies: list[Slices] = []

    def add(self, batch: pa.RecordBatch, bodies: Slices) -> None:
        """Hold some more, which come behind the others."""
        self.batches.append(batch)
        self._bodies.append(bodies)
        self.log_bytes += pc.sum(batch.column("size")).as_py()

    @property
    def span(self) -> int:
        """Bytes of the file from the first body to the last one's beginning."""
        return int(self._bodies[-1].at[-1] - self._bodies[0].at[0])

    def rows(self) -> pa.Table:
        """All but the bodies, in the order of the log."""
        return pa.Table.from_batches(self.batches)

    def bodies(self) -> Slices:
        """In the same order."""
        return Slices.joined(self._bodies)


class Group(NamedTuple):
    """Rows of one file that stand together."""

    topic: str
    day: int
    start: int
    stop: int


class CellFiles:
    """The files of one attempt at a cell.

    Args:
        work, cell: what is written.
        attempt: for the files' names, and nobody else's.
    """

    def __init__(self, work: CellWork, cell: int, attempt: str) -> None:
        self._work = work
        self._cell = cell
        self._attempt = attempt
        self._open: dict[Key, ParquetOut] = {}
        self._refused = Counter[str]()
        self._few = SetAside(os.path.join(work.folder, f"_few-{attempt}"))

    def add(self, held: Held) -> None:
        """Append rows to the files of their topics and days, those of small groups later.

        Topics without a folder are only counted: the others shall be in the lake.
        """
        rows, groups, order = in_groups(held.rows())
        rows = self._as_filed(rows)
        sizes = _numbers(rows, "size")
        bodies = held.bodies()
        few = []
        for one in groups:
            if not has_folder(one.topic):
                self._refused[one.topic] += one.stop - one.start
                continue
            part = rows.slice(one.start, one.stop - one.start)
            is_small = sizes[one.start : one.stop].sum() < GROUP_BYTES_MIN
            if self._work.bodies:
                rank = order[one.start : one.stop]
                # What is set aside outlives the log's pages; what is written at once needs no copy.
                column = bodies.take(rank) if is_small else bodies.views(rank)
                part = part.add_column(_BODY_AT, _BODY, column)
            if is_small:
                few.append(((one.topic, one.day), part))
            else:
                self._file((one.topic, one.day), part.schema).write(part)
        if few:
            self._few.add(few)
        bodies.forget()

    def _file(self, key: Key, schema: pa.Schema) -> ParquetOut:
        if key not in self._open:
            topic, day = key
            where = f"{topic_folder(topic)}/day={_day(day)}/cell={self._cell}"
            path = os.path.join(self._work.folder, where, f"part-{self._attempt}.parquet")
            self._open[key] = ParquetOut(path, schema)
        return self._open[key]

    def _as_filed(self, rows: pa.Table) -> pa.Table:
        """With the columns of the set, without those that the folders' names have."""
        name = self._work.name
        rows = rows.drop_columns(list(_IN_NAMES))
        for column, value in zip(_OF_SET, (name.cluster or None, name.broker), strict=True):
            rows = rows.append_column(column, pa.repeat(pa.scalar(value, pa.string()), len(rows)))
        return rows

    def close(self) -> Iterator[dict[str, object]]:
        """Finish the files; what each holds."""
        for key, rows in self._few.taken():
            out = _with_views(rows) if self._work.bodies else rows
            self._file(key, out.schema).write(out)
        for (topic, day), one in self._open.items():
            one.close()
            yield {
                "topic": topic, "day": _day(day), "cell": self._cell,
                "path": os.path.relpath(one.path, self._work.folder),
                "messages": one.messages, "bytes": one.log_bytes,
            }  # fmt: skip
        for topic, count in self._refused.items():
            yield {"topic": topic, "messages": count}


def _with_views(rows: pa.Table) -> pa.Table:
    """Bodies as views, as the rows have them that were not set aside: a file has one schema."""
    return rows.set_column(_BODY_AT, _BODY, rows.column(_BODY).cast(pa.binary_view()))


def _day(number: int) -> str:
    return str(np.datetime64(number, "D"))


class SetAside:
    """Small groups, which would cost more to encode than they hold, until all of a file's are there.

    They wait in a file of Arrow's, for memory would not have the room.

    Args:
        path: of that file; it is deleted when its groups are taken.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._writer: pa.RecordBatchFileWriter | None = None
        self._where: dict[Key, list[tuple[int, int, int]]] = {}
        self._batches = 0

    def add(self, groups: list[tuple[Key, pa.Table]]) -> None:
        """Set groups aside, each of another file."""
        rows = pa.concat_tables([part for _, part in groups]).combine_chunks()
        if self._writer is None:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._writer = pa.ipc.new_file(self._path, rows.schema)
        at = 0
        for key, part in groups:
            self._where.setdefault(key, []).append((self._batches, at, len(part)))
            at += len(part)
        (batch,) = rows.to_batches()
        self._writer.write_batch(batch)
        self._batches += 1

    def taken(self) -> Iterator[tuple[Key, pa.Table]]:
        """Everything, a file's at a time and in the order of its queues."""
        if self._writer is None:
            return
        self._writer.close()
        with pa.memory_map(self._path) as pages:
            # Its name goes at once: what dies now leaves less behind.
            os.unlink(self._path)
            found = pa.ipc.open_file(pages)
            batches = [found.get_batch(number) for number in range(self._batches)]
            for key, places in self._where.items():
                parts = [batches[number].slice(at, count) for number, at, count in places]
                yield key, _by_queue(pa.Table.from_batches(parts))


def _by_queue(rows: pa.Table) -> pa.Table:
    order = np.argsort(_numbers(rows, "queueId"), kind="stable")
    return rows.combine_chunks().take(pa.array(order))


def in_groups(rows: pa.Table) -> tuple[pa.Table, list[Group], Ints]:
    """Rows by topic and day, each queue by queue in the order of the log.

    Returns:
        The rows, where each group is, and where each row was.
    """
    topics = pc.dictionary_encode(rows.column("topic").combine_chunks())
    names = topics.dictionary.to_pylist()
    days = _numbers(rows, "storeTimestamp") // DAY_US
    first = int(days.min())
    spread = int(days.max()) - first + 1
    folders = topics.indices.to_numpy().astype(np.int64) * spread + (days - first)
    order = _order(folders, _numbers(rows, "queueId"))
    folders = folders[order]
    bounds = [0, *(np.flatnonzero(np.diff(folders)) + 1).tolist(), len(order)]
    codes = folders[bounds[:-1]].tolist()
    groups = [
        Group(names[code // spread], first + code % spread, start, stop)
        for code, (start, stop) in zip(codes, pairwise(bounds), strict=True)
    ]
    return rows.combine_chunks().take(pa.array(order)), groups, order


def _order(folders: Ints, queues: Ints) -> Ints:
    """Where the rows are that come next, of equal ones the first."""
    low = int(queues.min())
    width = int(queues.max()) - low + 1
    if int(folders.max()) >= DISTINCT_MAX // width:
        return np.lexsort((queues, folders))
    # Few folders and queues: numpy sorts such numbers without comparing them.
    return np.argsort((folders * width + (queues - low)).astype(np.uint16), kind="stable")


def _numbers(rows: pa.Table, name: str) -> Ints:
    found: Ints = pc.cast(rows.column(name), pa.int64()).to_numpy()
    return found
