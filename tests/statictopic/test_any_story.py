"""Any story of a static topic: creates, grows, moves and drains, and commands that die in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.statictopic import known as known_module
from rmqha.statictopic import steps as steps_module
from rmqha.statictopic.known import Known, PlanRefused, is_stale, is_unfinished
from rmqha.statictopic.placement import balancing_moves, draining_moves
from rmqha.statictopic.plan import Change, grow, remap, retell
from rmqha.statictopic.steps import Phase
from tests.statictopic.model import ModelCluster

pytestmark = pytest.mark.slow

NAMES = ("a", "b", "c")
Act = tuple[Any, ...]
Targets = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)
Crash = st.none() | st.integers(0, 12)
CHANGES = st.one_of(
    st.tuples(st.just("grow"), st.integers(1, 3), Targets, Crash),
    st.tuples(st.just("remap"), Targets, Crash),
    st.tuples(st.just("move"), st.integers(0, 9), st.sampled_from(NAMES), Crash),
    st.tuples(st.just("drain"), st.sampled_from(NAMES), Crash),
)
OTHERS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 9), st.integers(1, 4)),
    st.tuples(st.just("expire"), st.sampled_from(NAMES), st.integers(1, 5)),
)
STORIES = st.lists(CHANGES | OTHERS, max_size=14)


class Story:
    """Acts upon a cluster; every command first finishes what it finds unfinished."""

    def __init__(self, java: tuple[str, ...] = ()) -> None:
        self.cluster = ModelCluster(NAMES, java)
        self.now_ms = 1_000_000

    def play(self, acts: list[Act]) -> ModelCluster:
        """Play it, finish what is left, and see that everything holds."""
        for act in acts:
            self._act(act)
        cluster = self.cluster
        if is_stale(cluster.known()) and cluster.known().total_queues:
            assert cluster.run(retell(cluster.known(), self.now_ms), between=self._sends)
        if cluster.known().total_queues:
            assert not is_unfinished(cluster.known())
            cluster.assert_settled()
            cluster.assert_offsets()
            cluster.assert_consumed()
        return cluster

    def _act(self, act: Act) -> None:
        self.now_ms += 10
        match act:
            case "send", logical, count:
                self.cluster.send(logical % max(1, self.cluster.known().total_queues), count)
            case "expire", name, count:
                self.cluster.expire(name, count)
            case "grow", more, targets, crash:
                self._command(
                    lambda known: grow(known, known.total_queues + more, targets, self.now_ms),
                    crash,
                )
            case "remap", targets, crash:
                self._moves(lambda known: balancing_moves(known, targets), crash)
            case "move", logical, name, crash:
                self._moves(lambda known: {logical % known.total_queues: name}, crash)
            case "drain", name, crash:
                self._moves(lambda known: draining_moves(known, name, NAMES), crash)

    def _moves(self, moves: Callable[[Known], dict[int, str]], crash: int | None) -> None:
        self._command(lambda known: remap(known, moves(known), self.now_ms), crash)

    def _command(self, change: Callable[[Known], Change], crash: int | None) -> None:
        """A command: finish, then change; it dies after ``crash`` steps of either."""
        known = self.cluster.known()
        if is_unfinished(known):
            finish = retell(known, self.now_ms)
            if not self.cluster.run(finish, crash, self._sends):
                return
            known = self.cluster.known()
        try:
            wanted = change(known)
        except (PlanRefused, ZeroDivisionError):
            assert known.total_queues == 0, "only a topic that is not there can refuse"
            return
        if wanted.total_queues:
            self.cluster.run(wanted, crash, self._sends)

    def _sends(self) -> None:
        for logical in range(self.cluster.known().total_queues):
            self.cluster.send(logical)


@settings(max_examples=300)
@given(acts=STORIES)
def test_story_when_played_then_every_message_has_one_offset_in_order(acts: list[Act]) -> None:
    """Whatever was asked for and wherever commands died: offsets grow, and none is lost."""
    Story().play(acts)


CREATED: list[Act] = [("grow", 3, ["a", "b"], None), ("send", 0, 3), ("send", 2, 2)]


@pytest.mark.parametrize("crash", range(1, 12))
def test_story_when_a_drain_dies_at_any_step_then_the_next_command_finishes_it(crash: int) -> None:
    """Each step by name; more than there are do no harm."""
    story = Story()
    story.play([*CREATED, ("drain", "a", crash), ("send", 0, 2), ("drain", "a", None)])
    assert {*story.cluster.steps} == {"look", *Phase}
    assert not any(
        segments[-1].broker_name == "a"
        for segments in known_module.histories(story.cluster.known()).values()
    )


@pytest.mark.parametrize("crash", range(1, 4))
def test_story_when_a_creation_dies_then_the_queues_are_not_lost(crash: int) -> None:
    """Whoever was told first knows where all of them were to be."""
    story = Story()
    cluster = story.play([("grow", 3, ["a", "b"], crash), ("grow", 1, ["c"], None)])
    assert cluster.known().total_queues == 4


def test_story_when_the_old_segment_is_cleaned_away_amid_a_move_then_it_is_finished() -> None:
    """It was empty, and so the new leader dropped it before it knew where it begins itself."""
    acts: list[Act] = [("grow", 2, ["a"], None), ("remap", ["a", "b"], 2), ("expire", "a", 1)]
    Story().play(acts)


def test_java_broker_when_it_takes_undecided_messages_then_they_get_offsets_later() -> None:
    """Between its being told and the old leader's stop both would take messages: so does Java's."""
    cluster = ModelCluster(NAMES, java=["b"])
    cluster.run(grow(cluster.known(), 1, ["a"], 1))
    cluster.send(0, 3)
    change = remap(cluster.known(), {0: "b"}, 2)
    cluster.run(change, crash_after=2)
    cluster.send(0, 2)
    assert [cluster.told[serial] for serial in cluster.taken[0]] == [0, 1, 2, -1, -1]
    cluster.run(retell(cluster.known(), 3))
    cluster.send(0, 1)
    assert cluster.told[5] == 10_002
    cluster.assert_settled()
    cluster.assert_offsets()
    cluster.assert_consumed()


# -- breakages -------------------------------------------------------------------------------------


def test_story_when_the_new_leader_begins_inside_the_old_ones_segment_then_it_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The beginning is decided from an end that is older than the stop."""
    monkeypatch.setattr(steps_module, "block_above", lambda end: max(1, end - 1))
    with pytest.raises(AssertionError, match="a segment reaches into the next"):
        Story().play([*CREATED, ("drain", "a", None)])


def test_story_when_the_new_leader_is_decided_before_the_old_one_stops_then_it_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages sent meanwhile would be in two orders."""
    tell = steps_module._tell

    def hasty(change: Change, nums: Any, known: Known, lists: Any, names: Any, phase: Phase) -> Any:
        if phase is Phase.MAP_OUT:
            return known
            yield
        return (yield from tell(change, nums, known, lists, names, phase))

    monkeypatch.setattr(steps_module, "_tell", hasty)
    with pytest.raises(AssertionError, match="take messages of 2"):
        Story().play([*CREATED, ("drain", "a", None)])


def test_story_when_a_crash_is_finished_from_the_oldest_history_then_it_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers would be told to go back."""
    newest = known_module._newest
    monkeypatch.setattr(
        known_module,
        "_newest",
        lambda copies: newest([min(copies, key=lambda one: one.last.gen)]),
    )
    with pytest.raises(PlanRefused, match="the leader would be of generation 0 after 1"):
        Story().play([*CREATED, ("drain", "a", 2), ("send", 0, 1)])
