"""Controllers over an abstract log in every order: nothing breaks, and bugs on purpose are found."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from rmqha.controller import machine
from rmqha.controller.machine import ControllerMachine
from rmqha.controller.metadata import apply, decide_elect
from rmqha.controller.metadata.decision import Context
from rmqha.controller.metadata.lanes import Lanes
from rmqha.controller.metadata.proposals import Proposals
from rmqha.sim.explore.controllers import (
    EVERYTHING,
    PAIR,
    Controllers,
    Move,
    Scene,
    alter,
    beat,
    clean,
    elect,
)
from rmqha.sim.explore.walk import Limits, Report, Walk

pytestmark = [pytest.mark.sim, pytest.mark.slow]

ALL_KINDS = {"ask", "commit", "refuse", "apply", "depose", "lead", "close", "tick"}


def walked(scene: Scene) -> Report[Move]:
    space = Controllers(scene)
    return Walk(space, space.start, Limits(seconds=120), time.process_time).run()


SCENES = {
    "two of everything": replace(EVERYTHING, requests=2),
    "an election, an alter and a refusal": Scene(
        asks=(elect(2), alter((1,), 2), beat(2)), requests=3, refusals=1, prepared=PAIR
    ),
    "three machines and a clean": Scene(
        asks=(clean(1), elect(2)), machines=3, requests=2, leaders=2, prepared=PAIR
    ),
    "the first hours": Scene(asks=PAIR, requests=4, leaders=1, closes=0, ticks=0),
}


@pytest.mark.parametrize("name", SCENES)
def test_controllers_in_every_order_of_things_keep_their_rules(name: str) -> None:
    """Some order of requests, commits and leader changes would lose an answer or part two states."""
    report = walked(SCENES[name])
    assert report.violation is None, report.trace
    assert report.exhausted, f"{report.frontier} states are left"
    scene = SCENES[name]
    wanted = ALL_KINDS - {"refuse"} if not scene.refusals else set(ALL_KINDS)
    if not scene.closes:
        wanted -= {"close", "tick"}
    assert set(report.moves) == wanted
    assert set(report.delivered) == {one.words for one in scene.asks}


# -- bugs put in on purpose -----------------------------------------------------------------------

Patch = Callable[[pytest.MonkeyPatch], None]


def requests_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    """A second request of a set is decided while the first is in flight."""
    patch.setattr(Lanes, "busy", lambda self, name: False)


def lost_office_answers_nobody(patch: pytest.MonkeyPatch) -> None:
    """What waited when a leader lost office is forgotten."""
    honest = ControllerMachine._step_down

    def silent(self: ControllerMachine) -> list[Any]:
        honest(self)
        return []

    patch.setattr(ControllerMachine, "_step_down", silent)


def old_proposals_are_remembered(patch: pytest.MonkeyPatch) -> None:
    """A commit after the loss of office answers once more."""
    patch.setattr(Proposals, "clear", lambda self: None)


def anyone_alive_becomes_master(patch: pytest.MonkeyPatch) -> None:
    """The SyncStateSet is not asked."""
    honest = decide_elect.elect_master

    def loose(state: Any, context: Context, request: Any) -> Any:
        return honest(state, replace(context, enable_elect_unclean_master=True), request)

    patch.setattr(machine, "elect_master", loose)


def state_depends_on_the_leader(patch: pytest.MonkeyPatch) -> None:
    """Who proposed an event applies it in another way than who hears of it."""

    def moody(state: Any, event: Any, *, tell: bool = True) -> Any:
        applied = apply.apply(state, event, tell=tell)
        if tell and event.broker_name in state.sets:
            state.sets[event.broker_name].last_issued_id += 1
        return applied

    patch.setattr(machine, "apply", moody)


MUTANTS: tuple[tuple[Patch, Scene, str], ...] = (
    (requests_do_not_wait, SCENES["two of everything"], "two requests of a set are in flight"),
    (lost_office_answers_nobody, SCENES["two of everything"], "a request is never answered"),
    (old_proposals_are_remembered, SCENES["two of everything"], "a request was answered twice"),
    (anyone_alive_becomes_master,
     Scene(asks=(alter((1,), 2), beat(2)), requests=2, prepared=PAIR),
     "an elected master was in the SyncStateSet"),
    (state_depends_on_the_leader, SCENES["the first hours"],
     "two states differ after one log"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("mutant", "scene", "expected"), MUTANTS, ids=lambda m: getattr(m, "__name__", "")
)
def test_a_bug_of_the_machine_is_found_for_the_rule_that_it_breaks(
    mutant: Patch, scene: Scene, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk that misses the bug would show nothing about the machine without it."""
    mutant(monkeypatch)
    report = walked(scene)
    assert report.violation is not None, f"{report.states} states and nothing found"
    assert expected in report.violation, report.trace
