"""How much is acknowledged before each fault, and what tells one course from another."""

from __future__ import annotations

import pytest

from rmqha.chaos.course import Course


@pytest.mark.parametrize(
    ("rounds", "messages", "shares"),
    [(1, 900, [900]), (4, 1_000_000, [250_000, 500_000, 750_000, 1_000_000]), (3, 10, [3, 6, 10]),
     (2, 0, [0, 0])],
)  # fmt: skip
def test_messages_when_shared_by_rounds_then_all_are_there_before_the_last_fault(
    rounds: int, messages: int, shares: list[int]
) -> None:
    course = Course(rounds, messages=messages)
    assert [course.acknowledged_before(number) for number in range(rounds)] == shares


def test_courses_when_told_then_whatever_was_asked_for_is_in_it() -> None:
    """A cell that was kept is of another course as soon as one of these differs."""
    assert Course(2, 500, 0).words == ["2 rounds of 500 ms, 0 ms between two"]
    course = Course(2, 500, 0, services=True, topics=16, messages=900, batch=10)
    assert course.words[1:] == ["services", "16 topics", "10 messages a send", "900 messages"]
