"""Ranges of queues into the parts that tasks read: one each, or finer where that was asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.live.offsets import QueueRange


def split(
    whole: Sequence[QueueRange],
    *,
    parts_min: int | None,
    records_max: int | None,
    parts_max: int,
) -> list[QueueRange]:
    """Split ranges evenly, so that parts of all queues are about equally long.

    Args:
        parts_min: how many there are to be at least, as far as there are so many offsets.
        records_max: offsets of a part at most.
        parts_max: more parts than that are an error.

    Raises:
        ConfigInvalid: ``records_max`` would make more.
    """
    sizes = [one.stop - one.start for one in whole]
    if not sizes:
        return []
    size = max(sizes)
    if records_max is not None:
        size = min(size, records_max)
    if _parts(sizes, size) > parts_max and records_max is not None:
        raise ConfigInvalid(
            f"maxRecordsPerPartition={records_max} would make {_parts(sizes, size)} tasks, and"
            f" {parts_max} are the most"
        )
    if parts_min is not None and _parts(sizes, size) < parts_min:
        size = _largest(sizes, min(parts_min, sum(sizes)), size)
    return [part for one in whole for part in _even(one, -(-(one.stop - one.start) // size))]


def _parts(sizes: Sequence[int], size: int) -> int:
    """How many parts of at most this size there are."""
    return sum(-(-one // size) for one in sizes)


def _largest(sizes: Sequence[int], parts: int, high: int) -> int:
    """The largest size that makes at least so many parts."""
    low = 1
    while low < high:
        middle = (low + high + 1) // 2
        if _parts(sizes, middle) >= parts:
            low = middle
        else:
            high = middle - 1
    return low


def _even(whole: QueueRange, count: int) -> Iterator[QueueRange]:
    length = whole.stop - whole.start
    edges = [whole.start + length * number // count for number in range(count + 1)]
    for start, stop in pairwise(edges):
        yield QueueRange(whole.queue, start, stop)
