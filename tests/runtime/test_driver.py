"""The loop between cores and shells: order, reentrancy, failures, time. On virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Never, cast

import pytest

from rmqha.base.errors import DiskFailed, EffectUnknown, InvariantBroken
from rmqha.base.invariants import unknown_effect
from rmqha.runtime.aio.driver import Driver, Lane
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from tests.runtime.test_earliest import Time


class Quiet(Logger):
    """Says nothing."""

    def __init__(self) -> None:
        pass

    def log(self, level: str, event: str, **facts: object) -> None:
        """Forget it."""


class Doubler:
    """A core: an event ``n`` asks for ``n`` and then ``n + 1``; below 0 a safety rule is broken."""

    def __init__(self) -> None:
        self.due_ms: int | None = None
        self.seen: list[tuple[int, int]] = []

    def step(self, now_ms: int, event: int) -> list[int]:
        """Take a number."""
        self.seen.append((now_ms, event))
        if event < 0:
            raise InvariantBroken("no number is below 0")
        return [event, event + 1]


class Recording:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[object] = []

    def stepped(self, now_ms: int, event: int, effects: Sequence[object]) -> None:
        """A step."""
        self.lines.append((now_ms, event, list(effects)))

    def failed(self, now_ms: int, event: int, error: Exception) -> None:
        """A failure."""
        self.lines.append((now_ms, event, type(error)))


def driver_of(
    core: Doubler, time: Time, carry_out: Callable[[int], None], **more: Any
) -> Driver[int, int]:
    """A driver over virtual time."""
    return Driver(core, cast(Any, time), carry_out, **more)


def test_give_when_an_effect_gives_an_event_then_the_event_waits_for_the_other_effects() -> None:
    """Nested, an event would be judged before the rest of what the core decided is done."""
    done: list[int] = []

    def carry_out(effect: int) -> None:
        done.append(effect)
        if effect == 1:
            driver.give(10)

    driver = driver_of(Doubler(), Time(), carry_out)
    driver.give(1)
    assert done == [1, 2, 10, 11]


def test_give_when_there_are_several_events_then_each_is_stepped_at_its_own_time_in_order() -> None:
    """A batch in another order tells the core of puts before the log that holds them."""
    time, core = Time(), Doubler()

    def carry_out(effect: int) -> None:
        time.ms += 1

    driver_of(core, time, carry_out).give(1, 5)
    assert core.seen == [(0, 1), (2, 5)]


def test_give_at_when_called_by_an_effect_then_it_waits_its_turn() -> None:
    """The quick way of a busy shell must not be a way around the order."""
    done: list[int] = []

    def carry_out(effect: int) -> None:
        done.append(effect)
        if effect == 1:
            driver.give_at(7, 10)

    driver = driver_of(Doubler(), Time(), carry_out)
    driver.give_at(7, 1)
    assert done == [1, 2, 10, 11]
    assert driver.now_ms == 0  # what waited is stepped at the time of its step


def test_give_when_the_core_breaks_a_rule_then_its_owner_is_told_once_and_nothing_follows() -> None:
    """Going on after half of the effects, a node would promise what it has not done."""
    told: list[Exception] = []
    done: list[int] = []
    core = Doubler()
    driver = driver_of(core, Time(), done.append, on_error=told.append)
    driver.give(1, -1, 3)
    driver.give(4)
    assert done == [1, 2]
    assert [type(error) for error in told] == [InvariantBroken]
    assert driver.is_closed


def test_give_when_an_effect_fails_then_the_effects_behind_it_are_left_undone() -> None:
    """What is sent behind a failed write says that the write was done."""
    told: list[Exception] = []
    done: list[int] = []

    def carry_out(effect: int) -> None:
        if effect == 1:
            raise DiskFailed("no more")
        done.append(effect)

    driver = driver_of(Doubler(), Time(), carry_out, on_error=told.append)
    driver.give(1)
    assert done == []
    assert [str(error) for error in told] == ["no more"]


def test_give_when_nobody_takes_errors_then_the_giver_gets_them_and_the_core_goes_on() -> None:
    """One request that cannot be read must not silence a controller for all others."""
    done: list[int] = []
    driver = driver_of(Doubler(), Time(), done.append)
    with pytest.raises(InvariantBroken):
        driver.give(-1)
    driver.give(1)
    assert done == [1, 2]


def test_arm_when_the_core_has_a_deadline_then_it_is_called_then_and_armed_anew() -> None:
    """A core that is not called at its deadline elects nobody, and lets no put expire."""
    time, core = Time(), Doubler()
    core.due_ms = 50

    def due() -> None:
        core.due_ms = 80 if time.ms < 80 else None
        driver.give(9)

    driver = driver_of(core, time, lambda _: None, next_deadline_ms=lambda: core.due_ms, on_due=due)
    driver.give(1)
    for ms in (49, 50, 79, 80, 200):
        time.to(ms)
    assert core.seen == [(0, 1), (50, 9), (80, 9)]


def test_close_when_an_effect_closes_then_events_that_wait_are_not_stepped() -> None:
    """After its end a replica must not answer, whatever was queued."""
    core = Doubler()

    def carry_out(effect: int) -> None:
        driver.close()

    driver = driver_of(core, Time(), carry_out)
    driver.give(1, 2)
    assert core.seen == [(0, 1)]


def test_after_step_when_events_follow_each_other_then_it_comes_between_and_settled_last() -> None:
    """What is gathered for one step must leave before the next, timers are looked at once."""
    said: list[object] = []
    driver = driver_of(
        Doubler(), Time(), said.append,
        after_step=lambda: said.append("step"), settled=lambda: said.append("settled"),
    )  # fmt: skip
    driver.give(1, 5)
    assert said == [1, 2, "step", 5, 6, "step", "settled"]


def test_recorder_when_a_step_fails_then_the_event_and_the_error_are_kept() -> None:
    """The last event before a node stopped is the one that people look for."""
    recording = Recording()
    driver = driver_of(Doubler(), Time(), lambda _: None, on_error=lambda _: None)
    driver.recorder = recording
    driver.give(1, -1)
    assert recording.lines == [(0, 1, [1, 2]), (0, -1, InvariantBroken)]


def test_unknown_effect_when_reached_then_a_typed_error_names_it() -> None:
    """An effect that nobody carries out would be lost silently, or as a bare AssertionError."""
    with pytest.raises(EffectUnknown, match="int is no effect"):
        unknown_effect(cast(Never, 3))


async def test_lane_when_effects_wait_then_they_never_overlap() -> None:
    """Two writes of one file at a time leave either's half."""
    said: list[str] = []
    gates = {name: asyncio.Event() for name in "ab"}

    async def wait_for(name: str) -> None:
        said.append(f"{name} begins")
        await gates[name].wait()
        said.append(f"{name} ends")
        if name == "b":
            ended.set()

    ended = asyncio.Event()
    tasks = Tasks(Quiet())
    lane = Lane(tasks, "disk", wait_for)
    lane.add("a")
    lane.add("b")
    gates["b"].set()
    gates["a"].set()
    await ended.wait()
    assert said == ["a begins", "a ends", "b begins", "b ends"]
    await tasks.close()


async def test_lane_when_an_effect_fails_then_what_is_behind_it_is_not_begun() -> None:
    """Epochs written behind a cut that failed name bytes that are not there."""
    said: list[str] = []
    told: list[Exception] = []

    async def wait_for(name: str) -> None:
        said.append(name)
        raise DiskFailed("no more")

    tasks = Tasks(Quiet())
    failed = asyncio.Event()

    def on_error(error: Exception) -> None:
        told.append(error)
        failed.set()

    lane = Lane(tasks, "disk", wait_for, on_error)
    lane.add("a")
    lane.add("b")
    await failed.wait()
    lane.add("c")
    assert len(tasks) <= 1  # the one that has failed
    await asyncio.wait_for(tasks.close(), 5)
    assert said == ["a"]
    assert [str(error) for error in told] == ["no more"]
