"""A range of a live queue to Arrow record batches, whatever happens to its master meanwhile.

What a pull brings are records in the log's own format: the same code makes their columns as those of
a commit log. Columns and their names are the commit log's, without what only a store's directory
tells, and with the broker set's name.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqha.base.errors import RemoteProtocolError
from rmqha.client.logical import is_logical
from rmqha.client.pull import Pulled
from rmqha.pipeline.commitlog.columns import SCHEMA as LOG_SCHEMA
from rmqha.pipeline.commitlog.columns import Columns
from rmqha.pipeline.live.clients import LiveClient
from rmqha.pipeline.live.gaps import Answer, gaps
from rmqha.pipeline.live.losing import Losses, Patience, Warn
from rmqha.pipeline.live.offsets import Loss, QueueRange
from rmqha.pipeline.live.options import ReadOptions
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.headers import INT32_MAX, parse_number
from rmqha.store import properties as props
from rmqha.store.compression import Inflater
from rmqha.store.record import COMPRESSED, MAGIC_V1, MAGIC_V2, MIN_SIZE

_STORE_ONLY = frozenset({"replica", "brokerId", "epoch", "_corrupt"})
BROKER_NAME = pa.field("brokerName", pa.string())
SCHEMA = pa.schema([BROKER_NAME, *(one for one in LOG_SCHEMA if one.name not in _STORE_ONLY)])
HEADERS = pa.field(
    "headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
"""The properties as Kafka's source shows headers; only where they are asked for."""
BATCH_RECORDS = 16_384
BATCH_BYTES = 8 << 20
PULLS_AT_ONCE, AHEAD_BYTES = 32, 8 << 20
"""What is asked for before anything of it is read; one answer may be larger than that."""
SLOW = 4
"""Pulls that together take more than a fourth of a request's time limit are too many."""

_STORED_AS = {HEADERS.name: "properties"}
_PLACE = struct.Struct(">iI")


