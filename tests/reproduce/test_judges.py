"""What the scenarios make of what they saw: red, green, and neither."""

from __future__ import annotations

import pytest

from tests.reproduce.finding import Finding, Outcome, bug, is_shown, right, unclear
from tests.reproduce.scenarios import SCENARIOS

RED, GREEN, NEITHER = Outcome.BUG, Outcome.RIGHT, Outcome.UNCLEAR
REPLACED, KEPT = ((1, 1), (2, 2)), ((1, 1), (1, 1))
NO_MASTER = ((None, 0), (None, 0))

EXAMPLES: list[tuple[int, tuple[object, ...], Outcome]] = [
    (1, REPLACED, RED), (1, KEPT, GREEN), (1, NO_MASTER, NEITHER),
    (2, ({1: True, 2: False, 3: True},), RED), (2, ({1: True, 2: True, 3: False},), RED),
    (2, ({1: True, 2: False, 3: False},), GREEN), (2, ({1: True, 2: True, 3: True},), NEITHER),
    (2, ({1: False, 2: False, 3: False},), NEITHER), (2, ({1: True},), NEITHER),
    (3, REPLACED, RED), (3, KEPT, GREEN), (3, NO_MASTER, NEITHER),
    (4, (2,), RED), (4, (3,), GREEN), (4, (None,), NEITHER),
    (5, REPLACED, RED), (5, KEPT, GREEN), (5, NO_MASTER, NEITHER),
    (6, (True, 2012), RED), (6, (True, 0), GREEN), (6, (False, 2012), NEITHER),
    (6, (True, 2007), NEITHER),
    (7, (1,), RED), (7, (7,), RED), (7, (8,), GREEN), (7, (0,), NEITHER),
    (8, ((99, None), 2012), RED), (8, ((99, "h:1"), 0), RED), (8, ((None, None), 2012), RED),
    (8, ((None, None), 0), GREEN), (8, ((None, None), 2007), NEITHER),
    (9, (3, 2014), RED), (9, (4, 0), GREEN), (9, (4, 2014), NEITHER), (9, (3, 0), NEITHER),
    (10, (0, None), RED), (10, (0, []), RED), (10, (0, [1, 2]), GREEN),
    (10, (0, [1, 2, 3]), NEITHER), (10, (2009, [1, 2, 3]), NEITHER),
    (11, ("1", None), RED), (11, ("1", "1"), GREEN), (11, (None, None), NEITHER),
    (12, (1, 4), RED), (12, (1, 2), GREEN), (12, (1, None), NEITHER), (12, (1, 1), NEITHER),
    (16, (([1, 2], 2), ([1], 2)), RED), (16, (([1, 2], 2), ([1], 3)), GREEN),
    (16, (([1, 2], 2), ([1, 2], 2)), NEITHER), (16, (([1], 1), ([1], 2)), NEITHER),
    (19, (0, False), RED), (19, (16, True), GREEN), (19, (0, True), NEITHER),
    (19, (16, False), NEITHER),
    (17, REPLACED, RED), (17, KEPT, GREEN), (17, NO_MASTER, NEITHER),
    (23, ("127.0.0.1:1",), RED), (23, ("127.0.0.1:1001",), GREEN), (23, (None,), NEITHER),
    (25, ([2.0, 2.1, 4.8, 2.0, 2.0],), RED), (25, ([2.0, None, 2.0, 2.0, 2.0],), RED),
    (25, ([2.0, 2.0, 2.1, 2.0, 2.0],), GREEN),
    (26, (14.0,), RED), (26, (None,), RED), (26, (0.2,), GREEN),
    (30, (0, [1]), RED), (30, (2009, [1, 2]), GREEN), (30, (0, [1, 2]), NEITHER),
    (36, (2, [(2007, None), (0, "1")]), RED), (36, (2, [(2007, None), (0, "2")]), GREEN),
    (36, (1, [(0, "1")]), NEITHER), (36, (2, []), NEITHER),
    (37, (5.0, 1), RED), (37, (10.0, None), RED), (37, (0.4, 2007), GREEN), (37, (0.1, 0), NEITHER),
    (38, (8.6,), RED), (38, (None,), RED), (38, (0.02,), GREEN),
    (41, (None,), RED), (41, (2.0,), GREEN), (41, (14.0,), GREEN),
]  # fmt: skip


@pytest.mark.parametrize(("number", "facts", "outcome"), EXAMPLES)
def test_judge_when_facts_are_given_then_its_color(
    number: int, facts: tuple[object, ...], outcome: Outcome
) -> None:
    """Only what is named in the row is the bug; what is not understood is neither."""
    scenario = SCENARIOS[number]
    seen = scenario.play.__globals__["Seen"](*facts)
    found = scenario.judge(seen)
    assert found.outcome is outcome, found.words
    assert found.words


def test_scenarios_when_counted_then_each_can_be_red_and_green() -> None:
    """A judge that knows one answer judges nothing."""
    colors = {number: {one for n, _, one in EXAMPLES if n == number} for number in SCENARIOS}
    assert all({RED, GREEN} <= mine for mine in colors.values()), colors


@pytest.mark.parametrize(
    ("java", "ours", "shown"),
    [
        (bug("a"), right("b"), True),
        (bug("a"), bug("b"), False),
        (right("a"), right("b"), False),
        (bug("a"), unclear("b"), False),
        (unclear("a"), right("b"), False),
        (right("a"), bug("b"), False),
    ],
)
def test_pair_when_judged_then_only_red_and_green_is_a_success(
    java: Finding, ours: Finding, shown: bool
) -> None:
    """The exit code says so."""
    assert is_shown(java, ours) is shown
