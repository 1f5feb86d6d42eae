"""What is kept and told of stored timers: how far they are delivered, and how many wait.

The log of rmq_sys_wheel_timer is the only place where timers are kept. What survives a crash is a mark:
timers of queue offset below ``read_to``, due at or before ``read_ms``, were delivered; so a restart reads
the log from the first timer that was not.

Order is (time, queue offset), so every "how far" is one point of it. A timer that is read when it is
due already may lie before a point that was passed; those that wait are listed in the mark.

Source: our own; Java keeps a wheel and a timer log.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import Struct

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.topics.topic_table import DataVersion

_JAVA_CHECKPOINT = struct.Struct(">7q")
_JAVA_CHECKPOINT_OLD = struct.Struct(">4q")


class TimerFigures(NamedTuple):
    """How far timers are.

    Attributes:
        read_behind_s: seconds that the delivery is behind.
        unread: timers in the log that were not read yet.
        held: that wait for their time in memory.
        waiting: of each topic, how many wait, wherever; one that was taken back does so until its time.
    """

    read_behind_s: int = 0
    unread: int = 0
    held: int = 0
    waiting: Mapping[str, int] = MappingProxyType({})


class Due(Struct, frozen=True, order=True, gc=False):
    """One stored timer. There may be half a million, at which no collection of garbage looks.

    Attributes:
        due_ms: wall clock.
        queue_offset: its place in the timers' queue.
        physical_offset: its place in the commit log.
        topic: where it is delivered; empty when it takes another one back, and for one that nobody counts.
    """

    due_ms: int
    queue_offset: int
    physical_offset: int
    topic: str = ""

    @property
    def point(self) -> tuple[int, int]:
        """Its place in the order of all."""
        return self.due_ms, self.queue_offset


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


def timer_counts_body(
    waiting: Mapping[str, int], version: DataVersion, wall_ms: int
) -> dict[str, Any]:
    """The answer to request 61, of Java's TimerMetricsSerializeWrapper."""
    counts = {
        topic: {"count": count, "timeStamp": wall_ms} for topic, count in sorted(waiting.items())
    }
    return {"dataVersion": version.members(), "timingCount": counts}


def _step(at_ms: int, precision_ms: int) -> int:
    """The beginning of the step of ``timerPrecisionMs`` that a moment is in."""
    return at_ms - at_ms % max(1, precision_ms)
