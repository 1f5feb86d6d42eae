"""Pop in order: what of a queue is in flight, and when the queue may be popped again.

A queue that a group pops in order gives nothing more as long as anything that it gave is neither
acknowledged nor visible again. There are no check points and no retry topic: the group's offset
stays at the first message that is not acknowledged, and the queue itself gives it once more.

Source: ConsumerOrderInfoManager and ExtraInfoUtil of RocketMQ 5.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.json_members import json_array, json_object, number, text
from rmqha.broker.pop.request import COUNT_MAX, retry_mark
from rmqha.remoting.headers import INT32_MAX, INT64_MAX, parse_number

SEPARATOR = "@"
FORGET_AFTER_MS = 24 * 3_600_000
"""A queue that nobody has popped for so long is forgotten."""

Key = tuple[str, str, int]
"""(topic, group, queue id)."""


class InFlight(Struct):
    """The last messages that a queue gave.

    Attributes:
        attempt_id: of the request; the same attempt may ask again and gets the same. Often None.
        offsets: of the messages, rising.
        acked: a bit for each of them.
        visible_ms: when a message is visible again, where a client has changed that.
        times: how often a message was given before, where it was.
        handed_ms: when this was.
    """

    attempt_id: str | None
    pop_ms: int
    invisible_ms: int
    offsets: tuple[int, ...]
    acked: int = 0
    visible_ms: dict[int, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    handed_ms: int = 0

    def left(self, kept: int | None) -> list[int]:
        """What is not acknowledged.

        Args:
            kept: the group's offset, or None; another master, which had its turn since, may have
                been told of everything before it.
        """
        return [
            offset
            for at, offset in enumerate(self.offsets)
            if not self.acked >> at & 1 and (kept is None or offset >= kept)
        ]

    def next_offset(self, kept: int | None) -> int:
        """The first message that is not acknowledged; behind the last when all are."""
        return next(iter(self.left(kept)), self.offsets[-1] + 1)

    def until_ms(self, kept: int | None) -> int:
        """When nothing is in flight any more; 0 when all is acknowledged."""
        ends = self.pop_ms + self.invisible_ms
        return max((self.visible_ms.get(offset, ends) for offset in self.left(kept)), default=0)

    def members(self) -> dict[str, Any]:
        """The JSON members, under Java's names; offsets are the first one and distances from it."""
        first = self.offsets[0]
        members: dict[str, Any] = {
            "cm": self.acked,
            "i": self.invisible_ms,
            "l": self.handed_ms,
            "o": [first, *(offset - first for offset in self.offsets[1:])],
            "popTime": self.pop_ms,
        }
        if self.attempt_id is not None:
            members["a"] = self.attempt_id
        if self.times:
            members["oc"] = {str(offset): count for offset, count in self.times.items()}
        if self.visible_ms:
            members["ot"] = {str(offset): at for offset, at in self.visible_ms.items()}
        return members

    @classmethod
    def of(cls, value: object) -> InFlight | None:
        """Read the JSON members; None when nothing is in flight. Raises RemoteProtocolError."""
        members = json_object(value, "the order of a queue")
        distances = json_array(members.get("o"), "o")
        if not all(type(one) is int and 0 <= one <= INT64_MAX for one in distances):
            raise RemoteProtocolError("the order of a queue holds other than offsets")
        if len(distances) > COUNT_MAX:
            raise RemoteProtocolError(f"more than {COUNT_MAX} messages in flight")
        if not distances:
            return None
        offsets = (distances[0], *(distances[0] + one for one in distances[1:]))
        return cls(
            None if members.get("a") is None else text(members, "a"),
            number(members, "popTime", 0), number(members, "i", 0), offsets,
            number(members, "cm", 0), _by_offset(members, "ot"), _by_offset(members, "oc"),
            number(members, "l", 0),
        )  # fmt: skip


