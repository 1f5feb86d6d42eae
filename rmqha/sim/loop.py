"""An asyncio event loop whose time is virtual: when nothing is ready it jumps to the next timer.

What belongs to a life of a host that is over runs no more: no ``finally``, no callback, as after kill -9.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import inspect
from typing import Any

HOST: contextvars.ContextVar[str | None] = contextvars.ContextVar("sim_host", default=None)
"""The simulated host that the running code belongs to; tasks inherit it."""


class Life(str):
    """A host from one boot to its end; it compares as the host's name.

    Attributes:
        is_over: nothing of it may run.
    """

    is_over = False


class Deadlock(Exception):
    """Nothing is ready and no timer is set, but the simulation has not ended."""


class _Selector:
    """Stands where the loop keeps its selector: waiting means jumping."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Move the clock to the next timer instead of waiting for it."""
        if timeout is None:
            raise Deadlock("nothing is ready and no timer is set")
        if timeout > 0:
            self._loop.jump()
        return []

    def close(self) -> None:
        """Nothing to release."""


class SimLoop(asyncio.BaseEventLoop):
    """Runs ready callbacks in order, then the timers, never the outside world."""

    def __init__(self) -> None:
        super().__init__()
        self._sim_now = 0.0
        self._selector = _Selector(self)
        self.host_tasks: dict[str, dict[int, asyncio.Task[Any]]] = {}
        self._lives: dict[str, Life] = {}
        self._skipped: list[asyncio.Handle] = []
        self._left: list[tuple[Life, asyncio.Task[Any]]] = []
        self._task_count = 0
        self.errors: list[BaseException] = []
        self._timer_count = 0
        self._held: dict[str, list[_Timer]] = {}
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._remember)

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self._sim_now

    def jump(self) -> None:
        """Go to the time of the next timer."""
        self._sim_now = max(self._sim_now, self._scheduled[0].when())  # type: ignore[attr-defined]  # BaseEventLoop's own heap

    def _process_events(self, event_list: list[Any]) -> None:
        """There is no file descriptor that could become ready."""

    def _write_to_self(self) -> None:
        """There is no other thread that could wait for a wake-up."""

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]  # it never returns
        """A thread would end determinism."""
        raise RuntimeError("no threads in the simulator: use the Disk port")

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
        context = options.get("context")
        host = HOST.get() if context is None else context.get(HOST)
        if isinstance(host, Life) and host.is_over:
            self._left.append((host, task))
        elif host is not None:
            self._task_count += 1
            number = self._task_count
            tasks = self.host_tasks.setdefault(host, {})
            tasks[number] = task
            task.add_done_callback(lambda _: tasks.pop(number, None))
        return task

    def _remember(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(error or RuntimeError(str(context.get("message"))))

    def _call_soon(self, callback: Any, args: Any, context: Any) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]  # BaseEventLoop's own queue
        return handle

    # -- hosts that stand still ------------------------------------------------------------

    def call_at(  # type: ignore[override]  # the variadic types of the base class say no more
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """As asyncio's; timers of one moment fire in the order in which they were set, and one
        of a host that stands still waits until it goes on."""
        self._timer_count += 1
        timer = _Timer(when, callback, args, self, context, self._timer_count)
        host = _host_of(timer) if self._held else None
        if host in self._held:
            self._held[str(host)].append(timer)
        else:
            timer._scheduled = True  # noqa: SLF001 - asyncio's own mark
            heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]  # BaseEventLoop's own heap
        return timer

    def pause(self, host: str) -> None:
        """Let no timer of a host fire, as SIGSTOP does."""
        timers = self._scheduled  # type: ignore[attr-defined]  # BaseEventLoop's own heap
        held = [one for one in timers if _host_of(one) == host]
        timers[:] = [one for one in timers if _host_of(one) != host]
        heapq.heapify(timers)
        for one in held:
            one._scheduled = False  # noqa: SLF001 - asyncio's own mark
        self._held.setdefault(host, []).extend(sorted(held))

    def resume(self, host: str) -> None:
        """Let a host go on: what is overdue fires at once."""
        for handle in self._held.pop(host, []):
            if not handle.cancelled():
                handle._when = max(handle._when, self._sim_now)  # noqa: SLF001 - to move it
                handle._scheduled = True  # noqa: SLF001 - asyncio's own mark
                heapq.heappush(self._scheduled, handle)  # type: ignore[attr-defined]  # as above

    def is_paused(self, host: str) -> bool:
        """Whether a host stands still."""
        return host in self._held

    def close(self) -> None:
        """End; a task that was made in the last moment has not begun, and never will."""
        self._unwind()
        for tasks in self.host_tasks.values():
            for task in tasks.values():
                work = task.get_coro()
                if (
                    inspect.iscoroutine(work)
                    and inspect.getcoroutinestate(work) == inspect.CORO_CREATED
                ):
                    work.close()
        super().close()

    def end_host(self, host: str) -> None:
        """Let nothing of a host run any more, as kill -9 does."""
        self._held.pop(host, None)
        life = self._lives.pop(host, None)
        for task in list(self.host_tasks.pop(host, {}).values()):
            if life is None:
                task.cancel()
            else:
                self._left.append((life, task))
        if life is not None:
            life.is_over = True

    def passed_over(self, step: asyncio.Handle) -> None:
        """A task's step was not run since its host's life is over."""
        self._skipped.append(step)

    def begin_life(self, host: str) -> Life:
        """A host boots: what its context names is one life."""
        life = self._lives[host] = Life(host)
        return life

    def _unwind(self) -> None:
        """Cancel what was left where it was: asyncio complains of tasks that never end."""
        left, self._left = self._left, []
        for life, task in left:
            life.is_over = False
            task.cancel()
        # A task whose step was passed over waits for nothing: without it nobody would cancel it.
        self._ready.extend(self._skipped)  # type: ignore[attr-defined]  # as above
        self._skipped.clear()
        if left:
            self.run_until_complete(asyncio.sleep(0))
            self.run_until_complete(asyncio.sleep(0))


class _Handle(asyncio.Handle):
    """A callback that runs while its host's life lasts."""

    __slots__ = ()

    def _run(self) -> None:
        if not _is_over(self):
            super()._run()
        elif isinstance(getattr(self._callback, "__self__", None), asyncio.Task):  # type: ignore[attr-defined]  # asyncio has no getter
            self._loop.passed_over(self)  # type: ignore[attr-defined]  # it is a SimLoop


class _Timer(asyncio.TimerHandle):
    """A timer with a number, so that the order of equal times is nobody's chance."""

    __slots__ = ("number",)
    _when: float
    _scheduled: bool

    def __init__(
        self, when: float, callback: Any, args: Any, loop: SimLoop, context: Any, number: int
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.number = number

    def _run(self) -> None:
        if not _is_over(self):
            super()._run()

    def __lt__(self, other: _Timer) -> bool:  # type: ignore[override]  # only these are in the heap
        if self._when == other._when:
            return self.number < other.number
        return self._when < other._when


def _is_over(handle: asyncio.Handle) -> bool:
    context = handle._context  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio has no getter
    return getattr(context.get(HOST), "is_over", False)


def _host_of(handle: asyncio.TimerHandle) -> str | None:
    context = handle._context  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio has no getter
    found: str | None = context.get(HOST)
    return found
