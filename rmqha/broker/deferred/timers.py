"""Which stored timers are due: a bounded table over the log of rmq_sys_wheel_timer.

The log is the only place where timers are kept. This table holds the nearest of them; when there are
more than it may hold, the farthest are left out, and the log is read again once those before them
are delivered. What survives a crash is a mark: timers of queue offset below ``read_to``, due at or
before ``read_ms``, were delivered; so a restart reads the log from the first timer that was not.

Order is (time, queue offset), so every "how far" is one point of it. A timer that is read when it is
due already may lie before a point that was passed; those that wait are listed in the mark.

Source: our own; Java keeps a wheel and a timer log.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.topics.topic_table import DataVersion

NOWHERE = 1 << 62
LATE_MAX = 20_000
"""Late timers that a mark lists; when more of them wait, a restart may deliver some twice."""

_JAVA_CHECKPOINT = struct.Struct(">7q")
_JAVA_CHECKPOINT_OLD = struct.Struct(">4q")


class TimerFigures(NamedTuple):
    """How far timers are.

    Attributes:
        read_behind_s: seconds that the delivery is behind.
        unread: timers in the log that were not read yet.
        held: that wait for their time.
    """

    read_behind_s: int = 0
    unread: int = 0
    held: int = 0


class Due(NamedTuple):
    """One stored timer.

    Attributes:
        due_ms: wall clock.
        queue_offset: its place in the timers' queue.
        physical_offset: its place in the commit log.
    """

    due_ms: int
    queue_offset: int
    physical_offset: int


class TimerMark(NamedTuple):
    """What is kept of the table.

    Attributes:
        read_ms, read_to: timers of queue offset below ``read_to``, due at or before ``read_ms``,
            were delivered.
        first: no timer below this queue offset is left to deliver; 0 when nobody knows.
        same_ms_to: of those due in the millisecond after ``read_ms``, the ones below this queue
            offset were delivered, too.
        late: queue offsets of timers that were not delivered although all this says so.
    """

    read_ms: int = 0
    read_to: int = 0
    first: int = 0
    same_ms_to: int = 0
    late: tuple[int, ...] = ()

    def cut(self, end: int) -> TimerMark:
        """What is left of it when the log has lost its tail, and the timers' queue ends there."""
        return self._replace(
            read_to=min(self.read_to, end),
            first=min(self.first, end),
            same_ms_to=min(self.same_ms_to, end),
            late=tuple(offset for offset in self.late if offset < end),
        )

    def members(self) -> dict[str, Any]:
        """The JSON members."""
        return {
            "readTimeMs": self.read_ms, "queueOffset": self.read_to, "firstOffset": self.first,
            "sameTimeOffset": self.same_ms_to, "lateOffsets": list(self.late),
        }  # fmt: skip

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> TimerMark:
        """Read the JSON members.

        Raises:
            RemoteProtocolError: not such an object.
        """
        names = ("readTimeMs", "queueOffset", "firstOffset", "sameTimeOffset")
        numbers = [value.get(name, 0) for name in names]
        late = value.get("lateOffsets") or []
        if not isinstance(late, list) or not all(
            type(number) is int and number >= 0 for number in (*numbers, *late)
        ):
            raise RemoteProtocolError("a timer mark holds other than numbers")
        read_ms, read_to, first, same_ms_to = numbers
        return cls(read_ms, read_to, first, same_ms_to, tuple(late))

    def encode(self, version: DataVersion, precision_ms: int) -> bytes:
        """As request 60 answers it: what waits late is read again, for Java knows no list of it.

        Java's ``lastReadTimeMs`` is the step to deliver next, and it goes on from there step by
        step: one that is delivered in part comes again. Its timer log has no place here.
        """
        read_to = min((self.read_to, *self.late))
        next_ms = _step(self.read_ms + 1, precision_ms)
        return _JAVA_CHECKPOINT.pack(
            next_ms, 0, read_to, read_to, version.state_version, version.timestamp,
            version.counter,
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes, precision_ms: int) -> TimerMark:
        """Read the answer to request 60.

        Java's number may stand anywhere within the step that it delivers next, for instance where
        it took it over from a broker that has no steps.

        Raises:
            RemoteProtocolError: too short for one.
        """
        if len(data) < _JAVA_CHECKPOINT_OLD.size:
            raise RemoteProtocolError(f"a timer checkpoint of {len(data)} bytes")
        next_ms, _, _, read_to = _JAVA_CHECKPOINT_OLD.unpack_from(data)
        return cls(max(0, _step(next_ms, precision_ms) - 1), max(0, read_to), 0)


def _step(at_ms: int, precision_ms: int) -> int:
    """The beginning of the step of ``timerPrecisionMs`` that a moment is in."""
    return at_ms - at_ms % max(1, precision_ms)


