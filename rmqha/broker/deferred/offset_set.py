"""A set of queue offsets that mostly follow one another, in memory for where it begins and ends."""

from __future__ import annotations

from bisect import bisect_right


class OffsetSet:
    """Offsets, as stretches of neighbours: millions that come in order take what one takes."""

    def __init__(self) -> None:
        # Each stretch is its first offset and the one behind its last; they never touch.
        self._begins: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self._begins, offset) - 1
        return index >= 0 and offset < self._ends[index]

    def __len__(self) -> int:
        """How many stretches."""
        return len(self._begins)

    def add(self, offset: int) -> None:
        """Take an offset, in any order and as often as it comes."""
        index = bisect_right(self._begins, offset)
        if index and offset < self._ends[index - 1]:
            return
        follows = index > 0 and self._ends[index - 1] == offset
        precedes = index < len(self._begins) and self._begins[index] == offset + 1
        if follows and precedes:
            self._ends[index - 1] = self._ends.pop(index)
            del self._begins[index]
        elif follows:
            self._ends[index - 1] = offset + 1
        elif precedes:
            self._begins[index] = offset
        else:
            self._begins.insert(index, offset)
            self._ends.insert(index, offset + 1)

    def forget_before(self, offset: int) -> None:
        """Keep those from ``offset`` on."""
        index = bisect_right(self._begins, offset)
        # The last one of them may reach beyond.
        reaches = index > 0 and self._ends[index - 1] > offset
        gone = index - reaches
        del self._begins[:gone], self._ends[:gone]
        if reaches:
            self._begins[0] = offset
