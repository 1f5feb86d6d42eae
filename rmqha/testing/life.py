"""One run of a node inside this process: what makes ``kill`` and ``stop`` possible without a process.

Everything a node does goes through its ports. A stopped node's ports hold back whatever would wake
it; a killed node's ports let nothing happen any more, and its tasks are cancelled.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.ports import TimerHandle
from rmqha.testing.gates import Gate

LIFE: contextvars.ContextVar[Life | None] = contextvars.ContextVar("rmqha_life", default=None)
"""The node that the running code belongs to; tasks and callbacks inherit it."""


def outside() -> contextvars.Context:
    """A context of nobody: what ends a node, or what its kernel does for it, must not die with it."""
    context = contextvars.copy_context()
    context.run(LIFE.set, None)
    return context


class Life:
    """From a node's start to its end.

    Attributes:
        gate: closed while the node is stopped.
        is_dead: it was killed, or it closed itself.
    """

    def __init__(self) -> None:
        self.gate = Gate()
        self.is_dead = False
        self._held: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._count = 0
        self.gate.watch(self._changed)

    def context(self) -> contextvars.Context:
        """A context whose tasks belong to this node."""
        context = contextvars.copy_context()
        context.run(LIFE.set, self)
        return context

    def deliver(self, callback: Callable[..., object], *args: object) -> None:
        """Call back now, when the node goes on, or never."""
        if self.is_dead:
            return
        if self._held or not self.gate.is_open:
            self._held.append((callback, args))
        else:
            callback(*args)

    def _changed(self) -> None:
        if self.gate.is_open and self._held:
            asyncio.get_running_loop().call_soon(self._release)

    def _release(self) -> None:
        while self._held and self.gate.is_open and not self.is_dead:
            callback, args = self._held.popleft()
            callback(*args)

    async def pass_on(self) -> None:
        """Wait while the node is stopped.

        Raises:
            CancelledError: it is dead.
        """
        if not self.gate.is_open:
            await self.gate.passed()
        self.check()

    def check(self) -> None:
        """Raise CancelledError in what a dead node still runs."""
        if self.is_dead:
            raise asyncio.CancelledError("the node was killed")

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """A task of this node."""
        if self.is_dead:
            task.cancel()
        self._count += 1
        number = self._count
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def end(self) -> None:
        """Cancel every task, and wait for them."""
        self.is_dead = True
        self._held.clear()
        tasks = [task for task in self._tasks.values() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        self.gate.set_open(True)
        await asyncio.gather(*tasks, return_exceptions=True)


def task_factory(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    """Make a task, and let its node know."""
    context = options.get("context")
    life = LIFE.get() if context is None else context.get(LIFE)
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    if life is not None:
        life.adopt(task)
    return task


class _Timer:
    """A timer that keeps to its node's life."""

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self._callback = callback
        self._args = args
        self._is_cancelled = False
        self.real: TimerHandle | None = None

    def cancel(self) -> None:
        """Forget the callback, also one that is held back."""
        self._is_cancelled = True
        if self.real is not None:
            self.real.cancel()

    def fire(self) -> None:
        """Its time has come, or had come while the node was stopped."""
        if not self._is_cancelled:
            self._callback(*self._args)


class NodeClock(SystemClock):
    """Clock port of one node: the machine's time, and timers that a stopped node does not hear."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def call_later(
        self, delay_ms: float, callback: Callable[..., object], *args: object
    ) -> TimerHandle:
        """Run ``callback(*args)`` after ``delay_ms``, or when the node goes on."""
        timer = _Timer(callback, args)
        timer.real = super().call_later(delay_ms, self._life.deliver, timer.fire)
        return timer

    async def sleep(self, delay_ms: float) -> None:
        """Wait for ``delay_ms``, and while the node is stopped."""
        self._life.check()
        await super().sleep(delay_ms)
        await self._life.pass_on()


class SeededRng:
    """Rng port that gives the same numbers for the same seed."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def randint(self, low: int, high: int) -> int:
        """An integer with ``low <= n <= high``."""
        return self._random.randint(low, high)
