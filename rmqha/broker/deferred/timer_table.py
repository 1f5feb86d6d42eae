"""Which stored timers are due: a bounded table over the log of rmq_sys_wheel_timer.

It holds the nearest timers; when there are more than it may hold, the farthest are left out, and the log
is read again once those before them are delivered. Half a million are held by default, so nothing here
looks at all of them: neither what is done for each timer nor the mark that is made every second.

Source: our own; Java keeps a wheel and a timer log.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator

from rmqha.broker.deferred.timers import Due, TimerMark

NOWHERE = 1 << 62
LATE_MAX = 20_000
"""Late timers that a mark lists; when more of them wait, a restart may deliver some twice."""

RUN = 1_024
"""Neighbours in the queue that are counted together: a mark's ``first`` may be so much too low, and a
restart reads so many in vain."""

STALE_MAX = 1_000
"""Times that may stand in an order though nothing waits for them, besides as many as there are others."""

GONE_MAX = 1_024
"""Timers that were taken from a row are forgotten so many at a time."""

POINTS_MAX = 64
"""How far a table was, as it was so many times; what is older is forgotten, and some may come twice."""

Point = tuple[int, int]


class _Runs:
    """How many timers wait in each run of neighbours of the queue, to know where the first one is."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._first: int | None = None

    def add(self, queue_offset: int) -> None:
        run = queue_offset // RUN
        self._counts[run] = self._counts.get(run, 0) + 1
        if self._first is not None and run < self._first:
            self._first = run

    def remove(self, queue_offset: int) -> None:
        run = queue_offset // RUN
        left = self._counts[run] - 1
        if left:
            self._counts[run] = left
            return
        del self._counts[run]
        if run == self._first:
            self._first = None

    @property
    def first(self) -> int:
        """No timer that waits stands before it."""
        if not self._counts:
            return NOWHERE
        if self._first is None:
            self._first = min(self._counts)
        return self._first * RUN


class _Row:
    """Timers of one millisecond, in the order in which they were added.

    There may be one, and so many rows that a deque for each would take more than all timers; or all.
    """

    __slots__ = ("_gone", "_timers")

    def __init__(self) -> None:
        self._timers: list[Due] = []
        self._gone = 0

    def __len__(self) -> int:
        return len(self._timers) - self._gone

    def __iter__(self) -> Iterator[Due]:
        return itertools.islice(self._timers, self._gone, None)

    def add(self, timer: Due) -> None:
        self._timers.append(timer)

    @property
    def first(self) -> Due:
        return self._timers[self._gone]

    def pop_first(self) -> Due:
        found = self._timers[self._gone]
        self._gone += 1
        if self._gone == GONE_MAX:
            del self._timers[:GONE_MAX]
            self._gone = 0
        return found

    def pop_last(self) -> Due:
        return self._timers.pop()


class _Nearest:
    """Timers by (time, queue offset).

    Those of one time come in the order of their queue offsets, as the log is read; it is read again
    only when none is held any more.
    """

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}
        # Times of rows, and of some that there are no more.
        self._order: list[int] = []
        # The same, negative, since somebody asked for the last one: most tables are never full.
        self._backwards: list[int] | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, timer: Due) -> None:
        row = self._rows.get(timer.due_ms)
        if row is None:
            row = self._rows[timer.due_ms] = _Row()
            heapq.heappush(self._order, timer.due_ms)
            if self._backwards is not None:
                heapq.heappush(self._backwards, -timer.due_ms)
        row.add(timer)
        self._count += 1

    @property
    def first(self) -> Due | None:
        while self._order and self._order[0] not in self._rows:
            heapq.heappop(self._order)
        return self._rows[self._order[0]].first if self._order else None

    def pop_first(self) -> Due:
        """The nearest one, :attr:`first`, which is there."""
        found = self._rows[self._order[0]].pop_first()
        self._removed(found.due_ms)
        return found

    def pop_last(self) -> Due:
        """The farthest one; there is one."""
        if self._backwards is None:
            self._backwards = [-due_ms for due_ms in self._rows]
            heapq.heapify(self._backwards)
        while -self._backwards[0] not in self._rows:
            heapq.heappop(self._backwards)
        found = self._rows[-self._backwards[0]].pop_last()
        self._removed(found.due_ms)
        return found

    def _removed(self, due_ms: int) -> None:
        self._count -= 1
        if self._rows[due_ms]:
            return
        del self._rows[due_ms]
        most = 2 * len(self._rows) + STALE_MAX
        if len(self._order) > most:
            self._order = list(self._rows)
            heapq.heapify(self._order)
        if self._backwards is not None and len(self._backwards) > most:
            self._backwards = None

    def before(self, point: Point, most: int) -> set[Due]:
        """Those before a point, ``most`` of them at most. A time may stand in the order twice."""
        found: set[Due] = set()
        to_see = [0]
        while to_see and len(found) < most:
            index = to_see.pop()
            if index >= len(self._order) or self._order[index] > point[0]:
                continue
            to_see += (2 * index + 1, 2 * index + 2)
            row = self._rows.get(self._order[index], ())
            early = itertools.takewhile(lambda timer: timer.point < point, row)
            found.update(itertools.islice(early, most - len(found)))
        return found


