"""Records one behind the other as the consume queues claim them, each looked at in the log.

Going from header to header costs a turn of Python for every record. Where queues claim records edge
to edge, all of a batch are checked at once instead: each must have the size that is claimed, a
record's magic and its own offset. From a place where a record begins, that yields the very records
that ``walk_headers`` finds; it ends at the first claim that does not hold, and ``walk_headers`` takes over there.

Nothing rests on the queues: what they do not have, or have wrong, only makes reading slower.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rmqha.pipeline.commitlog.claim_coverage import gather
from rmqha.pipeline.commitlog.claims import Claims, Ints
from rmqha.store.record import MAGIC_V1, MAGIC_V2, MIN_SIZE

QUEUES_MAX = 128
"""With more queues than this, asking each costs more than walking."""
WORTH = 32
"""Fewer records than these are walked over as quickly."""
STEPS_MAX = 1 << 16
HEAD = np.dtype(
    [
        ("size", ">i4"), ("magic", ">u4"), ("bodyCrc", ">i4"), ("queueId", ">i4"),
        ("flag", ">i4"), ("queueOffset", ">i8"), ("physicalOffset", ">i8"), ("sysFlag", ">i4"),
        ("bornTimestamp", ">i8"), ("bornHost", "V8"), ("storeTimestamp", ">i8"),
        ("storeHost", "V8"), ("reconsumeTimes", ">i4"), ("preparedTransactionOffset", ">i8"),
        ("bodySize", ">i4"),
    ]
)  # fmt: skip
"""A record up to its body when both hosts are IPv4; with others, right up to ``bornTimestamp``."""

Heads = npt.NDArray[np.void]


class Linked(Struct, frozen=True):
    """Records one behind the other.

    Attributes:
        positions, heads: where each begins in the file, and what it begins with.
        stop: where the last one ends.
    """

    positions: Ints
    heads: Heads
    stop: int


class ClaimedRecords:
    """The claims on one file, to be followed from a record on.

    Args:
        claims: physical offsets.
        buffer: the whole file.
        base: its physical offset.
        steps: how many records to walk over where the claims are of no use; doubled each time.
    """

    def __init__(self, claims: Claims, buffer: memoryview, base: int, steps: int = WORTH) -> None:
        at = claims.at - base
        inside = (at >= 0) & (at <= len(buffer) - MIN_SIZE) & (claims.size <= len(buffer) - at)
        self._bytes = np.frombuffer(buffer, np.uint8)
        self._base = base
        self._at, self._size = at[inside], claims.size[inside]
        self._edges = np.flatnonzero(self._at[1:] != (self._at + self._size)[:-1])
        self._steps_min = self._steps = steps

    def link(self, position: int, count_max: int, bytes_max: int) -> Linked | None:
        """The records from ``position`` on, where one begins; None when ``walk_headers`` is as good.

        They begin within ``bytes_max``.
        """
        begin = int(np.searchsorted(self._at, position))
        edge = int(np.searchsorted(self._edges, begin))
        last = int(self._edges[edge]) if edge < len(self._edges) else len(self._at) - 1
        reach = int(np.searchsorted(self._at, position + bytes_max))
        stop = min(last + 1, begin + count_max, reach)
        if stop - begin < self._steps_min or self._at[begin] != position:
            return None
        at, size = self._at[begin:stop], self._size[begin:stop]
        heads = gather(self._bytes, at, HEAD)
        magic = heads["magic"]
        holds = (heads["size"] == size) & ((magic == MAGIC_V1) | (magic == MAGIC_V2))
        holds &= heads["physicalOffset"] == at + self._base
        count = len(at) if holds.all() else int(holds.argmin())
        if count < self._steps_min:
            return None
        self._steps = self._steps_min
        return Linked(at[:count], heads[:count], int(at[count - 1] + size[count - 1]))

    def steps(self) -> int:
        """How many records to walk over before the claims are asked again."""
        self._steps, found = min(2 * self._steps, STEPS_MAX), self._steps
        return found

    def before(self, position: int, reach: int) -> Iterator[int]:
        """Where claims begin before ``position``, at most ``reach`` bytes before; nearest first."""
        number = int(np.searchsorted(self._at, position)) - 1
        while number >= 0 and position - self._at[number] <= reach:
            yield int(self._at[number])
            number -= 1


__all__ = ["HEAD", "QUEUES_MAX", "ClaimedRecords", "Heads", "Linked"]
