"""The mapping of a static topic: which physical queues a logical queue was and is.

A logical queue's history is a list of segments, oldest first. The last one is the leader: its
broker set takes new messages. Each broker set keeps the lists of the queues that it leads, and
those of queues that were moved away from it.

Members that miss have Java's defaults; unknown ones are passed over.

Source: RIP-21; LogicQueueMappingItem, TopicQueueMappingInfo and TopicQueueMappingDetail of RocketMQ
5.0 to 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from rmqha.base.errors import RemoteProtocolError
from rmqha.remoting.headers import INT32_MAX, INT64_MAX, parse_number
from rmqha.remoting.values import as_array, as_object, as_text

GLOBAL_SCOPE = "__global__"
MOCK_BROKER_PREFIX = "__syslo__"
UNDECIDED = -1
"""A logical offset or an end that nobody has decided yet."""

QUEUES_MAX = 65_536
SEGMENTS_MAX = 10_000
"""Of one logical queue; a remap adds one, and expired ones are dropped."""


_Small = Annotated[int, Meta(ge=-1, le=INT32_MAX)]
_Large = Annotated[int, Meta(ge=-1, le=INT64_MAX)]


_JAVAS_NAMES = {
    "queue_id": "queueId", "broker_name": "bname", "logic_offset": "logicOffset",
    "start_offset": "startOffset", "end_offset": "endOffset", "time_of_start": "timeOfStart",
    "time_of_end": "timeOfEnd",
}  # fmt: skip


class LogicQueueMappingItem(Struct, frozen=True, gc=False, rename=_JAVAS_NAMES):
    """One segment of a logical queue: a physical queue of a broker set.

    Attributes:
        gen: grows with every remap of the queue.
        queue_id: the physical queue.
        broker_name: the broker set (``bname`` on the wire).
        logic_offset: what the segment's first message is called logically; -1 while undecided.
        start_offset: the physical offset of the first message.
        end_offset: behind the last message, physically; -1 while unknown.
        time_of_start, time_of_end: milliseconds since 1970; -1 while unknown.
    """

    gen: _Small
    queue_id: _Small
    broker_name: Annotated[str, Meta(min_length=1)]
    logic_offset: _Large
    start_offset: _Large = 0
    end_offset: _Large = UNDECIDED
    time_of_start: _Large = -1
    time_of_end: _Large = -1

    @property
    def is_decided(self) -> bool:
        """Whether offsets of this segment can be translated."""
        return self.logic_offset >= 0

    @property
    def delta(self) -> int:
        """What is added to a physical offset; consumers are told it as ``offsetDelta``."""
        return self.logic_offset - self.start_offset

    def logical(self, physical: int) -> int:
        """The logical offset of a physical one, which may lie before the start; needs a decision."""
        beyond = physical - self.start_offset  # each pull comes by three times: no max()
        return self.logic_offset + beyond if beyond > 0 else self.logic_offset

    def logical_or_bound(self, physical: int) -> int:
        """The same for people: -1 while undecided, and never beyond an end that is known."""
        if not self.is_decided:
            return UNDECIDED
        if self.end_offset >= 0:
            physical = min(physical, self.end_offset)
        return self.logical(physical)

    def physical(self, logical: int) -> int:
        """The physical offset of a logical one."""
        return logical - self.logic_offset + self.start_offset

    @property
    def logical_end(self) -> int | None:
        """Behind the last logical offset; None while that is unknown."""
        if not self.is_decided or self.end_offset < 0:
            return None
        return self.logical(self.end_offset)

    def members(self) -> dict[str, Any]:
        """The JSON members, under Java's names."""
        return {
            "bname": self.broker_name,
            "endOffset": self.end_offset,
            "gen": self.gen,
            "logicOffset": self.logic_offset,
            "queueId": self.queue_id,
            "startOffset": self.start_offset,
            "timeOfEnd": self.time_of_end,
            "timeOfStart": self.time_of_start,
        }

    @classmethod
    def of(cls, value: object) -> LogicQueueMappingItem:
        """Read the JSON members; raises RemoteProtocolError."""
        members = as_object(value)
        name = as_text(members.get("bname"))
        if not name:
            raise RemoteProtocolError("a segment of a logical queue names no broker")
        return cls(
            gen=_number(members, "gen", 0, INT32_MAX),
            queue_id=_number(members, "queueId", 0, INT32_MAX),
            broker_name=name,
            logic_offset=_number(members, "logicOffset", 0),
            start_offset=_number(members, "startOffset", 0),
            end_offset=_number(members, "endOffset", UNDECIDED),
            time_of_start=_number(members, "timeOfStart", -1),
            time_of_end=_number(members, "timeOfEnd", -1),
        )


