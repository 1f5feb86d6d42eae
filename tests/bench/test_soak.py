"""The soak's verdict: each goal is missed when its fault is planted, and met without one."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from rmqha.testing.real.processes import wait_until
from tests.bench.churn import ANSWERED, BAD, Churn
from tests.bench.observed import MEMORY, Observer
from tests.bench.siege_verdict import Spans
from tests.bench.soak_verdict import Outcome, judge
from tests.bench.test_siege import SPANS, WHO, World

FAULTS: dict[str, tuple[str, Callable[[Outcome, World], None]]] = {
    "no leader killed": ("kills of leaders, of masters", lambda one, _: setattr(one, "leaders", 0)),
    "no master killed": ("kills of leaders, of masters", lambda one, _: setattr(one, "masters", 0)),
    "nobody came": ("connections that came and went", lambda one, _: one.visits.clear()),
    "few were answered": (
        "connections that came and went", lambda one, _: one.visits.update({ANSWERED: -80}),
    ),
    "lost": ("acknowledged messages lost", lambda one, _: setattr(one, "lost", 1)),
    "nothing acknowledged": ("acknowledged messages lost", lambda one, _: setattr(one, "acked", 0)),
    "ended": (
        "processes that ended by themselves", lambda _, world: world.seen.ended.update({WHO: 9.0}),
    ),
    "late": ("waits longer than a minute", lambda one, _: one.late.append("writes")),
    "writes never came back": (
        "writes back after a master's death, s", lambda one, _: one.writes_back_s.clear(),
    ),
    "memory is large": (
        "memory, MiB",
        lambda _, world: world.change(MEMORY, lambda moment: 50.0 if moment < 60 else 120.0),
    ),
}  # fmt: skip


def a_good_run() -> tuple[Outcome, World]:
    """In which all went well."""
    visits = Counter({ANSWERED: 100, "HTTP": 100})
    return Outcome(5, 3, [], [0.1, 0.2], 1_000, 0, visits), World()


def missed(outcome: Outcome, world: World, spans: Spans = SPANS) -> list[str]:
    """The goals that are not met."""
    return [one.what for one in judge(spans, outcome, world.seen) if not one.is_met]


def test_verdict_when_all_went_well_then_every_goal_is_met() -> None:
    """Otherwise what follows shows nothing."""
    assert missed(*a_good_run()) == []


@pytest.mark.parametrize("name", FAULTS)
def test_verdict_when_one_thing_went_wrong_then_that_goal_is_missed(name: str) -> None:
    """And no other."""
    what, plant = FAULTS[name]
    outcome, world = a_good_run()
    plant(outcome, world)
    assert missed(outcome, world) == [what]


@pytest.mark.slow
def test_observer_when_a_process_is_killed_on_purpose_then_it_has_not_ended_by_itself() -> None:
    """Its figures go on with the process that takes its place; the next end counts."""
    first, second = (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)
    )
    try:
        with Observer({WHO: first.pid}, {}, lambda: None) as seen:
            wait_until(lambda: seen.of(WHO, MEMORY).values, 10, "a sample")
            seen.forget(WHO)
            first.send_signal(signal.SIGKILL)
            first.wait()
            seen.follow(WHO, second.pid)
            samples = len(seen.of(WHO, MEMORY).values)
            wait_until(lambda: len(seen.of(WHO, MEMORY).values) > samples, 10, "the next sample")
            assert seen.ended == {}
            second.send_signal(signal.SIGKILL)
            second.wait()
            wait_until(lambda: WHO in seen.ended, 10, "its end to be seen")
    finally:
        for one in (first, second):
            one.kill()
            one.wait()
            assert one.stdin is not None
            one.stdin.close()


def test_churn_when_the_server_is_down_then_it_goes_on_and_says_so() -> None:
    """A kill is part of a soak."""
    with Churn(["127.0.0.1:1"], per_s=200) as churn:
        wait_until(lambda: churn.done.total() > 20, 10, "visits")
    assert churn.done["good, refused"] > 0
    assert ANSWERED not in churn.done
    assert set(churn.done) <= {"good, refused", *BAD}
