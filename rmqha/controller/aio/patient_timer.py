"""The Raft core's deadlines: what arrived before one is looked at before it counts."""

from __future__ import annotations

from collections.abc import Callable

from rmqha.runtime.ports import Clock, TimerHandle

LATE_MS = 10
"""A timer that fires later than this has waited for the processor, not for time."""


class PatientTimer:
    """Calls back when a deadline has passed.

    Args:
        deadline_ms: the deadline as it is now; None for none.
        on_due: called when it has passed.
    """

    def __init__(
        self, clock: Clock, deadline_ms: Callable[[], int | None], on_due: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._deadline_ms = deadline_ms
        self._on_due = on_due
        self._handle: TimerHandle | None = None
        self._at_ms = 0

    def arm(self) -> None:
        """Wait for the deadline, unless an earlier one is waited for."""
        deadline_ms = self._deadline_ms()
        if deadline_ms is None:
            return
        if self._handle is not None:
            if self._at_ms <= deadline_ms:
                return
            self._handle.cancel()
        self._at_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._clock.now_ms())
        self._handle = self._clock.call_later(delay_ms, self._fired)

    def close(self) -> None:
        """Call back no more."""
        if self._handle is not None:
            self._handle.cancel()

    def _fired(self) -> None:
        self._handle = None
        if self._clock.now_ms() - self._at_ms > LATE_MS:
            # This process got no processor time for a while: what arrived meanwhile (heartbeats,
            # answers) counts before the deadline does, but libuv runs timers first.
            self._at_ms = self._clock.now_ms() + 1
            self._handle = self._clock.call_later(1, self._look)
        else:
            self._look()

    def _look(self) -> None:
        self._handle = None
        deadline_ms = self._deadline_ms()
        if deadline_ms is not None and self._clock.now_ms() >= deadline_ms:
            self._on_due()
        self.arm()
