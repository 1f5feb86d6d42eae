"""Which sends of a node wait for its disk: rules 2 and 3 of the shell's contract (``events``).

A send that a step lists after a persist leaves when that is durable. While a term or a vote is not
durable, no send leaves at all: a node that forgets its vote in a crash would vote twice
(Raft 5.2, "updated on stable storage before responding").
"""

from __future__ import annotations

from collections import deque

from rmqha.controller.raft.events import Send, SendSnapshot


class HeldSends:
    """The sends of one node that are not allowed to leave yet."""

    def __init__(self) -> None:
        self._held: deque[tuple[int, bool, list[Send | SendSnapshot]]] = deque()
        self._behind: list[Send | SendSnapshot] | None = None

    def persisting(self, seq: int, *, hard: bool) -> None:
        """A persist has been handed to the disk; what the step lists from here on waits for it.

        Args:
            seq: of the persist; they grow.
            hard: it holds a term or a vote.
        """
        self._behind = []
        self._held.append((seq, hard, self._behind))

    def may_leave(self, send: Send | SendSnapshot) -> bool:
        """Whether a send may leave now; if not, ``durable`` returns it in its turn."""
        behind = self._behind
        if behind is None and self._held:
            behind = next((sends for _, hard, sends in reversed(self._held) if hard), None)
        if behind is None:
            return True
        behind.append(send)
        return False

    def step_ended(self) -> None:
        """What comes from here on is of another step."""
        self._behind = None

    def durable(self, seq: int) -> list[Send | SendSnapshot]:
        """The disk holds everything up to ``seq``; what may leave now, in order."""
        free: list[Send | SendSnapshot] = []
        while self._held and self._held[0][0] <= seq:
            free += self._held.popleft()[2]
        return free