def _by_offset(members: Mapping[str, Any], name: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for key in (table := json_object(members.get(name) or {}, name)):
        offset = parse_number(key, INT64_MAX)
        if offset is None:
            raise RemoteProtocolError(f"{key!r} in {name} is no offset")
        found[offset] = number(table, key, 0)
    return found


class AckOutcome(NamedTuple):
    """What an acknowledgement means.

    Attributes:
        next_offset: where the group's offset is to be; None leaves it.
        illegal: the message is none of those that are in flight.
    """

    next_offset: int | None
    illegal: bool = False


class OrderTable:
    """What is in flight, queue by queue, of all groups that pop in order.

    Args:
        queues_max: at a time.
    """

    def __init__(self, queues_max: int) -> None:
        self._table: dict[Key, InFlight] = {}
        self._max = queues_max

    def __len__(self) -> int:
        return len(self._table)

    def has_room(self, key: Key) -> bool:
        """Whether this queue's messages could be remembered."""
        return key in self._table or len(self._table) < self._max

    def blocked_until(
        self, key: Key, attempt_id: str | None = None, *, kept: int | None = None
    ) -> int:
        """Up to when a pop gets nothing of a queue; a time that is over, or 0, lets it in.

        Args:
            kept: the group's offset.
        """
        known = self._table.get(key)
        if known is None or (attempt_id is not None and attempt_id == known.attempt_id):
            return 0
        return known.until_ms(kept)

    def handed(
        self,
        key: Key,
        attempt_id: str | None,
        pop_ms: int,
        invisible_ms: int,
        offsets: Sequence[int],
    ) -> str:
        """Messages go out; their part of ``orderCountInfo``: how often each went out before."""
        times: dict[int, int] = {}
        before = self._table.get(key)
        if before is not None:
            again = attempt_id is not None and attempt_id == before.attempt_id
            times = dict(before.times) if again else _counted(before, offsets)
        self._table[key] = InFlight(
            attempt_id, pop_ms, invisible_ms, tuple(offsets), times=times, handed_ms=pop_ms
        )
        topic, _, queue_id = key
        mark = retry_mark(topic)
        least = min((times.get(offset, 0) for offset in offsets), default=0)
        # The last part is for clients that know queues only.
        return ";".join(
            [f"{mark} qo{queue_id}%{offset} {count}" for offset, count in sorted(times.items())]
            + [f"{mark} {queue_id} {least}"]
        )

    def acknowledge(self, key: Key, offset: int, pop_ms: int, kept: int | None) -> AckOutcome:
        """A message is done.

        Args:
            kept: the group's offset; everything before it is done, and nothing in between may be
                skipped by a broker that does not know what else is in flight.
        """
        if kept is not None and offset < kept:
            return AckOutcome(None)
        known = self._table.get(key)
        if known is None or (kept is not None and known.offsets[-1] < kept):
            return AckOutcome(offset + 1 if offset == kept else None)
        if pop_ms != known.pop_ms:
            return AckOutcome(None)
        if offset not in known.offsets:
            return AckOutcome(None, illegal=True)
        known.acked |= 1 << known.offsets.index(offset)
        return AckOutcome(known.next_offset(kept))

    def change(self, key: Key, offset: int, pop_ms: int, visible_ms: int) -> bool:
        """A client wants a message at another time; False when it is not in flight any more."""
        known = self._table.get(key)
        if known is None or pop_ms != known.pop_ms or offset not in known.offsets:
            return False
        known.visible_ms[offset] = visible_ms
        return True

    def forget(self, key: Key) -> None:
        """An operator has moved the group: nothing counts as in flight."""
        self._table.pop(key, None)

    def of_ended(self, topics: Container[str], groups: Container[str]) -> list[Key]:
        """The queues of topics and groups that are gone."""
        return [key for key in self._table if key[0] in topics or key[1] in groups]

    def clean(self, wall_ms: int, exists: Callable[[Key], bool]) -> int:
        """Forget queues that are gone or idle; how many."""
        gone = [
            key
            for key, one in self._table.items()
            if wall_ms - one.handed_ms > FORGET_AFTER_MS or not exists(key)
        ]
        for key in gone:
            del self._table[key]
        return len(gone)

    # -- the file ----------------------------------------------------------------------------------

    def members(self) -> dict[str, Any]:
        """``config/consumerOrderInfo.json``."""
        table: dict[str, dict[str, Any]] = {}
        for (topic, group, queue_id), one in sorted(self._table.items(), key=lambda item: item[0]):
            table.setdefault(f"{topic}{SEPARATOR}{group}", {})[str(queue_id)] = one.members()
        return {"table": table}

    def load(self, value: Mapping[str, Any]) -> None:
        """Take the content of the file; raises RemoteProtocolError."""
        found: dict[Key, InFlight] = {}
        for name, queues in json_object(value.get("table") or {}, "table").items():
            topic, separator, group = name.rpartition(SEPARATOR)
            if not separator:
                raise RemoteProtocolError(f"{name!r} is no topic@group")
            for key, one in json_object(queues, name).items():
                queue_id = parse_number(key, INT32_MAX)
                in_flight = InFlight.of(one)
                if queue_id is None or queue_id < 0:
                    raise RemoteProtocolError(f"{name!r} holds the queue {key!r}")
                if in_flight is not None and len(found) < self._max:
                    found[topic, group, queue_id] = in_flight
        self._table = found


def _counted(before: InFlight, offsets: Sequence[int]) -> dict[int, int]:
    """How often messages went out, those of the last time once more."""
    known = set(before.offsets)
    return {offset: before.times.get(offset, 0) + 1 for offset in offsets if offset in known}
