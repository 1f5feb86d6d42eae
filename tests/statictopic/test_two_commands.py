"""Two operators change one topic at the same time."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.statictopic.known import Known, PlanRefused, histories, is_stale
from rmqha.statictopic.placement import balancing_moves
from rmqha.statictopic.plan import Change, grow, remap, retell
from rmqha.statictopic.steps import Steps, steps
from tests.statictopic.examples import item
from tests.statictopic.model import ModelCluster

pytestmark = pytest.mark.slow

NAMES = ("a", "b", "c")
Wish = tuple[str, int, tuple[str, ...]]
TARGETS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True).map(tuple)
WISHES = st.tuples(st.sampled_from(["grow", "remap"]), st.integers(1, 2), TARGETS)


def planned(known: Known, wish: Wish, now_ms: int) -> Change:
    """What one of them wants, by what brokers knew before the other began."""
    kind, more, targets = wish
    if kind == "grow":
        return grow(known, known.total_queues + more, targets, now_ms)
    return remap(known, balancing_moves(known, targets), now_ms)


class Race:
    """Two commands whose steps alternate as a schedule says; one that is refused stops."""

    def __init__(self, first: Wish, second: Wish, *, same_ms: bool = False) -> None:
        self.cluster = ModelCluster(NAMES)
        self.cluster.run(grow(self.cluster.known(), 3, ["a", "b"], 1))
        self.send()
        known = self.cluster.known()
        self.walks: list[Steps | None] = [
            steps(planned(known, first, 10_000)),
            steps(planned(known, second, 10_000 if same_ms else 10_001)),
        ]
        self.answers: list[dict[int, int] | None] = [None, None]
        self.outcomes: Counter[str] = Counter()

    def send(self) -> None:
        for logical in range(self.cluster.known().total_queues):
            self.cluster.send(logical)

    def move(self, who: int) -> None:
        """Take one step of one command."""
        walk = self.walks[who]
        if walk is None:
            return
        try:
            step = walk.send(self.answers[who])  # type: ignore[arg-type]
        except StopIteration:
            self.outcomes["done"] += 1
            self.walks[who] = None
            return
        if self.cluster.refusal(step) is not None:
            self.outcomes["refused"] += 1
            self.walks[who] = None
            return
        self.answers[who] = self.cluster.carry_out(step)
        self.send()

    def run(self, schedule: list[int]) -> ModelCluster:
        """Run both to their end, then finish what they have left."""
        for who in schedule:
            self.move(who)
        while any(self.walks):
            self.move(0)
            self.move(1)
        cluster = self.cluster
        if is_stale(cluster.known()):
            assert cluster.run(retell(cluster.known(), 20_000, force=True), between=self.send)
        self.send()
        cluster.assert_settled()
        cluster.assert_offsets()
        cluster.assert_consumed()
        assert all(self.cluster.taken[logical] for logical in range(cluster.known().total_queues))
        return cluster


@settings(max_examples=200)
@given(
    first=WISHES,
    second=WISHES,
    schedule=st.lists(st.integers(0, 1), max_size=24),
    same_ms=st.booleans(),
)
def test_race_when_two_commands_run_then_no_queue_has_two_leaders_and_the_rest_is_finished(
    first: Wish, second: Wish, schedule: list[int], same_ms: bool
) -> None:
    """Whoever comes second is refused by the broker that both need, or wants the same."""
    Race(first, second, same_ms=same_ms).run(schedule)


def test_race_when_both_take_a_queue_away_then_the_old_leader_stops_for_one_only() -> None:
    """The other's new leader never learns where to begin."""
    race = Race(("remap", 1, ("c",)), ("remap", 1, ("b",)))
    race.run([0, 1, 0, 1, 0, 1, 0, 1])
    assert race.outcomes["refused"] >= 1


def test_race_when_both_give_new_queues_then_the_first_broker_decides() -> None:
    """It is told all new queues before their leaders are."""
    race = Race(("grow", 1, ("b",)), ("grow", 1, ("c",)))
    cluster = race.run([0, 1, 0, 1, 0, 1])
    assert race.outcomes["refused"] == 1
    assert cluster.known().total_queues == 4


def test_race_when_both_take_one_physical_queue_then_the_one_that_is_not_led_gets_another() -> None:
    """A new queue was noted at the first broker; its leader had given the place to a moved one."""
    every = ("a", "b", "c")
    cluster = Race(("grow", 1, every), ("remap", 1, every)).run([0, 1, 0, 1])
    assert histories(cluster.known())[3] == (item(1, "c", 1, 0),)


def test_finish_when_two_have_raced_then_it_says_that_force_settles_it() -> None:
    """A broker waits to lead a queue that it will never get."""
    race = Race(("remap", 1, ("c",)), ("remap", 1, ("b",)))
    for who in (0, 1, 0, 0, 0, 0, 0, 0, 1, 1):
        race.move(who)
    with pytest.raises(PlanRefused, match="-fr true"):
        list(steps(retell(race.cluster.known(), 20_000)))