class RangeReader:
    """Reads one range.

    Args:
        cluster: to pull from.
        options: the reader's.
        columns: names of ``SCHEMA``, in the order of the batches' columns.
        warn: told what was lost, where that is no error.
    """

    def __init__(
        self, cluster: LiveClient, options: ReadOptions, columns: tuple[str, ...], warn: Warn
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._columns = columns
        self._stored = tuple(dict.fromkeys(_STORED_AS.get(name, name) for name in columns))
        self._losses = Losses(cluster, options, warn)

    def read(self, wanted: QueueRange) -> Iterator[pa.RecordBatch]:
        """The range's messages, in the queue's order, every one once.

        Raises:
            DataLost: the queue does not hold the range any more, and that is to be an error.
            Refused, Unreachable: the broker set cannot be read.
            RemoteProtocolError: a record cannot be read.
        """
        found: list[tuple[int, Pulled]] = []
        size = count = 0
        for at, pulled in self._answers(wanted):
            found.append((at, pulled))
            size += len(pulled.body)
            count += self._options.pull_batch_size
            if size >= BATCH_BYTES or count >= BATCH_RECORDS:
                yield from self._batch(wanted, found)
                found.clear()
                size = count = 0
        if found:
            yield from self._batch(wanted, found)

    def _answers(self, wanted: QueueRange) -> Iterator[tuple[int, Pulled]]:
        """The answers that bring messages, with the offsets that were asked for."""
        offset, patience = wanted.start, Patience(self._cluster)
        ahead = _Ahead(self._cluster, self._options, wanted)
        while offset < wanted.stop:
            pulled = ahead.take(offset)
            low = self._losses.deleted_before(wanted.queue, offset, pulled)
            if low > offset:
                loss = Loss(wanted.queue, offset, low, f"messages before {low} have been deleted")
                offset = self._losses.tell(loss)
            elif pulled.code != ResponseCode.PULL_OFFSET_MOVED and pulled.next_offset > offset:
                if pulled.code == ResponseCode.SUCCESS:
                    yield offset, pulled
                offset = pulled.next_offset
                patience.renew()
            elif not patience.wait():
                # The end of the range was confirmed once: a new master had the time to find it.
                high = pulled.edge.high
                reason = f"the queue ends at {high}, before {wanted.stop}"
                self._losses.tell(Loss(wanted.queue, offset, min(offset, high), reason))
                return

    # -- columns -----------------------------------------------------------------------------------

    def _batch(
        self, wanted: QueueRange, found: list[tuple[int, Pulled]]
    ) -> Iterator[pa.RecordBatch]:
        data = b"".join(one.body for _, one in found)
        columns = Columns(memoryview(data), record_positions(data))
        firsts = np.cumsum([0, *(len(one.body) for _, one in found[:-1])])
        of_pull = np.searchsorted(firsts, columns.positions, side="right") - 1
        deltas = np.array([one.delta for _, one in found], np.int64)[of_pull]
        if columns.bad.any():
            at = columns.number("physicalOffset")[columns.bad][0]
            raise RemoteProtocolError(f"{wanted}: the record at {at} of the log has wrong lengths")
        offsets = columns.number("queueOffset") + deltas
        if self._options.expression == "*":
            answers = [Answer(at, one.next_offset) for at, one in found]
            self._losses.tell_gaps(wanted, gaps(answers, offsets, of_pull, _counts(columns)))
        kept = (offsets >= wanted.start) & (offsets < wanted.stop)
        columns.keep(kept)
        offsets, tags = offsets[kept], self._options.tags
        if tags is not None and len(columns.positions):
            # The broker compares hashes.
            named = pc.is_in(columns.to_arrays(("tags",))["tags"], pa.array(sorted(tags)))
            kept = named.to_numpy(zero_copy_only=False)
            columns.keep(kept)
            offsets = offsets[kept]
        if len(columns.positions):
            yield self._record_batch(wanted, columns, offsets)

    def _record_batch(
        self, wanted: QueueRange, columns: Columns, offsets: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        arrays = columns.to_arrays(self._stored)
        if HEADERS.name in self._columns:
            arrays[HEADERS.name] = _headers(arrays["properties"])
        if is_logical(wanted.queue):
            # A record has its segment's numbers.
            queue_id = pa.scalar(wanted.queue.queue_id, SCHEMA.field("queueId").type)
            arrays["queueId"] = pa.repeat(queue_id, len(offsets))
            arrays["queueOffset"] = pa.array(offsets)
        arrays["brokerName"] = pa.repeat(wanted.queue.broker_name, len(columns.positions))
        if "body" in arrays or "sysFlag" in arrays:
            _decompress(columns, arrays)
        known = SCHEMA.append(HEADERS)
        fields = [known.field(name) for name in self._columns]
        return pa.RecordBatch.from_arrays(
            [arrays[name] for name in self._columns], schema=pa.schema(fields)
        )


class _Ahead:
    """Pulls of a range that are asked for before those in front of them are read.

    More and more of them at once, for as long as each ends where the next one begins. Where a filter
    passes over messages that is a guess, and there is one at a time again; where an answer has no
    room for all that was asked for, less is asked for at once.
    """

    def __init__(self, cluster: LiveClient, options: ReadOptions, wanted: QueueRange) -> None:
        self._cluster = cluster
        self._options = options
        self._wanted = wanted
        self._count = options.pull_batch_size
        self._width = 1
        # Bytes that an answer has room for, as far as one is known to have been full.
        self._room = 0
        self._answers: deque[tuple[int, Pulled]] = deque()

    def take(self, offset: int) -> Pulled:
        """The answer to a pull from ``offset`` on; raises as ``LiveClient.pulls``."""
        while self._answers:
            at, pulled = self._answers.popleft()
            if at == offset:
                return pulled
        self._ask(offset)
        return self._answers.popleft()[1]

    def _ask(self, offset: int) -> None:
        stop, count, clock = self._wanted.stop, self._count, self._cluster.clock
        starts = [*range(offset, stop, count)[: self._width]]
        ranges = [(at, min(count, stop - at)) for at in starts]
        began_ms = clock.now_ms()
        pulled = self._cluster.pulls(self._wanted.queue, ranges, self._options.expression)
        took_ms = clock.now_ms() - began_ms
        self._answers.extend(zip(starts, pulled, strict=False))
        row = 1
        while row < len(pulled) and pulled[row - 1].next_offset == starts[row]:
            row += 1
        self._width = max(1, min(self._next_width(row, len(starts), took_ms), _fitting(pulled)))
        last, (at, asked) = pulled[row - 1], ranges[row - 1]
        if last.code == ResponseCode.SUCCESS and last.next_offset < min(at + asked, last.edge.high):
            self._room = len(last.body)
        if self._room:
            self._fit(last.next_offset - offset, sum(len(one.body) for one in pulled[:row]))

    def _next_width(self, row: int, asked: int, took_ms: int) -> int:
        """How many at once after ``row`` of ``asked`` were of use.

        Answers wait for each other on a slow network, and none may come to wait for too long.
        """
        if took_ms * SLOW > self._options.pull_timeout_ms:
            return row // 2
        return min(2 * row, PULLS_AT_ONCE) if row == asked else row

    def _fit(self, records: int, size: int) -> None:
        """Ask for as many as have room, by those that came last."""
        if records > 0 and size:
            fitting = self._room * 3 // 4 * records // size
            self._count = min(max(1, fitting), self._options.pull_batch_size)


def _fitting(pulled: list[Pulled]) -> int:
    """How many answers as large as the largest may wait."""
    return AHEAD_BYTES // max(1, *(len(one.body) for one in pulled))


def record_positions(data: bytes) -> list[int]:
    """Where the records of a pull begin; they stand back to back.

    Raises:
        RemoteProtocolError: something else stands there.
    """
    positions, position, end = [], 0, len(data)
    while position < end:
        size, magic = _PLACE.unpack_from(data, position) if end - position >= MIN_SIZE else (0, 0)
        if magic not in (MAGIC_V1, MAGIC_V2) or not MIN_SIZE <= size <= end - position:
            raise RemoteProtocolError(f"no record at byte {position} of a pull's {end}")
        positions.append(position)
        position += size
    return positions


def _counts(columns: Columns) -> Callable[[int], int]:
    """How many offsets of its queue the record of a row takes: those of an inner batch."""

    @cache
    def properties() -> pa.Array:
        return columns.to_arrays(("properties",))["properties"]

    def count(row: int) -> int:
        pairs = dict(properties()[row].as_py() or ())
        return parse_number(pairs.get(props.INNER_NUM) or "1", INT32_MAX) or 1

    return count


def _headers(properties: pa.MapArray) -> pa.ListArray:
    """Maps as lists of names and values; nothing is copied."""
    pairs = pa.StructArray.from_arrays(
        [properties.keys, properties.items.cast(pa.binary())], fields=list(HEADERS.type.value_type)
    )
    return pa.ListArray.from_arrays(
        properties.offsets, pairs, type=HEADERS.type, mask=properties.is_null()
    )


def _decompress(columns: Columns, arrays: dict[str, pa.Array]) -> None:
    """Undo what Java producers do to large bodies; the mark in ``sysFlag`` goes with it."""
    flags = columns.number("sysFlag")
    rows = np.flatnonzero(flags & COMPRESSED)
    if not len(rows):
        return
    stored, inflater = columns.bodies(), Inflater()
    undone = {
        row: body
        for row in rows.tolist()
        if (body := inflater.plain_body(stored[row].as_py(), int(flags[row]))) is not None
    }
    if "body" in arrays:
        bodies = stored.to_pylist()
        for row, body in undone.items():
            bodies[row] = body
        arrays["body"] = pa.array(bodies, pa.binary())
    if "sysFlag" in arrays:
        flags[list(undone)] &= ~COMPRESSED
        arrays["sysFlag"] = pa.array(flags).cast(pa.int32())
