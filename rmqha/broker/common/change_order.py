"""What has changed since a slave last asked, some at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

Key = tuple[str, str]

BLOCK_CHANGES = 1024


class ChangeOrder:
    """Keys by the number of the change that each was last.

    Keys lie in blocks of 1024 numbers, so that an iteration finds its beginning without a walk over
    all keys.
    """

    def __init__(self) -> None:
        self._number: dict[Key, int] = {}
        self._blocks: dict[int, dict[Key, int]] = {}  # the newest at the end, in each, too

    def note(self, key: Key, number: int) -> None:
        """A key was changed; numbers only grow."""
        self.forget(key)
        self._number[key] = number
        self._blocks.setdefault(number // BLOCK_CHANGES, {})[key] = number

    def forget(self, key: Key) -> None:
        """A key is gone; it may be unknown."""
        number = self._number.pop(key, None)
        if number is None:
            return
        block = self._blocks[number // BLOCK_CHANGES]
        del block[key]
        if not block:
            del self._blocks[number // BLOCK_CHANGES]

    def after(self, number: int) -> Iterator[tuple[Key, int]]:
        """Keys and the numbers of their changes after a number, the oldest change first."""
        blocks = list(self._blocks)
        for block in blocks[bisect_left(blocks, number // BLOCK_CHANGES) :]:
            for key, change in self._blocks[block].items():
                if change > number:
                    yield key, change
