"""Frames on a slow way: when each of them is due. Times are milliseconds."""

from __future__ import annotations

import heapq

from rmqha.runtime.ports import Rng


class Line:
    """Frames on their way, by the moment at which they are due.

    Args:
        delay_ms, jitter_ms: each takes ``delay_ms`` and at most ``jitter_ms`` more.
        rng: draws how much more.
    """

    def __init__(self, delay_ms: int, jitter_ms: int, rng: Rng) -> None:
        self._delay_ms, self._jitter_ms, self._rng = delay_ms, jitter_ms, rng
        self._waiting: list[tuple[int, int, int, bytes]] = []
        self._number = 0

    def take(self, now_ms: int, way: int, frame: bytes) -> None:
        """A frame has come that goes one of the ways."""
        due_ms = now_ms + self._delay_ms + self._rng.randint(0, self._jitter_ms)
        self._number += 1
        heapq.heappush(self._waiting, (due_ms, self._number, way, frame))

    def due(self, now_ms: int) -> list[tuple[int, bytes]]:
        """Ways and frames that go out now."""
        found = []
        while self._waiting and self._waiting[0][0] <= now_ms:
            _, _, way, frame = heapq.heappop(self._waiting)
            found.append((way, frame))
        return found

    def wait_ms(self, now_ms: int) -> int | None:
        """Until the next one is due; None while there is none."""
        return max(0, self._waiting[0][0] - now_ms) if self._waiting else None
