"""Plans: who gets which queue, what is refused, and what is done about what brokers disagree on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.statictopic.known import (
    Known,
    KnownTopic,
    PlanRefused,
    histories,
    is_stale,
    is_unfinished,
)
from rmqha.statictopic.mapping import TopicQueueMappingDetail
from rmqha.statictopic.placement import balancing_moves, draining_moves, leaders_by_queue
from rmqha.statictopic.plan import (
    LOST_GENERATIONS,
    LOST_OFFSETS,
    grow,
    next_epoch,
    remap,
    retell,
)
from rmqha.statictopic.steps import Look, Step, Tell, check, steps
from tests.statictopic.examples import TOPIC, detail, item
from tests.statictopic.model import ModelCluster


def known(*details: TopicQueueMappingDetail, more: tuple[str, ...] = (), nums: int = 8) -> Known:
    """What brokers know; those of ``more`` have never heard of the topic."""
    brokers = {one.broker_name: KnownTopic(nums, nums, one) for one in details}
    return Known(TOPIC, {**brokers, **dict.fromkeys(more, KnownTopic())})


NOBODY = known(more=("a", "b"))
A = detail("a", {0: (item(0, "a", 0, 0),), 1: (item(0, "a", 1, 0),)})
B = detail("b")
TWO = known(A, B)


def tells(change: object) -> list[Step]:
    """The steps of a change whose queues are all empty."""
    walk, found = steps(change), []  # type: ignore[arg-type]
    try:
        step = next(walk)
        while True:
            found.append(step)
            step = walk.send(dict.fromkeys(step.queue_ids, 0) if isinstance(step, Look) else {})
    except StopIteration:
        return found


# -- placement -------------------------------------------------------------------------------------


def cluster_of(leading: list[str], names: tuple[str, ...]) -> Known:
    """Brokers that lead queues in this order."""
    lists: dict[str, dict[int, tuple[object, ...]]] = {name: {} for name in names}
    for logical, name in enumerate(leading):
        lists[name][logical] = (item(0, name, len(lists[name]), 0),)
    return known(
        *(detail(name, lists[name], total=len(leading)) for name in names)  # type: ignore[arg-type]
    )


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


# -- plans -----------------------------------------------------------------------------------------


def test_create_when_planned_then_queues_are_spread_and_others_are_fenced() -> None:
    """The example of the reference: a broker that is no target answers 501."""
    found = tells(grow(known(more=("a", "b", "c")), 3, ["a", "b"], 5_000))
    assert [(one.broker_name, one.write_queue_nums) for one in found if isinstance(one, Tell)] == [
        ("a", 2), ("b", 1), ("c", 0),
    ]  # fmt: skip
    first, second, third = [one.detail for one in found if isinstance(one, Tell)]
    assert (first.epoch, first.total_queues, first.curr_id_map) == (5_000, 3, {0: 0, 2: 1})
    assert (second.curr_id_map, third.hosted_queues) == ({1: 0}, {})
    # The first knows all of them, in case nobody else is told.
    assert first.hosted_queues[1] == second.hosted_queues[1]


def test_grow_when_planned_then_new_queues_lie_behind_every_queue_that_was_used() -> None:
    """Somebody had set the number of write queues back."""
    known_less = known(A, B, nums=1)
    lists = grow(known_less, 4, ["a", "b"], 5_000).histories
    assert lists[2] == (item(0, "b", 1, 0),)
    assert lists[3] == (item(0, "b", 2, 0),)
    assert grow(known_less, 3, ["a"], 5_000).histories[2] == (item(0, "a", 2, 0),)


@pytest.mark.parametrize(
    ("brokers", "count", "targets", "words"),
    [
        (TWO, 1, ["a"], "has 2 logical queues; it can have more"),
        (TWO, 65_537, ["a"], "but not 65537"),
        (TWO, 3, ["x"], "x is not in the cluster"),
        (TWO, 3, [], "no broker set is there"),
        (Known(TOPIC, {"a": KnownTopic(8, 8)}), 3, ["a"], "is an ordinary topic at a"),
        (known(detail("a", A.hosted_queues, dirty=True)), 3, ["a"], "marked dirty"),
    ],
)
def test_grow_when_it_cannot_be_then_it_says_why(
    brokers: Known, count: int, targets: list[str], words: str
) -> None:
    """Before anything is changed."""
    with pytest.raises(PlanRefused, match=words):
        grow(brokers, count, targets, 5_000)


def test_epoch_when_chosen_then_it_is_newer_than_any_clock_says() -> None:
    """Clocks of operators' machines go wrong."""
    assert (next_epoch(NOBODY, 7), next_epoch(TWO, 7), next_epoch(TWO, 9_999)) == (
        999, 2_000, 9_999,
    )  # fmt: skip


def test_remap_when_planned_then_all_queues_of_a_pair_go_in_one_pass() -> None:
    """The stop of each is as short as three requests."""
    change = remap(TWO, {0: "b", 1: "b"}, 5_000)
    assert [
        (one.broker_name, one.phase.name if isinstance(one, Tell) else one.queue_ids)
        for one in tells(change)
    ] == [
        ("b", "MAP_IN"), ("a", "MAP_OUT"), ("a", (0, 1)), ("b", "DECIDED"), ("a", "ALL"),
    ]  # fmt: skip
    last = tells(change)[-1]
    assert isinstance(last, Tell)
    # Java's mqadmin leaves -1 here.
    assert [segments[-1].logic_offset for segments in last.detail.hosted_queues.values()] == [
        10_000, 10_000,
    ]  # fmt: skip


