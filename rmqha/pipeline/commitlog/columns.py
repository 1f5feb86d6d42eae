"""Records to Arrow columns, many at a time: numpy gathers, Arrow copies, Python touches no record.

The columns are those of ``SCHEMA``; a caller names which it wants, and only these are made.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqha.pipeline.commitlog.claim_coverage import gather
from rmqha.pipeline.commitlog.claimed_records import HEAD, Heads
from rmqha.pipeline.commitlog.pages import forget
from rmqha.pipeline.commitlog.property_columns import PropertyColumns
from rmqha.store.crc import crc32
from rmqha.store.record import (
    BORN_HOST_V6,
    CRC_MASK,
    MAGIC_V2,
    STORE_HOST_V6,
    unpack_host,
)

MILLISECONDS = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("replica", pa.string()),
        ("brokerId", pa.int64()),
        ("epoch", pa.int32()),
        ("physicalOffset", pa.int64()),
        ("size", pa.int32()),
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("bornTimestamp", MILLISECONDS),
        ("storeTimestamp", MILLISECONDS),
        ("bornHost", pa.string()),
        ("storeHost", pa.string()),
        ("flag", pa.int32()),
        ("sysFlag", pa.int32()),
        ("reconsumeTimes", pa.int32()),
        ("preparedTransactionOffset", pa.int64()),
        ("bodySize", pa.int32()),
        ("bodyCrc", pa.int32()),
        ("crcOk", pa.bool_()),
        ("body", pa.binary()),
        ("_corrupt", pa.string()),
    ]
)

Ints = npt.NDArray[np.int64]
_TAIL = np.dtype(
    [("reconsumeTimes", ">i4"), ("preparedTransactionOffset", ">i8"), ("bodySize", ">i4")]
)
_MOMENT = np.dtype([("ms", ">i8")])
TIME_MS_MAX = (2**63 - 1) // 1000
"""Further from 1970 no column of microseconds has a time, forth or back."""
_VIEW = np.dtype([("size", "<i4"), ("bytes", "u1", 4), ("buffer", "<i4"), ("at", "<i4")])
_VIEW_INLINE = 12
"""Arrow's layout of a view: so few bytes stand in it, of more the first four and where all are."""
_BORN_HOST_AT = 48
_HOST_V4, _HOST_V6 = 8, 20


class Slices(NamedTuple):
    """Ranges of one mapped file, which nobody has copied yet.

    Attributes:
        buffer: the whole file.
        at, size: of each range; ascending, and within 2 GiB of each other.
    """

    buffer: memoryview
    at: Ints
    size: Ints

    @staticmethod
    def joined(several: Sequence[Slices]) -> Slices:
        """Those of one file, one behind the other; there is at least one."""
        at = np.concatenate([one.at for one in several])
        return Slices(several[0].buffer, at, np.concatenate([one.size for one in several]))

    def take(self, order: Ints) -> pa.Array:
        """The bytes of some ranges, copied by Arrow in that order.

        They are every second slot of an array that lies over the file itself.
        """
        base = int(self.at[0]) if len(self.at) else 0
        offsets = np.empty(2 * len(self.at) + 1, np.int32)
        offsets[0:-1:2] = self.at - base
        offsets[1::2] = self.at + self.size - base
        offsets[-1] = offsets[-2] if len(self.at) else 0
        values = pa.py_buffer(self.buffer[base:])
        every = pa.Array.from_buffers(
            pa.binary(), 2 * len(self.at), [None, pa.py_buffer(offsets), values]
        )
        return every.take(pa.array(2 * order))

    def views(self, order: Ints) -> pa.Array:
        """As ``take``, but copied by nobody: views of the file, for whoever copies them at once."""
        at, size = self.at[order], self.size[order]
        base = int(at.min()) if len(at) else 0
        seen = np.zeros(len(at), _VIEW)
        seen["size"] = size
        raw = np.frombuffer(self.buffer, np.uint8)
        seen["bytes"] = raw[np.minimum(at[:, None] + np.arange(4), len(raw) - 1)]
        seen["at"] = at - base
        small = np.flatnonzero(size <= _VIEW_INLINE)
        if len(small):
            inside = np.arange(_VIEW_INLINE)
            found = raw[np.minimum(at[small, None] + inside, len(raw) - 1)]
            rows = seen.view(np.uint8).reshape(len(at), _VIEW.itemsize)
            rows[small, 4:] = np.where(inside < size[small, None], found, 0)
        values = pa.py_buffer(self.buffer[base:])
        return pa.Array.from_buffers(pa.binary_view(), len(at), [None, pa.py_buffer(seen), values])

    def forget(self) -> None:
        """Let this process' memory have no more of the pages where they are."""
        if len(self.at):
            forget(self.buffer, int(self.at[0]), int(self.at[-1] + self.size[-1]))


