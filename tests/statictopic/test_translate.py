"""Requests and answers about a logical queue, translated to segments and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.statictopic.mapping import Segments
from rmqha.statictopic.translate import (
    PullAnswer,
    block_above,
    first_decided,
    last_decided,
    led_by,
    logical_answer,
    next_decided,
    not_leader,
    segment_at,
    segment_states,
)
from tests.statictopic.examples import detail, histories, item

OLDEST, MIDDLE, NEWEST = (
    item(0, "a", 0, 0), item(1, "b", 3, 10_000, 100), item(2, "c", 1, 30_000),
)  # fmt: skip
QUEUE = (OLDEST, MIDDLE, NEWEST)
OPEN = (OLDEST, item(1, "b", 3))
"""A queue whose new leader's beginning is being decided."""
FOUND, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21


@given(segments=histories(), logical=st.integers(0, 60_000))
def test_segment_when_looked_up_then_translation_is_its_own_inverse(
    segments: Segments, logical: int
) -> None:
    """An offset that lies in a segment comes back as it was."""
    one = segment_at(segments, logical)
    assert one is not None
    assert one.is_decided
    if one.logic_offset <= logical:
        assert one.logical(one.physical(logical)) == logical
        later = [other.logic_offset for other in segments if other.gen > one.gen]
        assert all(begin < 0 or begin > logical for begin in later)
    else:
        assert one == first_decided(segments)


def test_segment_when_offsets_lie_between_then_the_one_before_has_them() -> None:
    """Gaps of the block jump belong to the segment that they follow."""
    found = [segment_at(QUEUE, at) for at in (0, 9_999, 10_000, 29_999, 30_000, 1 << 40)]
    assert found == [OLDEST, OLDEST, MIDDLE, MIDDLE, NEWEST, NEWEST]
    assert segment_at((MIDDLE, NEWEST), 0) == MIDDLE
    assert segment_at(OPEN, 1 << 40) == OLDEST
    assert segment_at((item(0, "a", 0),), 0) is None


def test_segments_when_some_are_undecided_then_ends_and_neighbours_pass_them_over() -> None:
    """What has no logical offset cannot be translated."""
    assert (first_decided(QUEUE), last_decided(QUEUE)) == (OLDEST, NEWEST)
    assert (last_decided(OPEN), next_decided(OPEN, OLDEST)) == (OLDEST, None)
    assert next_decided(QUEUE, OLDEST) == MIDDLE
    assert next_decided(QUEUE, NEWEST) is None
    assert (first_decided(()), last_decided(())) == (None, None)


def test_leader_when_asked_for_then_only_the_last_segments_broker_has_the_queue() -> None:
    """All others answer 501."""
    one = detail("c", {0: QUEUE})
    assert led_by(one, 0) == QUEUE
    assert led_by(one, 1) is None
    assert led_by(detail("a", {0: QUEUE}), 0) is None
    assert "Orders-1 does not exit in request process of current broker c" == not_leader(one, 1)


def test_states_when_shown_then_they_are_those_of_the_rip() -> None:
    """A leader without a message is not expired: it takes some."""
    assert segment_states(QUEUE, frozenset({0, 2})) == ("Expired", "ReadOnly", "Normal")
    assert segment_states((), frozenset()) == ()


@pytest.mark.parametrize(
    ("segment", "physical", "answer", "expected"),
    [
        # Found: every offset is translated, and the queue ends where its newest segment does.
        (NEWEST, 5, (FOUND, 9, 2, 40), (FOUND, 30_009, 30_002, 30_040)),
        (MIDDLE, 105, (FOUND, 110, 103, 140), (FOUND, 10_010, 10_003, 30_000)),
        (OLDEST, 5, (FOUND, 9, 2, 40), (FOUND, 9, 2, 30_000)),
        # An older segment has been read to its end.
        (OLDEST, 40, (NOT_FOUND, 40, 2, 40), (RETRY, 10_000, 2, 30_000)),
        (OLDEST, 41, (MOVED, 40, 2, 40), (RETRY, 10_000, 2, 30_000)),
        (MIDDLE, 140, (NOT_FOUND, 140, 103, 140), (RETRY, 30_000, 10_003, 30_000)),
        # It is empty, as in the capture of the real cluster.
        (OLDEST, 0, (NOT_FOUND, 0, 0, 0), (RETRY, 10_000, 0, 30_000)),
        # What was asked for is no longer there.
        (OLDEST, 1, (MOVED, 2, 2, 40), (MOVED, 2, 2, 30_000)),
        (MIDDLE, 101, (MOVED, 103, 103, 140), (RETRY, 10_003, 10_003, 30_000)),
        (NEWEST, 1, (MOVED, 2, 2, 40), (RETRY, 30_002, 30_002, 30_040)),
        # The leader's end is the queue's.
        (NEWEST, 40, (NOT_FOUND, 40, 2, 40), (NOT_FOUND, 30_040, 30_002, 30_040)),
        (NEWEST, 50, (MOVED, 50, 2, 40), (MOVED, 30_040, 30_002, 30_040)),
    ],
)
def test_pull_answer_when_of_a_segment_then_it_is_told_in_logical_offsets(
    segment: object, physical: int, answer: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """A row for each rule of the reference."""
    assert isinstance(segment, type(OLDEST))
    assert logical_answer(QUEUE, segment, physical, PullAnswer(*answer)) == expected


def test_pull_answer_when_the_next_segment_is_undecided_then_the_consumer_waits() -> None:
    """It must not go on anywhere until it is known where."""
    answer = PullAnswer(NOT_FOUND, 40, 2, 40)
    assert logical_answer(OPEN, OLDEST, 40, answer) == (NOT_FOUND, 40, 2, 40)


@pytest.mark.parametrize(
    ("end", "begin"),
    [(-1, 10_000), (0, 10_000), (1, 10_000), (4_999, 10_000), (5_000, 20_000), (9_999, 20_000),
     (10_000, 20_000), (14_999, 20_000), (15_000, 30_000)],
)  # fmt: skip
def test_block_when_a_queue_ends_then_the_next_begins_at_javas_offset(end: int, begin: int) -> None:
    """The reference's formula."""
    assert block_above(end) == begin


@given(end=st.integers(0, 1 << 62))
def test_block_when_messages_come_late_then_thousands_fit_before_it(end: int) -> None:
    """They were on their way when the end was looked at."""
    begin = block_above(end)
    assert begin % 10_000 == 0
    assert 5_000 < begin - end <= 15_000
