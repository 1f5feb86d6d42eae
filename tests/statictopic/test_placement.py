"""Who gets which queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.statictopic.known import PlanRefused
from rmqha.statictopic.placement import balancing_moves, draining_moves, leaders_by_queue
from tests.statictopic.examples import cluster_of


@given(
    leading=st.lists(st.sampled_from("abcd"), min_size=1, max_size=20),
    targets=st.lists(st.sampled_from("abcd"), min_size=1, unique=True),
)
def test_balance_when_moved_then_only_targets_lead_and_no_move_is_wasted(
    leading: list[str], targets: list[str]
) -> None:
    """Every move costs a stop and a segment."""
    moves = balancing_moves(cluster_of(leading, ("a", "b", "c", "d")), targets)
    after = [moves.get(logical, name) for logical, name in enumerate(leading)]
    loads = [after.count(name) for name in targets]
    assert sum(loads) == len(leading)
    assert max(loads) - min(loads) <= 1
    # A broker either gives queues away or gets some.
    assert not {leading[logical] for logical in moves} & set(moves.values())


def test_balance_when_it_is_there_already_then_nothing_moves() -> None:
    """Also where who has one more is not the first by name."""
    assert balancing_moves(cluster_of(["b", "b", "a"], ("a", "b")), ["a", "b"]) == {}


def test_drain_when_planned_then_only_its_queues_move() -> None:
    """Others would be stopped for nothing."""
    one = cluster_of(["a", "a", "b", "b", "c"], ("a", "b", "c"))
    assert draining_moves(one, "a", ["a", "b", "c"]) == {0: "c", 1: "b"}
    assert leaders_by_queue(one)[0] == "a"
    with pytest.raises(PlanRefused, match="no broker set is there"):
        draining_moves(one, "a", ["a"])
