"""Ranges of queues into parts: nothing lost or doubled, about equally long, as many as were asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import ConfigInvalid
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live.offsets import QueueRange
from rmqha.pipeline.live.splitting import split

MOST = 500


def whole(*sizes: int) -> list[QueueRange]:
    """A range of each size, each in a queue of its own."""
    return [
        QueueRange(QueueKey("t", "b", number), 100 * number, 100 * number + size)
        for number, size in enumerate(sizes)
    ]


def sizes(parts: list[QueueRange]) -> list[int]:
    """How long parts are."""
    return [one.stop - one.start for one in parts]


@given(
    st.lists(st.integers(1, 60), max_size=6), st.none() | st.integers(1, MOST),
    st.none() | st.integers(1, 60),
)  # fmt: skip
def test_ranges_when_split_then_all_of_them_once(
    given_sizes: list[int], least: int | None, records: int | None
) -> None:
    """And no part is too long, or much shorter than the others of its queue."""
    ranges = whole(*given_sizes)
    parts = split(ranges, parts_min=least, records_max=records, parts_max=MOST)
    for one in ranges:
        own = [part for part in parts if part.queue == one.queue]
        assert [own[0].start, *(part.stop for part in own)] == [
            *(part.start for part in own), one.stop,
        ]  # fmt: skip
        assert max(sizes(own)) - min(sizes(own)) <= 1
    assert sum(sizes(parts)) == sum(given_sizes)
    assert all(0 < one <= (records or 60) for one in sizes(parts))
    if least is not None:
        assert len(parts) >= min(least, sum(given_sizes))


def test_ranges_when_nothing_is_asked_for_then_left_whole() -> None:
    """As with Kafka: a queue is a task."""
    ranges = whole(5, 90)
    assert split(ranges, parts_min=None, records_max=None, parts_max=1) == ranges
    assert split(ranges, parts_min=2, records_max=None, parts_max=5) == ranges


def test_parts_when_more_are_wanted_then_of_the_long_queues() -> None:
    """A short queue is no reason for two tasks."""
    assert sizes(split(whole(10, 80), parts_min=5, records_max=None, parts_max=9)) == [
        10,
        *[20] * 4,
    ]


def test_parts_when_they_would_be_too_many_then_said() -> None:
    """A driver that plans a billion tasks dies without a word."""
    with pytest.raises(ConfigInvalid, match="maxRecordsPerPartition=1 would make 30 tasks"):
        split(whole(30), parts_min=None, records_max=1, parts_max=29)
