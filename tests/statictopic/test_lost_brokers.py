"""Brokers that are away for good, or were thought to be."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.statictopic.known import PlanRefused, histories, is_stale, is_unfinished
from rmqha.statictopic.placement import balancing_moves
from rmqha.statictopic.plan import LOST_GENERATIONS, LOST_OFFSETS, grow, remap, retell
from rmqha.statictopic.steps import check
from tests.statictopic.examples import detail, item, known
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


def read_only_cluster(places: str) -> ModelCluster:
    """One queue that was at each of these brokers, with messages from each of its times."""
    cluster = ModelCluster("abc")
    cluster.run(grow(cluster.known(), 1, [places[0]], 1))
    cluster.send(0, 2)
    for at, name in enumerate(places[1:], 2):
        cluster.run(remap(cluster.known(), {0: name}, at))
        cluster.send(0, 2)
    return cluster


@pytest.mark.parametrize(
    ("places", "left"), [("ab", "b"), ("bab", "bb"), ("bacb", "bcb"), ("ba", "bb")]
)
def test_lost_broker_when_it_only_had_older_messages_then_force_takes_its_segments_out(
    places: str, left: str
) -> None:
    """Whoever reads, or looks for its place, would be sent to a broker that is not there."""
    cluster = read_only_cluster(places)
    cluster.away.add("a")
    lead = {0: "b"} if places[-1] == "a" else {}
    if not lead:
        assert len(remap(cluster.known(), lead, 10).histories[0]) == len(places), "may come back"
    assert cluster.run(remap(cluster.known(), lead, 10, force=True))
    assert "".join(one.broker_name for one in histories(cluster.known())[0]) == left
    cluster.send(0)
    cluster.assert_settled()


@pytest.mark.parametrize("places", ["ab", "bab", "bacb", "ba", "acb"])
def test_lost_broker_when_it_only_had_older_messages_and_is_back_then_they_are_found(
    places: str,
) -> None:
    """They stand where they stood, also when the queue has moved on meanwhile."""
    cluster = read_only_cluster(places)
    cluster.away.add("a")
    cluster.run(remap(cluster.known(), {0: "b"}, 10, force=True))
    cluster.send(0)
    cluster.run(remap(cluster.known(), {0: "c"}, 11))
    cluster.send(0)
    cluster.away.clear()
    assert is_stale(cluster.known())
    assert cluster.run(retell(cluster.known(), 12))
    cluster.assert_settled()
    cluster.assert_offsets()
    cluster.assert_consumed()


def test_history_when_a_segment_has_expired_then_a_set_that_lists_it_does_not_bring_it_back() -> (
    None
):
    """It has heard of the newest change, so it was not away; it drops its list at its own hour."""
    first, last = (item(0, "a", 0, 0), item(1, "b", 0, 10_000))
    at_a, at_b = detail("a", {0: (first, last)}, total=1), detail("b", {0: (last,)}, total=1)
    assert histories(known(at_a, at_b))[0] == (last,)
    assert histories(known(replace(at_a, epoch=999), at_b))[0] == (first, last)
    # Of two leaders of one generation one is the right one.
    rival = item(0, "c", 5, 0)
    at_b = detail("b", {0: (rival, last)}, total=1)
    assert histories(known(replace(at_a, epoch=999), at_b))[0] == (rival, last)
