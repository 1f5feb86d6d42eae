"""Properties of many records to Arrow: ``name \\x01 value \\x02`` and so on, without a loop.

Source: RocketMQ's protocol as observed; the last \\x02 may be missing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqha.store import properties as props

_NAME_END, _PAIR_END = 1, 2
Ints = npt.NDArray[np.int64]


class PropertyColumns:
    """Columns made of the encoded properties of records.

    Args:
        raw: binary array, one value a record.
    """

    def __init__(self, raw: pa.Array) -> None:
        self._rows = len(raw)
        self._map = _to_map(raw)

    def column(self, name: str) -> pa.Array:
        """``properties``, or ``tags`` or ``keys``: the value of TAGS or KEYS, else null."""
        if name == "properties":
            return self._map
        return self._values_of(name.upper())

    def _values_of(self, name: str) -> pa.Array:
        hits = np.flatnonzero(pc.equal(self._map.keys, name).to_numpy(zero_copy_only=False))
        offsets = self._map.offsets.to_numpy()
        rows = np.searchsorted(offsets, hits, side="right") - 1
        picks = np.full(self._rows, -1, np.int64)
        picks[rows] = hits
        indices = pa.array(np.maximum(picks, 0), mask=picks < 0)
        return self._map.items.take(indices)


def _to_map(raw: pa.Array) -> pa.Array:
    quick = _quick_map(raw)
    if quick is not None:
        return quick
    rows = [list(props.decode(one).items()) for one in raw.to_pylist()]
    return pa.array(rows, pa.map_(pa.string(), pa.string()))


def _quick_map(raw: pa.Array) -> pa.Array | None:
    """None when some record is not a plain row of pairs: they are then read one by one."""
    raw = _closed(raw)
    joined = raw.buffers()[2]
    starts = raw.buffers()[1]
    if joined is None or joined.size == 0:
        return None
    offsets = np.frombuffer(starts, np.int32)[raw.offset : raw.offset + len(raw) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(joined, np.uint8)[first:last]
    name_ends = np.flatnonzero(data == _NAME_END)
    pair_ends = np.flatnonzero(data == _PAIR_END)
    if len(name_ends) != len(pair_ends) or len(name_ends) == 0:
        return None
    begins = np.concatenate(([0], pair_ends[:-1] + 1))
    # A pair without a name or a value is none.
    if not bool(np.all(begins < name_ends) and np.all(name_ends + 1 < pair_ends)):
        return None
    rows = np.searchsorted(begins, offsets - first).astype(np.int32)
    names = _texts(joined, first, begins, name_ends)
    values = _texts(joined, first, name_ends + 1, pair_ends)
    if names is None or values is None or _repeats(names, rows):
        return None
    return pa.MapArray.from_arrays(pa.array(rows), names, values)


def _closed(raw: pa.Array) -> pa.Array:
    """The same, and the last pair of each record has its end."""
    open_ended = pc.and_(pc.invert(pc.ends_with(raw, "\x02")), pc.greater(pc.binary_length(raw), 0))
    if not pc.any(open_ended).as_py():
        return raw
    end = pa.scalar(b"\x02", pa.binary())
    nothing = pa.scalar(b"", pa.binary())
    return pc.if_else(open_ended, pc.binary_join_element_wise(raw, end, nothing), raw)


def _repeats(names: pa.Array, offsets: npt.NDArray[np.int32]) -> bool:
    """Whether some record names a property twice, which a map may not."""
    codes = names.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    keys = rows * (codes.max(initial=0) + 1) + codes
    keys.sort()
    return bool((keys[1:] == keys[:-1]).any())


def _texts(joined: pa.Buffer, first: int, begins: Ints, ends: Ints) -> pa.Array | None:
    count = len(begins)
    offsets = np.zeros(2 * count + 1, np.int32)
    offsets[0:-1:2] = begins + first
    offsets[1::2] = ends + first
    offsets[-1] = offsets[-2]
    every = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), joined])
    try:
        return pc.cast(every.take(pa.array(np.arange(0, 2 * count, 2))), pa.string())
    except pa.ArrowInvalid:
        return None
