"""Which copies of messages a producer's own retries explain.

A producer sends a message again when it got no answer, or a refusal: the first one may be stored all
the same. So there may be one copy more for each such attempt of that message, and no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class Copies:
    """Of the messages of one producer, by their numbers."""

    def __init__(self) -> None:
        self._unanswered: Counter[int] = Counter()
        self._again: Counter[int] = Counter()

    def unanswered(self, numbers: Iterable[int]) -> None:
        """An attempt to send these was not acknowledged."""
        self._unanswered.update(numbers)

    def came_again(self, number: int) -> None:
        """A message was read at another place than before."""
        self._again[number] += 1

    def unexplained(self) -> list[int]:
        """The messages with more copies than attempts, ascending."""
        return sorted(n for n, count in self._again.items() if count > self._unanswered[n])
