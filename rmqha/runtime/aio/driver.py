"""From an event to its effects: the one loop that every shell runs around its core.

What lives here: order, reentrancy, the timer and what happens to a failure. What does not: any
effect. A shell says how one effect is carried out, and what waits goes into its :class:`Lane`.

Rules:
1. Events are stepped in the order in which they were given, effects are carried out in list order.
2. An event that comes while effects are carried out waits until they all are. Nested, it would be
   judged before the rest of what the core decided has been done.
3. After a failure of an owner with ``on_error`` nothing is stepped any more: what the core believes
   is no longer what was done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from rmqha.base.invariants import invariant
from rmqha.base.machine import Machine
from rmqha.runtime.aio.earliest import EarliestTimer
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.ports import Clock

EventT = TypeVar("EventT")
EffectT = TypeVar("EffectT")
RecordedT = TypeVar("RecordedT", contravariant=True)


class Recorder(Protocol[RecordedT]):
    """Keeps what a core was given, and what it made of that."""

    def stepped(self, now_ms: int, event: RecordedT, effects: Sequence[object]) -> None:
        """A step has been made; its effects have not been carried out yet."""

    def failed(self, now_ms: int, event: RecordedT, error: Exception) -> None:
        """A step has raised."""


class Driver(Generic[EventT, EffectT]):
    """Gives events to one core, and carries out what follows from them.

    Args:
        core: decides.
        clock: the port.
        carry_out: does one effect, without waiting. It may give events.
        on_error: told of the first failure of the core or of an effect; the driver is closed then.
            Without it the failure is raised to whoever gave the event, and the core goes on.
        next_deadline_ms: when the core wants to be called; asked whenever no event waits. None
            for a core whose time somebody else keeps.
        on_due: called then; it gives the core's tick.
        after_step: called when the effects of one step have been carried out.
        settled: called when no event waits any more.

    Attributes:
        core: the same.
        now_ms: the time of the newest step.
        recorder: what keeps the events; None for nobody.
    """

    __slots__ = (
        "_after_step", "_carry_out", "_clock", "_closed", "_events", "_next_deadline_ms",
        "_on_error", "_running", "_settled", "_timer", "core", "now_ms", "recorder",
    )  # fmt: skip

    def __init__(
        self,
        core: Machine[EventT, EffectT],
        clock: Clock,
        carry_out: Callable[[EffectT], None],
        *,
        on_error: Callable[[Exception], None] | None = None,
        next_deadline_ms: Callable[[], int | None] | None = None,
        on_due: Callable[[], None] | None = None,
        after_step: Callable[[], None] | None = None,
        settled: Callable[[], None] | None = None,
    ) -> None:
        self.core = core
        self.now_ms = 0
        self.recorder: Recorder[EventT] | None = None
        self._clock = clock
        self._carry_out = carry_out
        self._on_error = on_error
        self._next_deadline_ms = next_deadline_ms
        self._timer = EarliestTimer(clock, on_due) if on_due is not None else None
        self._after_step = after_step
        self._settled = settled
        self._events: deque[EventT] = deque()
        self._running = False
        self._closed = False

    @property
    def is_running(self) -> bool:
        """Whether effects are being carried out: what is given now waits."""
        return self._running

    @property
    def is_closed(self) -> bool:
        """Whether no event is taken any more."""
        return self._closed

    def give(self, *events: EventT) -> None:
        """Take events: step, carry out, and again for those that this has caused."""
        if self._closed:
            return
        self._events.extend(events)
        if self._running:
            return
        self._drain()
        if not self._closed:
            if self._settled is not None:
                self._settled()
            self.arm()

    def give_at(self, now_ms: int, event: EventT) -> None:
        """Take one event of many, at a time that was read for all; the giver calls ``arm``.

        For who has thousands a second, and asks neither the clock nor the core's deadlines anew
        for each.
        """
        if self._closed:
            return
        self._events.append(event)
        if not self._running:
            self._drain(now_ms)

    def carry_out(self, now_ms: int, effects: Sequence[EffectT]) -> None:
        """Carry out what the core has answered beside ``step``, by a short cut of its own.

        An effect may not take a short cut: it would be a step before its turn.
        """
        invariant(not self._running, "no short cut is taken by an effect")
        if not self._closed:
            self.now_ms = now_ms
            self._drain(now_ms, effects)

    def arm(self) -> None:
        """Have the core called when it next wants to be."""
        if self._timer is not None and self._next_deadline_ms is not None and not self._closed:
            self._timer.arm(self._next_deadline_ms())

    def close(self) -> None:
        """Take no more events; effects of the step under way are still carried out."""
        self._closed = True
        self._events.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _drain(self, at_ms: int | None = None, before: Sequence[EffectT] = ()) -> None:
        """Step until no event waits; the first one at ``at_ms``, where that is given."""
        self._running = True
        events, carry_out = self._events, self._carry_out
        try:
            for effect in before:
                carry_out(effect)
            while events and not self._closed:
                event = events.popleft()
                self.now_ms = now_ms = self._clock.now_ms() if at_ms is None else at_ms
                at_ms = None
                # Every acknowledgement passes here: a call more would cost as much as the loop.
                if self.recorder is None:
                    effects = self.core.step(now_ms, event)
                else:
                    effects = self._recorded(now_ms, event, self.recorder)
                for effect in effects:
                    carry_out(effect)
                if self._after_step is not None:
                    self._after_step()
        except Exception as error:
            if self._on_error is None:
                raise
            self.close()
            self._on_error(error)
        finally:
            self._running = False

    def _recorded(self, now_ms: int, event: EventT, recorder: Recorder[EventT]) -> list[EffectT]:
        try:
            effects = self.core.step(now_ms, event)
        except Exception as error:
            recorder.failed(now_ms, event, error)
            raise
        recorder.stepped(now_ms, event, effects)
        return effects


class Lane(Generic[EffectT]):
    """Effects that wait: one begins when the one before has ended, in the order they were added.

    Args:
        tasks: owns the work.
        name: of the task.
        wait_for: carries one out, to its end.
        on_error: told what an effect raised; what is behind it is not begun. Without it the
            failure is that of the task.
    """

    def __init__(
        self,
        tasks: Tasks,
        name: str,
        wait_for: Callable[[EffectT], Awaitable[None]],
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._tasks = tasks
        self._name = name
        self._wait_for = wait_for
        self._on_error = on_error
        self._effects: deque[EffectT] = deque()
        self._runs = False
        self._closed = False

    def add(self, effect: EffectT) -> None:
        """Carry an effect out when everything before it has been."""
        if self._closed:
            return
        self._effects.append(effect)
        if not self._runs:
            self._runs = True
            self._tasks.start(self._run(), name=self._name)

    def close(self) -> None:
        """Begin nothing more; the owner of ``tasks`` ends what is under way."""
        self._closed = True
        self._effects.clear()

    async def _run(self) -> None:
        try:
            while self._effects:
                await self._wait_for(self._effects.popleft())
        except Exception as error:
            self.close()
            if self._on_error is None:
                raise
            self._on_error(error)
        finally:
            self._runs = False
