"""One timer for whatever falls due first, of something that can say when that is."""

from __future__ import annotations

from collections.abc import Callable

from rmqha.runtime.ports import Clock, TimerHandle


class EarliestTimer:
    """Calls back when the earliest deadline has come; a later deadline never moves it.

    So it may come early, when what it was armed for is done: whoever is called looks at the clock,
    and arms it again.

    Args:
        act: called without a timer set; it must not raise.
    """

    __slots__ = ("_act", "_clock", "_due_ms", "_handle")

    def __init__(self, clock: Clock, act: Callable[[], None]) -> None:
        self._clock = clock
        self._act = act
        self._handle: TimerHandle | None = None
        self._due_ms = 0

    def arm(self, due_ms: int | None) -> None:
        """Call back at ``due_ms`` at the latest; None asks for nothing."""
        if due_ms is None:
            return
        if self._handle is not None:
            if self._due_ms <= due_ms:
                return
            self._handle.cancel()
        self._due_ms = due_ms
        self._handle = self._clock.call_later(max(0, due_ms - self._clock.now_ms()), self._fire)

    def cancel(self) -> None:
        """Do not call back."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._act()