Segments = tuple[LogicQueueMappingItem, ...]


class TopicQueueMappingDetail(Struct, frozen=True):
    """What one broker set knows of a static topic.

    Attributes:
        epoch: grows with every change of the topic; a smaller one is refused.
        dirty: Java's mark for an entry that must not be planned with.
        hosted_queues: segments by logical queue id.
    """

    topic: str
    total_queues: int
    broker_name: str
    epoch: int
    scope: str = GLOBAL_SCOPE
    dirty: bool = False
    hosted_queues: Mapping[int, Segments] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The key of tables."""
        return self.topic

    @property
    def curr_id_map(self) -> dict[int, int]:
        """The physical queue of each logical queue that this broker set leads."""
        return {
            logical: segments[-1].queue_id
            for logical, segments in sorted(self.hosted_queues.items())
            if segments and segments[-1].broker_name == self.broker_name
        }

    @property
    def mock_broker_name(self) -> str:
        """What clients take for the broker of all queues."""
        return mock_broker_name(self.scope)

    def with_queues(self, queues: Mapping[int, Segments]) -> TopicQueueMappingDetail:
        """The same with other segments."""
        return replace(self, hosted_queues=dict(sorted(queues.items())))

    def info_members(self) -> dict[str, Any]:
        """TopicQueueMappingInfo, as name servers are told it."""
        return {
            "bname": self.broker_name,
            "currIdMap": self.curr_id_map,
            "dirty": self.dirty,
            "epoch": self.epoch,
            "scope": self.scope,
            "topic": self.topic,
            "totalQueues": self.total_queues,
        }

    def members(self) -> dict[str, Any]:
        """The JSON members in Java's order; ``currIdMap`` is empty here as well."""
        queues = {
            logical: [one.members() for one in segments]
            for logical, segments in sorted(self.hosted_queues.items())
        }
        members = {**self.info_members(), "currIdMap": {}, "hostedQueues": queues}
        return dict(sorted(members.items()))

    @classmethod
    def of(cls, value: object) -> TopicQueueMappingDetail:
        """Read the JSON members, of an Info as well.

        Raises:
            RemoteProtocolError: a member misses or is of the wrong kind.
        """
        members = as_object(value)
        topic, name = as_text(members.get("topic")), as_text(members.get("bname"))
        if not topic or not name:
            raise RemoteProtocolError("a mapping names no topic, or no broker")
        queues = as_object(members.get("hostedQueues"))
        lists = {queue_id(key): _segments(items) for key, items in queues.items()}
        if len(lists) != len(queues):
            raise RemoteProtocolError("a logical queue is there under two keys")
        return cls(
            topic=topic,
            total_queues=_number(members, "totalQueues", 0, QUEUES_MAX),
            broker_name=name,
            epoch=_number(members, "epoch", 0),
            scope=as_text(members.get("scope")) or GLOBAL_SCOPE,
            dirty=members.get("dirty") is True,
            hosted_queues=dict(sorted(lists.items())),
        )


def mock_broker_name(scope: str) -> str:
    """The name of no broker under which clients see the queues of a scope."""
    shown = scope[2:] if scope == GLOBAL_SCOPE else scope
    return MOCK_BROKER_PREFIX + shown


def old_clients_broker_name(scope: str, topic: str) -> str:
    """The name of no broker set under which clients see a topic's queues that know no static topics.

    One name a topic: such a client keeps one address for each name, and two topics may be served by
    two broker sets.
    """
    return mock_broker_name(scope) + topic


def _segments(value: object) -> Segments:
    items = as_array(value)
    if len(items) > SEGMENTS_MAX:
        raise RemoteProtocolError(f"a logical queue of more than {SEGMENTS_MAX} segments")
    return tuple(map(LogicQueueMappingItem.of, items))


def queue_id(key: object) -> int:
    """A key of a map; fastjson writes it bare or quoted, and readers give either.

    Raises:
        RemoteProtocolError: it is no number of a queue.
    """
    number = parse_number(key, INT32_MAX) if isinstance(key, str) else key
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < QUEUES_MAX:
        raise RemoteProtocolError(f"{key!r} is no logical queue")
    return number


def _number(members: Mapping[str, Any], name: str, default: int, largest: int = INT64_MAX) -> int:
    value = members.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= largest:
        raise RemoteProtocolError(f"{name}={value!r} is not a number from -1 to {largest}")
    return value
