"""What was handed out and not acknowledged: check points, acknowledgements, and their merging.

Both are messages of the revive topic, in Java's own form, and reach it through the timers when
their invisible time is over: so they survive a kill and a failover, and a Java replica of the same
set goes on with them. Whoever reads the topic finds a check point first and the acknowledgements
that belong to it behind it; what has none by then is delivered once more.

Source: PopCheckPoint, AckMsg, BatchAckMsg and PopReviveService of RocketMQ 5.0 to 5.5.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct, field

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.json_members import json_array, number, read_object, text
from rmqha.broker.pop.bit_sets import ACKED_MAX
from rmqha.broker.pop.request import COUNT_MAX
from rmqha.broker.topics.topic_table import QUEUES_MAX
from rmqha.remoting import fastjson
from rmqha.remoting.headers import INT64_MAX, parse_number
from rmqha.remoting.topic_names import REVIVE_TOPIC as REVIVE_TOPIC  # rooms above take it from here
from rmqha.remoting.topic_names import retry_topic_of
from rmqha.store import properties as props
from rmqha.store.consume_queue import name_error
from rmqha.store.record import Message

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
ACK_INTERVAL_MS = 1_000
"""A check point comes this long before the acknowledgements that it may have."""

REVIVE_DELAY_MS = 2 * ACK_INTERVAL_MS
"""Acknowledgements of the last moment are waited for so long after the invisible time."""

AHEAD_MAX_MS = 60_000
"""The timers bring a check point a second before it is over: one that claims to be over later than
this after it was stored is taken up then."""

_LOG_END = "RMQHA_LOG_END"
"""A property of a check point's message, which its delivery keeps and Java passes over."""

_CHECK_POINT, _ACK, _BATCH_ACK = "ck", "ack", "bAck"

Key = tuple[str, str, int, int, int, str]


class CheckPoint(NamedTuple):
    """Messages of one queue that a group was handed at once.

    Attributes:
        offsets: of the messages, in the queue.
        repeated: how often its revival has failed.
        log_end: where the log ended when they were handed out; 0 when nobody has noted it, as Java. What
            stands there or behind is none of them: the topic was deleted, and made anew.
    """

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_ms: int
    invisible_ms: int
    broker_name: str
    offsets: tuple[int, ...]
    repeated: int = 0
    log_end: int = 0

    def holds(self, physical_offset: int) -> bool:
        """Whether what is at one of its offsets now can be what was handed out."""
        return not self.log_end or physical_offset < self.log_end

    @property
    def revive_ms(self) -> int:
        """When what is not acknowledged becomes visible again."""
        return self.pop_ms + self.invisible_ms

    @property
    def key(self) -> Key:
        """What its acknowledgements name it by."""
        return (
            self.topic, self.group, self.queue_id, self.start_offset, self.pop_ms, self.broker_name,
        )  # fmt: skip

    def encode(self) -> bytes:
        """The body of its message."""
        members: dict[str, Any] = {
            "bm": 0,
            "bn": self.broker_name,
            "c": self.group,
            "d": [offset - self.start_offset for offset in self.offsets],
            "it": self.invisible_ms,
            "n": len(self.offsets),
            "pt": self.pop_ms,
            "q": self.queue_id,
            "reviveTime": self.revive_ms,
            "ro": 0,
            "so": self.start_offset,
            "t": self.topic,
        }
        if self.repeated:
            members["rp"] = str(self.repeated)
        return fastjson.dumps(members)

    @classmethod
    def decode(cls, body: bytes, own_name: str) -> CheckPoint:
        """Read a body; raises RemoteProtocolError."""
        members = read_object(body, "a check point")
        start = _count(members, "so")
        topic, group = text(members, "t"), text(members, "c")
        _check_names(topic, group)
        repeated = parse_number(text(members, "rp", "0"), INT64_MAX)
        if repeated is None:
            raise RemoteProtocolError("rp is no whole number")
        found = cls(
            topic, group, _count(members, "q", QUEUES_MAX), start, _count(members, "pt"),
            _count(members, "it"), text(members, "bn", own_name),
            tuple(start + one for one in _distances(members)), max(0, repeated),
        )  # fmt: skip
        if max(found.revive_ms, *found.offsets, 0) > INT64_MAX:
            raise RemoteProtocolError("a check point has numbers of more than 64 bits")
        return found

    def message(self, revive_topic: str, revive_queue: int, host: bytes, wall_ms: int) -> Message:
        """Its message, which the timers deliver a second before it is over."""
        unique = "@".join(
            (
                self.topic, str(self.queue_id), str(self.start_offset), self.group,
                str(self.pop_ms), self.broker_name, _CHECK_POINT,
            )
        )  # fmt: skip
        due_ms = self.revive_ms - ACK_INTERVAL_MS
        more = {_LOG_END: str(self.log_end)} if self.log_end else {}
        return _message(
            revive_topic, revive_queue, self.encode(), _CHECK_POINT, unique, due_ms, host, wall_ms,
            more,
        )  # fmt: skip


