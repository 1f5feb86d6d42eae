"""Claims of the consume queues laid over a file: what they cover need not be walked over.

Where the claims of *all* queues lie edge to edge, every byte is some queue's record, so only the
wanted records have to be looked at. Where they leave a hole or overlap, some record was
not dispatched (or its queue was deleted, or queue or log is damaged), and the log itself is read.
A claim at such an edge, and every wanted one, counts only when the log has the record there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rmqha.pipeline.commitlog.claims import Claims, Flags, Ints
from rmqha.pipeline.commitlog.pages import forget
from rmqha.store.record import MAGIC_V1, MAGIC_V2, MIN_SIZE

ROUNDS_MAX = 16
"""After so many rounds in which claims at edges proved false, all are looked at."""
HOLD_BYTES = 32 << 20
"""Claims are looked at within so many bytes of the log at a time."""
_HEAD = np.dtype(
    {
        "names": ["size", "magic", "physicalOffset"],
        "formats": [">i4", ">u4", ">i8"],
        "offsets": [0, 4, 28],
        "itemsize": 36,
    }
)


class ClaimCoverage:
    """The claims on one file that hold.

    Args:
        claims: physical offsets.
        buffer: the whole file.
        base: its physical offset.
        start: of the part that is read, a position in the file.
    """

    def __init__(self, claims: Claims, buffer: memoryview, base: int, start: int) -> None:
        at = claims.at - base
        inside = (at >= 0) & (at <= len(buffer) - MIN_SIZE) & (claims.size <= len(buffer) - at)
        self._buffer = buffer
        self._bytes = np.frombuffer(buffer, np.uint8)
        self._base = base
        self._at, self._size, self._wanted = at[inside], claims.size[inside], claims.wanted[inside]
        self._settle(start)
        self._ends = self._at + self._size
        self._edges = np.flatnonzero(self._at[1:] != self._ends[:-1])

    def _settle(self, start: int) -> None:
        """Drop claims until all that must hold do."""
        looked_at = np.zeros(len(self._at), np.bool_)
        for turn in range(ROUNDS_MAX + 1):
            if not len(self._at):
                return
            doubted = self._doubted(start) if turn < ROUNDS_MAX else np.ones_like(looked_at)
            doubted &= ~looked_at
            if not doubted.any():
                return
            kept = np.ones_like(looked_at)
            kept[doubted] = self._hold(self._at[doubted], self._size[doubted])
            looked_at |= doubted
            self._at, self._size, self._wanted, looked_at = (
                self._at[kept], self._size[kept], self._wanted[kept], looked_at[kept],
            )  # fmt: skip

    def _doubted(self, start: int) -> Flags:
        """Wanted claims, those at edges, and the last one before the part."""
        edges = self._at[1:] != self._at[:-1] + self._size[:-1]
        found = self._wanted.copy()
        found[:-1] |= edges
        found[1:] |= edges
        found[[0, -1, max(0, self._before(start))]] = True
        return found

    def _before(self, start: int) -> int:
        return int(np.searchsorted(self._at, start)) - 1

    def _hold(self, at: Ints, size: Ints) -> Flags:
        """Whether the log has a record of this size there."""
        found = np.zeros(len(at), np.bool_)
        begin = 0
        while begin < len(at):
            # All pages of a part would be too much memory for a worker.
            stop = int(np.searchsorted(at, at[begin] + HOLD_BYTES))
            heads = gather(self._bytes, at[begin:stop], _HEAD)
            magic = heads["magic"]
            found[begin:stop] = (magic == MAGIC_V1) | (magic == MAGIC_V2)
            found[begin:stop] &= heads["size"] == size[begin:stop]
            found[begin:stop] &= heads["physicalOffset"] == at[begin:stop] + self._base
            if stop < len(at):
                forget(self._buffer, int(at[begin]), int(at[stop]))
            begin = stop
        return found

    def anchor(self, start: int, reach: int) -> int | None:
        """The last record before ``start``, when it is not more than ``reach`` bytes before."""
        number = self._before(start)
        if number < 0 or start - self._at[number] > reach:
            return None
        return int(self._at[number])

    def stretch(self, position: int) -> tuple[Ints, Ints, int] | None:
        """From a record on, as far as claims lie edge to edge.

        Returns:
            Where wanted ones begin, their sizes, and where the stretch ends.
            None when no claim begins at ``position``.
        """
        begin = int(np.searchsorted(self._at, position))
        if begin == len(self._at) or self._at[begin] != position:
            return None
        edge = int(np.searchsorted(self._edges, begin))
        last = int(self._edges[edge]) if edge < len(self._edges) else len(self._at) - 1
        wanted = begin + np.flatnonzero(self._wanted[begin : last + 1])
        return self._at[wanted], self._size[wanted], int(self._ends[last])

    def next_after(self, position: int) -> int:
        """Where the next claim begins; the file's end when none does."""
        number = int(np.searchsorted(self._at, position, side="right"))
        return int(self._at[number]) if number < len(self._at) else len(self._bytes)


def gather(data: npt.NDArray[np.uint8], at: Ints, shape: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """One structured row for each place; places too near to the end read the last whole row."""
    room = len(data) - shape.itemsize
    if room < 0:
        return np.zeros(len(at), shape)
    # A row at every byte, overlapping: taking some of them copies a row each, no index of bytes.
    every = np.ndarray((room + 1,), f"V{shape.itemsize}", data, strides=(1,))
    return every[np.minimum(at, room)].view(shape)
