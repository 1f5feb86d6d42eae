"""A node that was not scheduled for a while: deadlines are over that nobody has missed.

Whatever brokers sent meanwhile lies in its buffers, and counts before their deadlines do. So deaths
are told of a moment later, when the loop has read: no clock is later than the loop that looks at it.
A node that was away for long cannot tell who was silent: it spares masters, as one that begins to lead.

Source: our own; Raft's timer does the same (``aio/patient_timer``).
"""

from __future__ import annotations

LATE_MS = 10
"""Who comes later than this after a deadline has waited for the processor, not for time."""
READ_MS = 1
"""After so long the loop has read what was there: it reads before it looks at a timer again."""
PAUSED_MS = 1_000
"""Who comes as late as a heartbeat may have lost some."""


class LateTicks:
    """Says whether it is too early to tell of deaths.

    Attributes:
        until_ms: nothing falls due before; over, where nothing is waited for.
    """

    def __init__(self) -> None:
        self.until_ms = 0
        self._looked_ms = 0

    def late_ms(self, now_ms: int, due_ms: int) -> int:
        """How long something was due and nobody looked; then it waits, until the loop has read.

        Returns:
            0 when that is no longer than usual.
        """
        late_ms = now_ms - max(due_ms, self._looked_ms)
        self._looked_ms = now_ms
        if late_ms <= LATE_MS:
            return 0
        self.until_ms = now_ms + READ_MS
        return late_ms
