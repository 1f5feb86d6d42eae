"""Which stored timers are due: a bounded table over the log of rmq_sys_wheel_timer.

The log is the only place where timers are kept. This table holds the nearest of them; when there are
more than it may hold, the farthest are left out, and the log is read again once those before them
are delivered. What survives a crash is a mark: timers of queue offset below ``read_to``, due at or
before ``read_ms``, were delivered; so a restart reads the log from the first timer that was not.

Order is (time, queue offset), so every "how far" is one point of it.

Source: our own; Java keeps a wheel and a timer log (reference broker-namesrv 2.7).
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.topics import DataVersion

NOWHERE = 1 << 62
_JAVA_CHECKPOINT = struct.Struct(">7q")
_JAVA_CHECKPOINT_OLD = struct.Struct(">4q")


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
    """

    read_ms: int = 0
    read_to: int = 0
    first: int = 0

    def members(self) -> dict[str, int]:
        """The JSON members."""
        return {"readTimeMs": self.read_ms, "queueOffset": self.read_to, "firstOffset": self.first}

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> TimerMark:
        """Read the JSON members.

        Raises:
            RemoteProtocolError: not such an object.
        """
        numbers = [value.get(name, 0) for name in ("readTimeMs", "queueOffset", "firstOffset")]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise RemoteProtocolError("a timer mark holds other than numbers")
        return cls(*numbers)

    def encode(self, version: DataVersion) -> bytes:
        """As request 60 answers it; Java's timer log has no place here."""
        return _JAVA_CHECKPOINT.pack(
            self.read_ms, 0, self.read_to, self.read_to, version.state_version, version.timestamp,
            version.counter,
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes) -> TimerMark:
        """Read the answer to request 60.

        Raises:
            RemoteProtocolError: too short for one.
        """
        if len(data) < _JAVA_CHECKPOINT_OLD.size:
            raise RemoteProtocolError(f"a timer checkpoint of {len(data)} bytes")
        read_ms, _, _, read_to = _JAVA_CHECKPOINT_OLD.unpack_from(data)
        return cls(max(0, read_ms), max(0, read_to), 0)


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
        self._done_before: tuple[int, int] = (mark.read_ms + 1, -1)
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
            return
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
        """Those that are due, in order; :meth:`settled` says that they are delivered."""
        found: list[Due] = []
        while self._heap and self._heap[0].due_ms <= wall_ms and len(found) < count_max:
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
        if not self._heap and self._left_first < NOWHERE:
            self._read_again()

    def _read_again(self) -> None:
        """Everything before the horizon is delivered: read what was left out."""
        self._done_before = self._horizon
        self._done_to = self.position
        self._horizon = (NOWHERE, 0)
        self.position, self._left_first = self._left_first, NOWHERE

    def mark(self, wall_ms: int) -> TimerMark:
        """What may be kept now; what was taken and is not settled does not count as delivered."""
        waiting = [*self._taken, *self._heap]
        first = min((timer.queue_offset for timer in waiting), default=NOWHERE)
        before = min((timer.due_ms for timer in waiting), default=wall_ms + 1)
        if self.position < self._done_to:
            # Still reading again: what lies ahead begins at the old horizon.
            before = min(before, self._done_before[0])
            first = min(first, self.position)
        before = min(before, self._horizon[0], wall_ms + 1)
        first = min(first, self._left_first, max(self.position, self._done_to))
        return TimerMark(max(0, before - 1), max(self.position, self._done_to), first)
