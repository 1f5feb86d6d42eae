"""Counts by name that can be looked back at over a minute, an hour and a day.

Every ten seconds is a sample; who owns the clock says when. A tally keeps what it was at samples at
which it had changed, so that the many that stand still cost nothing.

Source: StatsItem and StatsItemSet of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import NamedTuple

from msgspec import Struct

SAMPLE_MS = 10_000
MINUTE, HOUR, DAY = 0, 1, 2
_EVERY = (1, 60, 360)
_KEPT = (7, 7, 25)
"""Of each window: samples from one of its marks to the next, and how many marks it spans."""

PART = 256
"""Tallies that are looked at in one go: there may be a hundred thousand."""


class Mark(Struct, frozen=True, gc=False):
    """What a tally was at a sample. There may be millions, at which no collection of garbage looks."""

    number: int
    messages: int
    size: int
    calls: int


class Window(NamedTuple):
    """What was counted in one of the three windows.

    Attributes:
        rate: of the sum, per second.
        average: of the sum, per call.
    """

    sum: int
    rate: float
    average: float


class Tally:
    """The counts of one name; whoever counts adds to the attributes.

    Attributes:
        messages, size, calls: since the name came up.
        marked: ``calls`` at the last sample.
    """

    __slots__ = ("_marks", "calls", "marked", "messages", "size")

    def __init__(self, numbers: tuple[int, int, int] = (-1, -1, -1)) -> None:
        self.messages = self.size = self.calls = self.marked = 0
        # Lists, which are small: there may be many tallies.
        self._marks = tuple([Mark(number, 0, 0, 0)] for number in numbers)

    def mark(self, number: int, windows: Sequence[int]) -> None:
        """Remember what the tally is at a sample, in each window that it is another in."""
        mark = Mark(number, self.messages, self.size, self.calls)
        self.marked = self.calls
        for window in windows:
            if self._marks[window][-1].calls != mark.calls:
                self._marks[window].append(mark)

    @property
    def last(self) -> Mark:
        """What the tally was at the last sample."""
        return self._marks[MINUTE][-1]

    def first(self, window: int, oldest: int) -> Mark:
        """What the tally was at the sample at which a window begins.

        Args:
            oldest: sample that the window knows; marks before it go.
        """
        marks = self._marks[window]
        while len(marks) > 1 and marks[1].number <= oldest:
            del marks[0]
        return marks[0]


class Samples:
    """The moments of all tallies' marks."""

    def __init__(self) -> None:
        self._count = 0
        self._times: tuple[deque[tuple[int, int]], ...] = tuple(
            deque(maxlen=kept) for kept in _KEPT
        )

    def tally(self) -> Tally:
        """A new tally: it was nothing at the last sample of each window."""
        minute, hour, day = (times[-1][0] if times else -1 for times in self._times)
        return Tally((minute, hour, day))

    def take(self, now_ms: int, tallies: Sequence[Tally]) -> Generator[None, None, bool]:
        """One more sample, in parts between which others may count and look.

        Until its part has come a tally is looked at as it was at the sample before.

        Returns:
            Whether it is one of the windows of a day.
        """
        number = self._count
        self._count += 1
        windows = [window for window, every in enumerate(_EVERY) if not number % every]
        for window in windows:
            if not number:
                self._times[window].append((-1, now_ms - SAMPLE_MS))
            self._times[window].append((number, now_ms))
        seldom = len(windows) > 1
        for index, tally in enumerate(tallies, 1):
            if seldom or tally.calls != tally.marked:
                tally.mark(number, windows)
            if seldom:
                for window in windows:
                    tally.first(window, self._times[window][0][0])
            if not index % PART:
                yield
        return DAY in windows

    def look(self, tally: Tally, window: int, member: str) -> Window:
        """What a member of a tally grew by, from a window's begin to the last sample."""
        times = self._times[window]
        if not times:
            return Window(0, 0.0, 0.0)
        first = tally.first(window, times[0][0])
        begin_ms = next(ms for number, ms in times if number >= first.number)
        last, ms = tally.last, self._times[MINUTE][-1][1] - begin_ms
        grown = getattr(last, member) - getattr(first, member)
        calls = last.calls - first.calls
        return Window(
            grown, grown * 1000 / ms if ms > 0 else 0.0, grown / calls if calls else 0.0
        )  # fmt: skip

    def is_silent(self, tally: Tally, window: int) -> bool:
        """Whether a tally that was there for a whole window has not grown in it."""
        times = self._times[window]
        if len(times) < _KEPT[window]:
            return False
        return tally.first(window, times[0][0]).calls == tally.calls