class TimerTable:
    """The nearest timers.

    Args:
        timers_max: how many are held at a time; messages that take one back count as well.
        mark: where the last table ended.
        first: where to begin reading the queue.

    Attributes:
        position: the queue offset to read next.
        waiting: of each topic, the timers that were read and are not delivered yet, those that are left out
            included. One that was taken back counts until its time.
    """

    def __init__(self, timers_max: int, mark: TimerMark, first: int) -> None:
        self._max = max(2, timers_max)
        self.waiting: Counter[str] = Counter()
        # What is read again counts already.
        self._counted_to = first
        self._nearest = _Nearest()
        # Of those that are held, and of those that were taken.
        self._runs = _Runs()
        self._recalled: dict[str, int] = {}
        self._recalls: list[tuple[int, str]] = []
        self._recalls_most = 2 * self._max + STALE_MAX
        # Timers below both are delivered already.
        self._done_to = mark.read_to
        self._done_before = self._point = (mark.read_ms + 1, mark.same_ms_to)
        # The same, with what is excepted, as it was at times; each point is before the one above it. Where
        # late timers fill the table, it reads again from before the farthest one.
        self._done = [(mark.read_to, self._done_before, frozenset(mark.late))]
        # Of what the mark excepts, what was not read yet.
        self._late = set(mark.late)
        # Timers at or after it are left out.
        self._horizon: Point = (NOWHERE, 0)
        self._left_first = NOWHERE
        self._taken: list[Due] = []
        # What was read by then.
        self._taken_of = 0
        self._begin = self.position = first

    def __len__(self) -> int:
        return len(self._nearest)

    def add(self, timer: Due, recalls: str = "") -> None:
        """Take the timer at :attr:`position`.

        Args:
            recalls: the key of the timer that it takes back when both are due.
        """
        self.position = timer.queue_offset + 1
        is_new = timer.queue_offset >= self._counted_to
        self._counted_to = max(self._counted_to, self.position)
        key = timer.point
        if self._is_done(timer):
            return
        self._late.discard(timer.queue_offset)
        if is_new and timer.topic:
            self.waiting[timer.topic] += 1
        # What is left out is read again together with what takes it back.
        if recalls and timer.due_ms <= self._horizon[0]:
            self._keep_recall(recalls, timer.due_ms)
        if key >= self._horizon:
            self._left_first = min(self._left_first, timer.queue_offset)
            return
        self._nearest.add(timer)
        self._runs.add(timer.queue_offset)
        if len(self._nearest) > self._max:
            self._leave_out()

    def _is_done(self, timer: Due) -> bool:
        """Whether it is delivered already."""
        at, key = timer.queue_offset, timer.point
        return any(at < to and key < before and at not in late for to, before, late in self._done)

    def _reached(self, read_to: int, before: Point) -> None:
        """All timers below both are delivered, but for late ones that were not read yet."""
        while self._done and self._done[-1][1] <= before:
            self._done.pop()
        self._done.append((read_to, before, frozenset(self._late)))
        del self._done[:-POINTS_MAX]

    def _keep_recall(self, key: str, due_ms: int) -> None:
        self._recalled[key] = due_ms
        heapq.heappush(self._recalls, (due_ms, key))
        if len(self._recalls) > self._recalls_most:
            self._recalls = [one for one in self._recalls if one[0] <= self._horizon[0]]
            heapq.heapify(self._recalls)
            self._recalled = {key: due_ms for due_ms, key in sorted(self._recalls)}
            self._recalls_most = 2 * max(len(self._recalls), self._max) + STALE_MAX

    def skip(self, queue_offset: int) -> None:
        """What was at :attr:`position` is no timer."""
        self.position = queue_offset

    def _leave_out(self) -> None:
        """Forget the farthest one; it is in the log."""
        last = self._nearest.pop_last()
        self._runs.remove(last.queue_offset)
        self._horizon = last.point
        self._left_first = min(self._left_first, last.queue_offset)

    @property
    def next_ms(self) -> int:
        """When the next one is due, as far as this table knows."""
        first = self._nearest.first
        return NOWHERE if first is None else first.due_ms

    def take(self, wall_ms: int, count_max: int) -> list[Due]:
        """Those that are due, in order; :meth:`settled` says that they are delivered.

        While the log is read again, none is taken that others still to be read may precede.
        """
        found: list[Due] = []
        again = self.position < self._done_to
        while len(found) < count_max:
            first = self._nearest.first
            if first is None or first.due_ms > wall_ms:
                break
            if again and first.point >= self._done_before:
                break
            found.append(self._nearest.pop_first())
        if found:
            self._taken += found
            self._taken_of = max(self.position, self._done_to)
        return found

    def is_recalled(self, key: str, due_ms: int) -> bool:
        """Whether a timer that is due was taken back."""
        return self._recalled.get(key) == due_ms

    def settled(self) -> None:
        """What was taken is delivered, and safe."""
        if self._taken:
            self._forget_recalls(self.next_ms)
            # The last time in the order of those that were taken together last.
            self._reached(
                self._taken_of, (self._taken[-1].due_ms, self._taken[-1].queue_offset + 1)
            )
        for timer in self._taken:
            self._runs.remove(timer.queue_offset)
            self._count_out(timer.topic)
        self._taken = []
        again = not self._nearest and self._left_first < NOWHERE
        # What is still to be read again must be judged by the old points.
        if again and self.position >= self._done_to:
            self._read_again()

    def _count_out(self, topic: str) -> None:
        if not topic:
            return
        self.waiting[topic] -= 1
        if not self.waiting[topic]:
            del self.waiting[topic]

    def _forget_recalls(self, before_ms: int) -> None:
        while self._recalls and self._recalls[0][0] < before_ms:
            due_ms, key = heapq.heappop(self._recalls)
            if self._recalled.get(key) == due_ms:
                del self._recalled[key]

    def _read_again(self) -> None:
        """Everything before the horizon is delivered: read what was left out."""
        self._done_before = self._horizon
        self._point = min(self._point, self._horizon)
        self._done_to = self.position
        self._reached(self._done_to, self._horizon)
        self._horizon = (NOWHERE, 0)
        self.position, self._left_first = self._left_first, NOWHERE

    def mark(self, wall_ms: int) -> TimerMark:
        """What may be kept now; what was taken and is not settled does not count as delivered."""
        next_one = self._nearest.first
        waiting = self._taken if next_one is None else [*self._taken, next_one]
        nearest = min((timer.point for timer in waiting), default=(wall_ms + 1, 0))
        first = max(self._runs.first, self._begin)
        before = min(nearest, self._horizon, (wall_ms + 1, 0))
        if self.position < self._done_to:
            # Still reading again: what lies ahead begins at the old horizon.
            before = min(before, self._done_before)
            first = min(first, self.position)
        else:
            self._late.clear()
        point = max(self._point, before)
        late = sorted(self._late_before(point))
        if len(late) > LATE_MAX or self._horizon < point:
            point, late = before, []
        self._point = point
        read_to = max(self.position, self._done_to)
        first = min(first, self._left_first, read_to)
        return TimerMark(max(0, point[0] - 1), read_to, first, point[1], tuple(late))

    def _late_before(self, point: Point) -> set[int]:
        """Queue offsets of those that wait though a point before which all are delivered is past them."""
        found = {timer.queue_offset for timer in self._taken if timer.point < point}
        found.update(one.queue_offset for one in self._nearest.before(point, LATE_MAX + 1))
        return found | self._late
