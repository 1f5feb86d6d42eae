"""One timer for the earliest deadline, on virtual time."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from rmqha.runtime.aio.earliest import EarliestTimer
from rmqha.runtime.ports import TimerHandle


class Handle:
    """One of :class:`Time`'s timers."""

    def __init__(self, due_ms: float, callback: Callable[..., object]) -> None:
        self.due_ms, self.callback, self.is_set = due_ms, callback, True

    def cancel(self) -> None:
        """Forget it."""
        self.is_set = False


class Time:
    """A clock port that a test moves."""

    def __init__(self) -> None:
        self.ms = 0
        self.timers: list[Handle] = []

    def now_ms(self) -> int:
        """What time it is."""
        return self.ms

    def wall_ms(self) -> int:
        """The same."""
        return self.ms

    def call_later(
        self, delay_ms: float, callback: Callable[..., object], *_: object
    ) -> TimerHandle:
        """A timer."""
        assert delay_ms >= 0
        self.timers.append(Handle(self.ms + delay_ms, callback))
        return self.timers[-1]

    async def sleep(self, delay_ms: float) -> None:
        """A timer does not sleep."""
        raise AssertionError(f"{delay_ms} ms: nobody waits here")

    def to(self, ms: int) -> None:
        """Let time pass."""
        while due := [one for one in self.timers if one.is_set and one.due_ms <= ms]:
            first = min(due, key=lambda one: one.due_ms)
            self.ms = max(self.ms, int(first.due_ms))
            first.cancel()
            first.callback()
        self.ms = ms


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["due", "done", "pass"]), st.integers(0, 50)), max_size=40
    )
)
def test_deadlines_when_they_come_and_go_then_each_is_met_with_one_timer(
    steps: list[tuple[str, int]],
) -> None:
    """Against a set of deadlines: none is met late, and never are two timers set."""
    time = Time()
    waiting: list[int] = []
    met: list[tuple[int, int]] = []

    def act() -> None:
        met.extend((due, time.ms) for due in sorted(waiting) if due <= time.ms)
        waiting[:] = [due for due in waiting if due > time.ms]
        timer.arm(min(waiting, default=None))

    timer = EarliestTimer(time, act)
    for step, number in steps:
        if step == "due":
            waiting.append(time.ms + number)
        elif step == "done" and waiting:
            waiting.pop(number % len(waiting))
        elif step == "pass":
            time.to(time.ms + number)
        timer.arm(min(waiting, default=None))
        assert sum(one.is_set for one in time.timers) <= 1
    time.to(time.ms + 100)
    assert not waiting
    assert all(at == due for due, at in met)


def test_timer_when_cancelled_then_nothing_comes_and_it_can_be_armed_again() -> None:
    """As at the loss of a connection that is opened once more."""
    time, calls = Time(), []
    timer = EarliestTimer(time, lambda: calls.append(time.ms))
    timer.arm(5)
    timer.cancel()
    timer.cancel()
    time.to(10)
    assert calls == []
    timer.arm(3)  # a deadline that is over is met at once
    time.to(10)
    assert calls == [10]