def _count(members: Mapping[str, Any], name: str, below: int = INT64_MAX) -> int:
    value = number(members, name, 0)
    if not 0 <= value < below:
        raise RemoteProtocolError(f"{name}={value} is not from 0 to {below}")
    return value


def _distances(members: Mapping[str, Any]) -> list[int]:
    """How far a check point's messages are from its first one."""
    found = json_array(members.get("d"), "d") or range(_count(members, "n", COUNT_MAX + 1))
    if len(found) > COUNT_MAX:
        raise RemoteProtocolError(f"a check point of {len(found)} messages, at most {COUNT_MAX}")
    if not all(type(one) is int and 0 <= one <= INT64_MAX for one in found):
        raise RemoteProtocolError("a check point holds other than numbers")
    return list(dict.fromkeys(found))


def _check_names(topic: str, group: str) -> None:
    """Raise RemoteProtocolError for names of which no retry topic can be made."""
    for name in (topic, group, retry_topic_of(topic, group)):
        error = name_error(name.encode())
        if error is not None:
            raise RemoteProtocolError(f"a check point that cannot be: {error}")


class Acks(NamedTuple):
    """Acknowledged messages of one check point."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_ms: int
    broker_name: str
    offsets: tuple[int, ...]

    @property
    def key(self) -> Key:
        """The check point's."""
        return self[:6]

    def encode(self) -> bytes:
        """The body of its message: one message in Java's old form, several in its batch form."""
        members: dict[str, Any] = {
            "ao": self.offsets[0] if len(self.offsets) == 1 else -1,
            "bn": self.broker_name,
            "c": self.group,
            "pt": self.pop_ms,
            "q": self.queue_id,
            "so": self.start_offset,
            "t": self.topic,
        }
        if len(self.offsets) != 1:
            members["aol"] = list(self.offsets)
        return fastjson.dumps(members)

    @classmethod
    def decode(cls, body: bytes, own_name: str, *, batch: bool) -> Acks:
        """Read a body; raises RemoteProtocolError."""
        members = read_object(body, "an acknowledgement")

        def count(short: str, long: str) -> int:
            return number(members, short if short in members else long, 0)

        def name(short: str, long: str, default: str | None = None) -> str:
            return text(members, short if short in members else long, default)

        offsets = [count("ao", "ackOffset")]
        if batch:
            offsets = json_array(members.get("aol", members.get("ackOffsetList")), "aol")
        if len(offsets) > ACKED_MAX:
            raise RemoteProtocolError(f"{len(offsets)} acknowledgements, at most {ACKED_MAX}")
        if not all(type(one) is int for one in offsets):
            raise RemoteProtocolError("an acknowledgement holds other than numbers")
        return cls(
            name("t", "topic"), name("c", "consumerGroup"), count("q", "queueId"),
            count("so", "startOffset"), count("pt", "popTime"),
            name("bn", "brokerName", own_name) or own_name, tuple(offsets),
        )  # fmt: skip

    def message(
        self, revive_topic: str, revive_queue: int, invisible_ms: int, host: bytes, wall_ms: int
    ) -> Message:
        """Its message, which the timers deliver when the invisible time is over."""
        tag = _ACK if len(self.offsets) == 1 else _BATCH_ACK
        which = str(self.offsets[0]) if len(self.offsets) == 1 else str(list(self.offsets))
        unique = "@".join(
            (
                self.topic, str(self.queue_id), which, self.group, str(self.pop_ms),
                self.broker_name, tag,
            )
        )  # fmt: skip
        due_ms = self.pop_ms + invisible_ms
        return _message(
            revive_topic, revive_queue, self.encode(), tag, unique, due_ms, host, wall_ms
        )


