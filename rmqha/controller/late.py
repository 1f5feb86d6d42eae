"""A node that was not scheduled for a while: deadlines are over that nobody has missed.

Whatever brokers sent meanwhile lies in its buffers, and counts before their deadlines do. So deaths
are told of a moment later, when the loop has read: no clock is later than the loop that looks at it.
Each waits for one reading, however long that takes: where all turns of the loop are long, the next
look is late again. A node that was away for long cannot tell who was silent: it spares masters, as
one that begins to lead.

Source: our own; Raft's timer does the same (``aio/patient_timer``).
"""

from __future__ import annotations

from rmqha.runtime.late import LATE_MS, READ_MS


class LateTicks:
    """Says whether it is too early to tell of deaths.

    A tick comes before the loop reads, or behind that. Any other event comes in the middle: what
    was sent before it may lie in the buffers of connections that were not read yet.

    Attributes:
        until_ms: nothing falls due before; over, where nothing is waited for.
        read_ms: all that came before it was read before this tick: who is dead by then is dead.
        rests: the last tick put deaths off, and all else with them. The tick after it does not.
    """

    def __init__(self) -> None:
        self.until_ms = 0
        self.read_ms = 0
        self.rests = self._rested = False
        self._waits = False

    def may_look(self, now_ms: int, *, ticked: bool) -> bool:
        """Whether anybody may be told dead in this step: what was put off waits for a tick."""
        if now_ms < self.until_ms or (self._waits and not ticked):
            return False
        self._waits = False
        if ticked:
            self._rested, self.rests = self.rests, False
        return True

    def is_late(self, now_ms: int, due_ms: int, *, ticked: bool) -> bool:
        """Whether nobody looked for long after ``due_ms``; then it waits until the loop has read."""
        late = self._waits = now_ms - due_ms > LATE_MS
        if late:
            self.until_ms = now_ms + READ_MS
        if ticked:
            self.read_ms = now_ms
            self.rests = late and not self._rested
        return late