def test_remap_when_two_brokers_change_places_then_it_is_finished_all_the_same() -> None:
    """Each leads a queue that comes and has led one that goes."""
    one = cluster_of(["a", "b"], ("a", "b"))
    check(remap(one, {0: "b", 1: "a"}, 5_000))
    cluster = ModelCluster("ab")
    cluster.run(grow(cluster.known(), 2, ["a", "b"], 1))
    assert cluster.run(remap(cluster.known(), {0: "b", 1: "a"}, 2), between=lambda: cluster.send(0))
    cluster.assert_settled()
    cluster.assert_offsets()


def test_remap_when_the_queue_is_there_already_then_only_epochs_change() -> None:
    """An operator typed the same command twice."""
    change = remap(TWO, {0: "a"}, 5_000)
    assert change.histories == histories(TWO)
    assert change.undecided == {}


UNDECIDED = (item(0, "a", 0, 0), item(1, "b", 8))


@pytest.mark.parametrize(
    ("brokers", "moves", "words"),
    [
        (TWO, {2: "a"}, "has no logical queue 2"),
        (TWO, {0: "x"}, "x is not in the cluster"),
        (known(detail("b", {0: UNDECIDED})), {0: "b"}, None),
        (known(A, detail("b", {0: UNDECIDED})), {0: "a"}, "has not been finished"),
        (known(B), {0: "b"}, "led by a broker that is not there"),
        (known(detail("a", {0: (item(0, "z", 0, 0),)})), {0: "a"}, "led by z, which is not there"),
    ],
)
def test_remap_when_it_cannot_be_then_it_says_why(
    brokers: Known, moves: dict[int, str], words: str | None
) -> None:
    """Before anything is changed; a queue that is where it shall be needs nothing."""
    if words is None:
        remap(brokers, moves, 5_000)
        return
    with pytest.raises(PlanRefused, match=words):
        remap(brokers, moves, 5_000)


def test_plan_when_a_broker_would_refuse_it_then_nothing_is_begun() -> None:
    """Half a remap is worse than none."""
    other = (item(0, "b", 0, 0), item(1, "a", 3, 10_000))
    stale = detail("a", {0: (item(0, "a", 0, 0), item(1, "c", 0))})
    torn = known(stale, detail("b", {0: other}), detail("c", {1: (item(0, "c", 1, 0),)}))
    with pytest.raises(PlanRefused, match="a would refuse its mapping"):
        check(retell(torn, 5_000))
    check(retell(torn, 5_000, force=True))


# -- what brokers disagree on ----------------------------------------------------------------------


def test_history_when_java_left_it_undecided_at_the_old_leader_then_the_new_ones_counts() -> None:
    """Java's mqadmin never tells a broker where the queue went on."""
    decided = (UNDECIDED[0], item(1, "b", 8, 10_000))
    one = known(detail("a", {0: UNDECIDED}), detail("b", {0: decided}), nums=9)
    one = one.with_broker("a", KnownTopic(9, 9, detail("a", {0: UNDECIDED}, total=1)))
    one = one.with_broker("b", KnownTopic(9, 9, detail("b", {0: decided}, total=1)))
    assert histories(one) == {0: decided}
    assert (is_unfinished(one), is_stale(one)) == (False, True)
    assert [step.broker_name for step in tells(retell(one, 5_000))] == ["a", "b"]


def test_history_when_segments_have_expired_then_the_leaders_list_counts() -> None:
    """Others learn late what was cleaned away."""
    new = item(1, "b", 0, 10_000)
    one = known(
        detail("a", {0: (item(0, "a", 0, 0), new)}, total=1), detail("b", {0: (new,)}, total=1)
    )
    assert histories(one) == {0: (new,)}
    assert not is_stale(one)


def test_history_when_two_commands_ran_at_once_then_the_fenced_leader_counts() -> None:
    """Both gave the queue away; the old leader stopped for one of them only."""
    for_b, for_c = UNDECIDED, (UNDECIDED[0], item(1, "c", 0))
    one = known(
        detail("a", {0: for_b}, epoch=2000),
        detail("b", {0: for_b}, epoch=2000),
        detail("c", {0: for_c}, epoch=3000),
    )
    assert histories(one) == {0: for_b}
    assert is_unfinished(one)
    decided = (UNDECIDED[0], item(1, "c", 0, 10_000))
    assert histories(one.with_broker("c", KnownTopic(1, 1, detail("c", {0: decided})))) == {
        0: decided
    }


@pytest.mark.parametrize(
    ("brokers", "unfinished", "stale"),
    [
        (TWO, False, False),
        (known(A, B, more=("c",)), False, True),
        (known(A, detail("b", epoch=2000)), False, True),
        (known(A, detail("b", total=3)), False, True),
        (known(A, detail("b", dirty=True)), False, True),
        (known(A, detail("b", {0: UNDECIDED})), True, True),
        # Nobody but the scribe was told that b leads a queue.
        (known(detail("a", {0: (item(0, "b", 0, 0),)}, total=1), B), True, True),
        # The leader is away: there is nothing that could be finished.
        (known(detail("a", {0: (item(0, "z", 0, 0),)}, total=1)), False, False),
    ],
)
def test_topic_when_looked_at_then_what_is_left_to_do_is_known(
    brokers: Known, unfinished: bool, stale: bool
) -> None:
    """The next command does it first."""
    assert (is_unfinished(brokers), is_stale(brokers)) == (unfinished, stale)


# -- brokers that are away for good ----------------------------------------------------------------


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
