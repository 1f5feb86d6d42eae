"""How far groups have popped, and how much of that may be kept.

A group's offset says that everything before it was acknowledged or is in a check point. So it
moves at once in memory, and in the table that outlives the process only when the check point is
as safe as an acknowledged message: a crash hands messages out again, and never skips one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import NamedTuple

Key = tuple[str, str, int]
"""(group, topic, queue id)."""


class _Moved(NamedTuple):
    key: Key
    offset: int
    end: int


class PopOffsets:
    """Of one broker, for as long as it reigns.

    Attributes:
        end: where the last check point ends in the log; 0 while nothing waits for one.
    """

    def __init__(self) -> None:
        self._positions: dict[Key, int] = {}
        self._waiting: deque[_Moved] = deque()
        self._counts: dict[Key, int] = {}
        self.end = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def at(self, key: Key) -> int | None:
        """Where to pop next; None where the kept offset says so."""
        return self._positions.get(key)

    def moved(self, key: Key, offset: int, end: int) -> bool:
        """A pop has passed everything before ``offset``.

        Args:
            end: where its check point ends in the log; 0 when nothing of it was wanted.

        Returns:
            Whether the offset may be kept at once.
        """
        if not end and key not in self._counts:
            return True
        self._positions[key] = offset
        self._counts[key] = self._counts.get(key, 0) + 1
        self.end = max(self.end, end)
        self._waiting.append(_Moved(key, offset, self.end))
        return False

    def settled(self, end: int) -> list[tuple[Key, int]]:
        """Check points that end at or before ``end`` are safe: the offsets to keep, in order."""
        found = []
        while self._waiting and self._waiting[0].end <= end:
            key, offset, _ = self._waiting.popleft()
            found.append((key, offset))
            left = self._counts[key] - 1
            if left:
                self._counts[key] = left
            else:
                self._forget(key)
        if not self._waiting:
            self.end = 0
        return found

    def _forget(self, key: Key) -> None:
        self._counts.pop(key, None)
        self._positions.pop(key, None)

    def reset(self, key: Key) -> None:
        """Somebody has set the group's offset: what was popped before moves it no more."""
        self._forget(key)
        self._waiting = deque(one for one in self._waiting if one.key != key)

    def ended(self, topics: Container[str], groups: Container[str]) -> None:
        """Topics and groups are gone: one made anew under such a name begins anew."""
        gone = {key for key in self._counts if key[1] in topics or key[0] in groups}
        for key in gone:
            self._forget(key)
        if gone:
            self._waiting = deque(one for one in self._waiting if one.key not in gone)

    def clear(self) -> None:
        """The role has ended; the next master reads the kept offsets."""
        self._positions.clear()
        self._counts.clear()
        self._waiting.clear()
        self.end = 0
