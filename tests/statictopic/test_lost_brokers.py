"""Brokers that are away for good, or were thought to be."""

from __future__ import annotations

import pytest

from rmqha.statictopic.known import PlanRefused, histories, is_unfinished
from rmqha.statictopic.placement import balancing_moves
from rmqha.statictopic.plan import LOST_GENERATIONS, LOST_OFFSETS, grow, remap, retell
from rmqha.statictopic.steps import check
from tests.statictopic.model import ModelCluster


def lost_cluster() -> ModelCluster:
    """Queues 0 and 2 at a, 1 at b with a past at a; a is gone."""
    cluster = ModelCluster("abc")
    cluster.run(grow(cluster.known(), 3, ["a", "b"], 1))
    cluster.run(remap(cluster.known(), {1: "a"}, 2))
    cluster.run(remap(cluster.known(), {1: "b"}, 3))
    for logical in range(3):
        cluster.send(logical, 4)
    cluster.away.add("a")
    return cluster


def test_lost_broker_when_given_up_then_its_queues_go_on_far_behind_it() -> None:
    """Where it ended nobody can say; consumers skip the gap, and no offset comes twice."""
    cluster = lost_cluster()
    moves = balancing_moves(cluster.known(), ["b", "c"])
    with pytest.raises(PlanRefused, match="it is given up"):
        remap(cluster.known(), moves, 10)
    assert cluster.run(remap(cluster.known(), moves, 10, force=True))
    for logical in range(3):
        cluster.send(logical)
    assert [cluster.told[cluster.taken[logical][-1]] for logical in (0, 2)] == [LOST_OFFSETS] * 2
    cluster.assert_settled()


def test_lost_broker_when_it_comes_back_then_it_stops_leading_and_its_messages_are_found() -> None:
    """Somebody had given it up too early."""
    cluster = lost_cluster()
    moves = balancing_moves(cluster.known(), ["b", "c"])
    cluster.run(remap(cluster.known(), moves, 10, force=True))
    for logical in range(3):
        cluster.send(logical)
    cluster.away.clear()
    assert is_unfinished(cluster.known())
    assert cluster.run(retell(cluster.known(), 11))
    cluster.assert_settled()
    cluster.assert_offsets()
    cluster.assert_consumed()


def test_lost_broker_when_it_was_to_lead_then_the_move_is_given_up_too() -> None:
    """It had been told, and the old leader had stopped."""
    cluster = ModelCluster("abc")
    cluster.run(grow(cluster.known(), 1, ["a"], 1))
    cluster.send(0, 2)
    cluster.run(remap(cluster.known(), {0: "b"}, 2), crash_after=2)
    cluster.away.add("b")
    assert cluster.run(remap(cluster.known(), {0: "c"}, 3, force=True))
    cluster.send(0)
    last = histories(cluster.known())[0][-1]
    assert (last.gen, last.logic_offset) == (1 + LOST_GENERATIONS, 2 * LOST_OFFSETS)
    cluster.assert_settled()


def test_lost_broker_when_it_led_before_the_end_was_seen_then_the_new_leader_need_not_wait() -> (
    None
):
    """Only with force: it may come back."""
    cluster = ModelCluster("ab")
    cluster.run(grow(cluster.known(), 1, ["a"], 1))
    cluster.run(remap(cluster.known(), {0: "b"}, 2), crash_after=1)
    cluster.away.add("a")
    with pytest.raises(PlanRefused, match="a broker that is not there ended"):
        check(retell(cluster.known(), 3))
    assert cluster.run(retell(cluster.known(), 3, force=True))
    cluster.send(0)
    assert cluster.told[0] == LOST_OFFSETS