def _message(
    topic: str, queue: int, body: bytes, tag: str, unique: str, due_ms: int, host: bytes,
    wall_ms: int, more: Mapping[str, str] | None = None,
) -> Message:  # fmt: skip
    pairs = {"TAGS": tag, "UNIQ_KEY": unique, "TIMER_DELIVER_MS": str(due_ms), **(more or {})}
    properties = props.encode(pairs)
    return Message(topic, queue, body, properties, wall_ms, host, host)


def read_record(properties: bytes, body: bytes, own_name: str) -> CheckPoint | Acks | None:
    """What a message of the revive topic says; None for one of an unknown kind.

    Raises:
        RemoteProtocolError: its body is malformed.
    """
    tag = (props.find(properties, b"TAGS") or b"").decode("utf-8", "replace")
    if tag == _CHECK_POINT:
        log_end = props.find_integer(properties, _LOG_END.encode())
        return CheckPoint.decode(body, own_name)._replace(log_end=max(0, log_end or 0))
    if tag in (_ACK, _BATCH_ACK):
        return Acks.decode(body, own_name, batch=tag == _BATCH_ACK)
    return None


class _Open(Struct):
    """A check point that waits, and what of it is acknowledged."""

    point: CheckPoint
    record_offset: int
    over_ms: int
    acked: set[int] = field(default_factory=set)


class Due(NamedTuple):
    """What a check point leaves to be delivered once more; often nothing."""

    point: CheckPoint
    record_offset: int
    offsets: tuple[int, ...]


class ReviveQueue:
    """One queue of the revive topic, from where the group's offset stands.

    Args:
        first: the queue offset to read first.
        open_max: check points that wait at a time; while there are so many, nothing is read.

    Attributes:
        position: the queue offset to read next.
    """

    def __init__(self, first: int, open_max: int) -> None:
        self.position = first
        self._open: OrderedDict[Key, _Open] = OrderedDict()
        self._max = open_max

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_full(self) -> bool:
        """Some must be over before more are read."""
        return len(self._open) >= self._max

    def add(self, found: CheckPoint | Acks | None, stored_ms: int) -> None:
        """Take the record at :attr:`position`; None for what is none.

        Args:
            stored_ms: when it was stored in the revive topic.
        """
        at = self.position
        self.position = at + 1
        match found:
            case CheckPoint():
                over_ms = min(found.revive_ms, stored_ms + AHEAD_MAX_MS)
                self._open[found.key] = _Open(found, at, over_ms)
                self._open.move_to_end(found.key)
            case Acks():
                known = self._open.get(found.key)
                if known is not None:
                    known.acked.update(one for one in found.offsets if one in known.point.offsets)
            case None:
                pass

    def skip(self, position: int) -> None:
        """Records before ``position`` are gone."""
        self.position = max(self.position, position)

    def due(self, delivered_ms: int, count_max: int) -> list[Due]:
        """Check points that no acknowledgement can reach in time any more, the oldest ones.

        They stay until :meth:`done`; one that is not due yet keeps those behind it, so that the
        position which survives a crash never passes it.

        Args:
            delivered_ms: all timers that were due before it are in the revive topic.
        """
        found: list[Due] = []
        for one in self._open.values():
            if delivered_ms - one.over_ms <= REVIVE_DELAY_MS or len(found) == count_max:
                break
            left = tuple(o for o in one.point.offsets if o not in one.acked)
            found.append(Due(one.point, one.record_offset, left))
        return found

    def done(self, due: Due) -> None:
        """What was left of it is written and safe."""
        self._open.pop(due.point.key, None)

    @property
    def kept(self) -> int:
        """The offset of the last record that is of no use any more; -1 when all are."""
        first = next(iter(self._open.values()), None)
        return (self.position if first is None else first.record_offset) - 1
