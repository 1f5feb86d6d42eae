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


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize(
    ("places", "lost"),
    [
        ("ab", "a"),
        ("bac", "a"),
        ("abc", "b"),
        ("acb", "a"),
        ("bab", "a"),
        ("ba", "a"),
        ("abc", "c"),
    ],
)
def test_lost_broker_when_the_command_that_takes_it_back_dies_then_its_messages_are_found(
    places: str, lost: str, at: int
) -> None:
    """Whoever was told before it died has a newer epoch than the leader: that hides nothing."""
    cluster = read_only_cluster(places)
    cluster.away.add(lost)
    lead = {0: min({*"abc"} - {lost})} if places[-1] == lost else {}
    assert cluster.run(remap(cluster.known(), lead, 10, force=True))
    cluster.send(0)
    cluster.away.clear()
    cluster.run(retell(cluster.known(), 11), crash_after=at)
    if is_stale(cluster.known()):
        assert cluster.run(retell(cluster.known(), 12))
    cluster.assert_settled()
    cluster.assert_offsets()
    cluster.assert_consumed()


@pytest.mark.parametrize("force", [False, True])
def test_lost_broker_when_it_was_told_on_its_own_meanwhile_then_its_messages_are_found(
    force: bool,
) -> None:
    """An operator on its side of the network ran a command there, after all others gave it up."""
    cluster = read_only_cluster("ab")
    cluster.away = {"b"}
    assert cluster.run(remap(cluster.known(), {0: "c"}, 10_000, force=True))
    cluster.away = {"a", "c"}
    assert cluster.run(retell(cluster.known(), 20_000, force=force))
    cluster.send(0)
    cluster.away = set()
    assert cluster.run(retell(cluster.known(), 30_000))
    cluster.send(0)
    cluster.assert_settled()
    cluster.assert_offsets()
    cluster.assert_consumed()


def test_history_when_a_set_that_was_lost_was_to_lead_then_what_it_had_before_is_found() -> None:
    """Its newest segment has no beginning, and nobody wrote to it; the rest is as good as ever."""
    first, lost = item(0, "a", 0, 0), (item(1, "b", 0, 10_000), item(2, "a", 1))
    after = (item(1, "b", 0, 10_000), item(1_000_002, "b", 1, 10**12))
    at_a = detail("a", {0: (first, *lost)}, total=1)
    at_b = detail("b", {0: after}, total=1, epoch=9_000)
    assert histories(known(at_a, at_b))[0] == (first, *after)


def test_lost_broker_when_the_queue_moves_on_by_the_same_command_then_its_segments_go() -> None:
    """The new leader's beginning is not decided yet, and has nothing to do with them."""
    cluster = read_only_cluster("ab")
    cluster.away.add("a")
    assert cluster.run(remap(cluster.known(), {0: "c"}, 10, force=True))
    assert [one.broker_name for one in histories(cluster.known())[0]] == ["b", "c"]
    cluster.send(0)
    cluster.away.clear()
    assert cluster.run(retell(cluster.known(), 11))
    cluster.assert_settled()
    cluster.assert_offsets()
    cluster.assert_consumed()


def test_lost_broker_when_it_was_before_one_that_was_to_lead_then_its_beginning_still_counts() -> (
    None
):
    """Both are lost: what goes on behind them goes on behind all that the first can have taken."""
    lost = (item(0, "z", 0, 0), item(1, "a", 0, 10_000), item(2, "b", 0, 20_000), item(3, "c", 0))
    at_a = known(detail("a", {0: lost}, total=1))
    assert remap(at_a, {}, 10, force=True).histories[0] == lost[1:]
    last = remap(at_a, {0: "a"}, 10, force=True).histories[0][-1]
    assert last.logic_offset == 20_000 + 2 * LOST_OFFSETS


def test_history_when_a_segment_has_expired_then_a_set_that_lists_it_does_not_bring_it_back() -> (
    None
):
    """It has heard of the leader's newest change, so it was not away; it drops its list in its own time."""
    first, last = (item(0, "a", 0, 0), item(1, "b", 0, 10_000))
    at_a, at_b = detail("a", {0: (first, last)}, total=1), detail("b", {0: (last,)}, total=1)
    assert histories(known(at_a, at_b))[0] == (last,)
    assert histories(known(replace(at_a, epoch=999), at_b))[0] == (first, last)
    # Of two leaders of one generation one is the right one.
    rival = item(0, "c", 5, 0)
    at_b = detail("b", {0: (rival, last)}, total=1)
    assert histories(known(replace(at_a, epoch=999), at_b))[0] == (rival, last)
