"""Plans: what brokers are to be told, and what is refused before anything is."""

from __future__ import annotations

import pytest

from rmqha.statictopic.known import Known, KnownTopic, PlanRefused, histories
from rmqha.statictopic.plan import grow, next_epoch, remap, retell
from rmqha.statictopic.steps import Tell, check
from tests.statictopic.examples import TOPIC, UNDECIDED, A, B, cluster_of, detail, item, known
from tests.statictopic.model import ModelCluster, steps_of

NOBODY = known(more=("a", "b"))
TWO = known(A, B)


def test_create_when_planned_then_queues_are_spread_and_others_are_fenced() -> None:
    """The example of the reference: a broker that is no target answers 501."""
    found = steps_of(grow(known(more=("a", "b", "c")), 3, ["a", "b"], 5_000))
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


def test_plan_when_a_set_has_had_all_queues_then_refused_before_anybody_is_told() -> None:
    """A broker would refuse it when the queue's old leader has stopped already."""
    full = known(
        detail("a", {0: (item(0, "a", 65_534, 0),)}), detail("b", {1: (item(0, "b", 0, 0),)})
    )
    assert grow(full, 3, ["a"], 5_000).queue_nums()["a"] == (65_536, 65_536)
    with pytest.raises(PlanRefused, match="a has no queue left of the 65536"):
        grow(full, 4, ["a"], 5_000)
    last = known(
        detail("a", {0: (item(0, "a", 65_535, 0),)}), detail("b", {1: (item(0, "b", 0, 0),)})
    )
    check(remap(last, {0: "b"}, 5_000))
    with pytest.raises(PlanRefused, match="a has no queue left of the 65536"):
        remap(last, {1: "a"}, 5_000)


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
        for one in steps_of(change)
    ] == [
        ("b", "MAP_IN"), ("a", "MAP_OUT"), ("a", (0, 1)), ("b", "DECIDED"), ("a", "ALL"),
    ]  # fmt: skip
    last = steps_of(change)[-1]
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
