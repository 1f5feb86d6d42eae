"""Questions about some of a topic's queues."""

from __future__ import annotations

import pytest

from rmqha.remoting.asked_queues import ASKED_QUEUES, asked_fields, asked_queues


def test_queues_when_asked_for_then_they_alone_are_answered_and_in_order() -> None:
    """A remap would wait for the ends of thousands of queues that it does not need."""
    assert asked_fields([9, 2, 30]) == {ASKED_QUEUES: "2,9,30"}
    assert [*asked_queues(asked_fields([9, 2, 30]), 31)] == [2, 9, 30]


@pytest.mark.parametrize("queue_ids", [[], range(40_000)])
def test_queues_when_none_or_too_many_are_named_then_all_are_meant(queue_ids: list[int]) -> None:
    """A header that is too long would be refused."""
    assert asked_fields(queue_ids) == {}
    assert [*asked_queues({}, 3)] == [*asked_queues(None, 3)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "found"),
    [("", []), ("1,3,1", [1]), ("x,2", [2]), ("-1,-2,-0", [0]), ("1_0, 1", []), ("9" * 99, [])],
)
def test_queues_when_they_are_none_of_the_topics_then_they_are_passed_over(
    text: str, found: list[int]
) -> None:
    """Whoever asked finds out by what misses in the answer."""
    assert [*asked_queues({ASKED_QUEUES: text}, 3)] == found
