"""What a reading that stopped early, or an index that trails, makes of acknowledged messages."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rmqha.store.record import message_id
from rmqha.testing.real import producer
from rmqha.testing.real.producer import Acked, missing_at_last, physical_offset

Found = dict[tuple[int, int], bytes]


def acked(queue: int, offset: int) -> Acked:
    return Acked(b"%d-%d" % (queue, offset), queue, offset, 1.0, 2.0, "a:1")


ALL = [acked(queue, offset) for queue in range(2) for offset in range(10)]


def stored(some: list[Acked]) -> Found:
    return {(one.queue_id, one.queue_offset): one.body for one in some}


def test_reading_when_it_stopped_early_then_it_goes_on_where_something_is_missing() -> None:
    """A broker that found nothing for a moment has lost nothing."""
    asked: list[dict[int, int]] = []

    def read(begins: Mapping[int, int]) -> Found:
        asked.append(dict(begins))
        if len(asked) == 1:
            return stored([one for one in ALL if one.queue_id == 0 or one.queue_offset < 4])
        return stored([one for one in ALL if one.queue_offset >= begins.get(one.queue_id, 10)])

    assert missing_at_last(ALL, read) == []
    assert asked == [{0: 0, 1: 0}, {1: 4}]


@pytest.mark.slow
def test_reading_when_a_message_stays_away_then_it_alone_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer, "ARRIVAL_TIMEOUT_S", 0.5)
    gone = [one for one in ALL if (one.queue_id, one.queue_offset) == (1, 7)]
    assert missing_at_last(ALL, lambda begins: stored([a for a in ALL if a not in gone])) == gone


def test_reading_when_the_broker_refuses_at_first_then_it_is_asked_again() -> None:
    """A master of a second's age does."""
    refusals = [ConnectionError("busy")]

    def read(begins: Mapping[int, int]) -> Found:
        if refusals:
            raise refusals.pop()
        return stored(ALL)

    assert missing_at_last(ALL, read) == []
    assert not refusals


def test_message_ids_when_taken_apart_then_the_place_in_the_log() -> None:
    """Behind a host of four bytes or of sixteen, and its port."""
    for host in (bytes(8), bytes(range(20))):
        assert physical_offset(message_id(host, 123_456_789_012)) == 123_456_789_012
