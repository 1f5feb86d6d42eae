"""What runs of a simulated host once it was killed: nothing, as after kill -9."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from rmqha.sim.loop import SimLoop
from rmqha.sim.net import SimNet


def nap(seconds: float) -> Callable[[], Awaitable[None]]:
    """Wait so long, once it is called."""
    return partial(asyncio.sleep, seconds)


class World:
    """One host, and what it says that it did."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.net = SimNet(self.loop, random.Random(1))
        self.said: list[str] = []
        self.context = contextvars.copy_context()

    def boot(self) -> None:
        """A life of it begins."""
        self.context = contextvars.copy_context()
        self.net.boot("h", self.context)

    def start(self, work: Any) -> asyncio.Task[Any]:
        """Let it do something."""
        return self.loop.create_task(work, context=self.context.copy())

    def kill(self) -> None:
        """End its process."""
        self.net.kill("h", power=False)
        self.loop.end_host("h")

    def run(self, seconds: float = 1.0) -> None:
        """Let time pass."""
        self.loop.run_until_complete(asyncio.sleep(seconds))

    async def say_in_the_end(self, name: str, waits: Callable[[], Awaitable[None]]) -> None:
        """Wait, and tidy up."""
        try:
            await waits()
            self.said.append(name)
        finally:
            self.said.append(f"{name} tidies up")


@pytest.fixture
def world() -> Iterator[World]:
    """Booted."""
    found = World()
    found.boot()
    yield found
    if not found.loop.is_closed():
        found.loop.close()


def test_host_when_it_is_killed_then_no_finally_of_it_runs(world: World) -> None:
    """What a process would do at its end in order is not done."""
    world.start(world.say_in_the_end("task", nap(0.5)))
    world.run(0.1)
    world.kill()
    world.run()
    assert world.said == []


def test_host_when_it_is_killed_then_what_others_complete_wakes_nothing(world: World) -> None:
    """A future, a timer, a callback of a moment ago, and a task that had not begun."""
    done: asyncio.Future[None] = world.loop.create_future()
    world.start(world.say_in_the_end("future", lambda: done))
    context = world.context.copy()
    world.loop.call_later(0.5, world.said.append, "timer", context=context)
    world.run(0.1)
    world.loop.call_soon(world.said.append, "callback", context=context)
    world.start(world.say_in_the_end("new", nap(0)))
    world.kill()
    late = world.start(world.say_in_the_end("late", nap(0)))
    done.set_result(None)
    world.run()
    assert world.said == []
    assert not late.done()


def test_host_when_it_boots_again_then_that_life_runs(world: World) -> None:
    """The one before stays where it was."""
    world.start(world.say_in_the_end("first", nap(0.5)))
    world.run(0.1)
    world.kill()
    world.boot()
    world.start(world.say_in_the_end("second", nap(0.5)))
    world.run()
    assert world.said == ["second", "second tidies up"]


def test_loop_when_it_is_closed_then_what_was_left_ends_without_complaint(world: World) -> None:
    """Of tasks that never end asyncio complains, and coroutines that nobody awaits are warned of."""
    task = world.start(world.say_in_the_end("task", nap(9)))
    world.run(0.1)
    world.kill()
    late = world.start(world.say_in_the_end("late", nap(0)))
    world.run()
    world.loop.close()
    assert task.cancelled()
    assert late.cancelled()
    assert world.said == ["task tidies up"]
    assert world.loop.errors == []