class Columns:
    """The columns of some records of one file, made when they are asked for.

    Args:
        buffer: the whole file; the columns do not keep it.
        positions: where the records begin, ascending; each is one by ``walk_headers``.
        heads: what they begin with, when that was read before.

    Attributes:
        bad: for each record, whether its parts do not fill it; its contents are not to be read.
    """

    def __init__(
        self, buffer: memoryview, positions: Ints | list[int], heads: Heads | None = None
    ) -> None:
        self._buffer = buffer
        self._bytes = np.frombuffer(buffer, np.uint8)
        self.positions: Ints = np.asarray(positions, np.int64)
        self._front = gather(self._bytes, self.positions, HEAD) if heads is None else heads
        sys_flag = self._front["sysFlag"]
        self._born_v6 = (sys_flag & BORN_HOST_V6) != 0
        self._store_v6 = (sys_flag & STORE_HOST_V6) != 0
        self._born_at = self.positions + _BORN_HOST_AT
        self._stored_at = self._born_at + np.where(self._born_v6, _HOST_V6, _HOST_V4)
        self._store_host_at = self._stored_at + 8
        tail_at = self._store_host_at + np.where(self._store_v6, _HOST_V6, _HOST_V4)
        self._is_v4 = not (self._born_v6.any() or self._store_v6.any())
        self._tail = self._front if self._is_v4 else gather(self._bytes, tail_at, _TAIL)
        self._body_at = tail_at + _TAIL.itemsize
        self._find_ends()

    def _find_ends(self) -> None:
        """Where body, topic and properties end, and which records they do not fill exactly."""
        ends = self.positions + self._front["size"]
        body_size = self._tail["bodySize"].astype(np.int64)
        wide = self._front["magic"] == MAGIC_V2
        topic_length_at = self._body_at + body_size
        bad = (body_size < 0) | (topic_length_at + np.where(wide, 2, 1) > ends - 2)
        at = np.where(bad, 0, topic_length_at)
        first = self._bytes[at].astype(np.int64)
        second = self._bytes[np.minimum(at + 1, len(self._bytes) - 1)].astype(np.int64)
        topic_size = np.where(wide, first << 8 | second, first)
        self._topic_at = topic_length_at + np.where(wide, 2, 1)
        properties_length_at = self._topic_at + topic_size
        bad |= properties_length_at > ends - 2
        at = np.where(bad, 0, properties_length_at)
        size = self._bytes[at].astype(np.int64) << 8 | self._bytes[at + 1]
        self._properties_at = properties_length_at + 2
        bad |= self._properties_at + size != ends
        self.bad: npt.NDArray[np.bool_] = bad
        self._topic_size = np.where(bad, 0, topic_size)
        self._properties_size = np.where(bad, 0, size)
        self._body_size = np.where(bad, 0, body_size)
        for name in ("_topic_at", "_properties_at", "_body_at"):
            setattr(self, name, np.where(bad, self.positions, getattr(self, name)))

    def take_bad(self) -> tuple[Ints, Ints]:
        """Positions and sizes of the bad records; they leave the columns."""
        bad = self.bad
        found = self.positions[bad], self.number("size")[bad]
        self.keep(~bad)
        return found

    def keep(self, wanted: npt.NDArray[np.bool_]) -> None:
        """Drop the other records."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray) and name != "_bytes":
                setattr(self, name, value[wanted])

    def number(self, name: str) -> Ints:
        """A column of integers by its name in ``SCHEMA``."""
        source = self._tail if name in (_TAIL.names or ()) else self._front
        return source[name].astype(np.int64)

    def store_timestamps(self) -> Ints:
        """Milliseconds since 1970."""
        if self._is_v4:
            return self.number("storeTimestamp")
        return gather(self._bytes, self._stored_at, _MOMENT)["ms"].astype(np.int64)

    def topics(self) -> pa.Array:
        """The column ``topic``."""
        return self._texts(self._topic_at, self._topic_size)

    def to_arrays(self, names: Collection[str]) -> dict[str, pa.Array]:
        """The named columns that stand in the records themselves."""
        arrays: dict[str, pa.Array] = {}
        properties = None
        if not {"tags", "keys", "properties"}.isdisjoint(names):
            properties = PropertyColumns(self._slices(self._properties_at, self._properties_size))
        for name in names:
            if name in ("tags", "keys", "properties") and properties is not None:
                arrays[name] = properties.column(name)
            elif name in _MAKERS:
                arrays[name] = _MAKERS[name](self)
            elif name in (HEAD.names or ()):
                kind = SCHEMA.field(name).type
                arrays[name] = pa.array(self.number(name)).cast(kind)
        return arrays

    def _slices(self, at: Ints, size: Ints) -> pa.Array:
        """Bytes of the file, copied by Arrow."""
        return Slices(self._buffer, at, size).take(np.arange(len(at)))

    def _texts(self, at: Ints, size: Ints) -> pa.Array:
        return texts(self._slices(at, size))

    def born_times(self) -> pa.Array:
        """The column ``bornTimestamp``, as ``times`` makes it."""
        return times(self.number("bornTimestamp"))

    def store_times(self) -> pa.Array:
        """The column ``storeTimestamp``, as ``times`` makes it."""
        return times(self.store_timestamps())

    def born_hosts(self) -> pa.Array:
        """``host:port``, IPv6 hosts in brackets."""
        return self._hosts(self._born_at, self._born_v6)

    def store_hosts(self) -> pa.Array:
        """The column of store hosts, as ``born_hosts`` makes it."""
        return self._hosts(self._store_host_at, self._store_v6)

    def _hosts(self, at: Ints, v6: npt.NDArray[np.bool_]) -> pa.Array:
        sizes = np.where(v6, _HOST_V6, _HOST_V4)
        known = self._slices(at, sizes).dictionary_encode()
        hosts = [_host(packed.as_py()) for packed in known.dictionary]
        return pa.array(hosts, pa.string()).take(known.indices)

    def bodies(self) -> pa.Array:
        """The bodies, copied."""
        return self._slices(self._body_at, self._body_size)

    def bodies_in_place(self) -> Slices:
        """Where the bodies are, for whoever copies them later and in another order."""
        return Slices(self._buffer, self._body_at, self._body_size)

    def checks(self) -> pa.Array:
        """Whether each body is the one its checksum was made of."""
        ends = self._body_at + self._body_size
        bodies = map(self._buffer.__getitem__, map(slice, self._body_at.tolist(), ends.tolist()))
        sums = np.fromiter(map(crc32, bodies), np.int64, len(ends)) & CRC_MASK
        return pa.array(sums == self.number("bodyCrc"))


_MAKERS: dict[str, Callable[[Columns], pa.Array]] = {
    "topic": Columns.topics,
    "bornTimestamp": Columns.born_times,
    "storeTimestamp": Columns.store_times,
    "bornHost": Columns.born_hosts,
    "storeHost": Columns.store_hosts,
    "crcOk": Columns.checks,
    "body": Columns.bodies,
}


def times(ms: Ints) -> pa.Array:
    """Milliseconds since 1970 as timestamps; what is too far away for one is the last, or the first.

    So filters, sorting and the option ``storeTimestamp`` find it on its side of all other times, and
    rows that agree in it are still found to agree, which nulls are not.
    """
    return pa.array(np.clip(ms, -TIME_MS_MAX, TIME_MS_MAX) * 1000).cast(MILLISECONDS)


def texts(raw: pa.Array) -> pa.Array:
    """Bytes as text; what is no UTF-8 keeps its place with the replacement character."""
    try:
        return pc.cast(raw, pa.string())
    except pa.ArrowInvalid:
        return pa.array([one.decode("utf-8", "replace") for one in raw.to_pylist()], pa.string())


def _host(packed: bytes) -> str:
    host, port = unpack_host(packed)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