class TimerTable:
    """The nearest timers.

    Args:
        timers_max: how many are held at a time; recalls count as well.
        mark: where the last table ended.
        first: where to begin reading the queue.

    Attributes:
        position: the queue offset to read next.
    """

    def __init__(self, timers_max: int, mark: TimerMark, first: int) -> None:
        self._max = max(2, timers_max)
        self._heap: list[Due] = []
        self._recalled: dict[str, int] = {}
        # Timers below both are delivered already.
        self._done_to = mark.read_to
        self._done_before = self._point = (mark.read_ms + 1, mark.same_ms_to)
        self._late = set(mark.late)
        # Timers at or after it are left out.
        self._horizon: tuple[int, int] = (NOWHERE, 0)
        self._left_first = NOWHERE
        self._taken: list[Due] = []
        self.position = first

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, timer: Due, recalls: str = "") -> None:
        """Take the timer at :attr:`position`.

        Args:
            recalls: the key of the timer that it takes back when both are due.
        """
        self.position = timer.queue_offset + 1
        key = timer.due_ms, timer.queue_offset
        if timer.queue_offset < self._done_to and key < self._done_before:
            if timer.queue_offset not in self._late:
                return
            self._late.discard(timer.queue_offset)
        if recalls and len(self._recalled) < self._max:
            self._recalled[recalls] = timer.due_ms
        if key >= self._horizon:
            self._left_first = min(self._left_first, timer.queue_offset)
            return
        heapq.heappush(self._heap, timer)
        if len(self._heap) > self._max:
            self._leave_out()

    def skip(self, queue_offset: int) -> None:
        """What was at :attr:`position` is no timer."""
        self.position = queue_offset

    def _leave_out(self) -> None:
        """Forget the farther half; it is in the log."""
        self._heap.sort()
        kept = len(self._heap) // 2
        first = self._heap[kept]
        self._horizon = (first.due_ms, first.queue_offset)
        self._left_first = min(
            self._left_first, *(timer.queue_offset for timer in self._heap[kept:])
        )
        del self._heap[kept:]

    @property
    def next_ms(self) -> int:
        """When the next one is due, as far as this table knows."""
        return self._heap[0].due_ms if self._heap else NOWHERE

    def take(self, wall_ms: int, count_max: int) -> list[Due]:
        """Those that are due, in order; :meth:`settled` says that they are delivered.

        While the log is read again, none is taken that others still to be read may precede.
        """
        found: list[Due] = []
        again = self.position < self._done_to
        while self._heap and self._heap[0].due_ms <= wall_ms and len(found) < count_max:
            if again and self._heap[0][:2] >= self._done_before:
                break
            found.append(heapq.heappop(self._heap))
        self._taken += found
        return found

    def is_recalled(self, key: str, due_ms: int) -> bool:
        """Whether a timer that is due was taken back."""
        return self._recalled.get(key) == due_ms

    def settled(self) -> None:
        """What was taken is delivered, and safe."""
        if self._recalled and self._taken:
            oldest = self.next_ms
            self._recalled = {k: due for k, due in self._recalled.items() if due >= oldest}
        self._taken = []
        again = not self._heap and self._left_first < NOWHERE
        # What is still to be read again must be judged by the old points.
        if again and self.position >= self._done_to:
            self._read_again()

    def _read_again(self) -> None:
        """Everything before the horizon is delivered: read what was left out."""
        self._done_before = self._horizon
        self._point = min(self._point, self._horizon)
        self._done_to = self.position
        self._horizon = (NOWHERE, 0)
        self.position, self._left_first = self._left_first, NOWHERE

    def mark(self, wall_ms: int) -> TimerMark:
        """What may be kept now; what was taken and is not settled does not count as delivered."""
        waiting = [*self._taken, *self._heap]
        first = min((timer.queue_offset for timer in waiting), default=NOWHERE)
        nearest = min((timer[:2] for timer in waiting), default=(wall_ms + 1, 0))
        before = min(nearest, self._horizon, (wall_ms + 1, 0))
        if self.position < self._done_to:
            # Still reading again: what lies ahead begins at the old horizon.
            before = min(before, self._done_before)
            first = min(first, self.position)
        else:
            self._late.clear()
        point = max(self._point, before)
        late = sorted({timer.queue_offset for timer in waiting if timer[:2] < point} | self._late)
        if len(late) > LATE_MAX or self._horizon < point:
            point, late = before, []
        self._point = point
        read_to = max(self.position, self._done_to)
        first = min(first, self._left_first, read_to)
        return TimerMark(max(0, point[0] - 1), read_to, first, point[1], tuple(late))
