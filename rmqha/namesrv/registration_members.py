"""The members of a registration's body, one at a time: what misses has Java's default.

Source: TopicConfig, QueueData and TopicQueueMappingInfo, RocketMQ remoting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rmqha.base.errors import RemoteProtocolError
from rmqha.namesrv.messages import MappingInfo, QueueData
from rmqha.namesrv.settings import RouteSettings
from rmqha.namesrv.usual_body import PERM_DEFAULT, QUEUE_NUMS_MAX, QUEUES_DEFAULT, SCOPE_DEFAULT
from rmqha.remoting.data_version import DataVersion
from rmqha.remoting.headers import INT32_MAX, INT64_MAX, parse_number

FILTER_SERVERS_MAX = 1_000

TOPICS_MAX = 100_000
"""Of one registration, and of a broker set: they are listed, and leave, in one step of some 40 ms.
Clusters of Java's have up to some tens of thousands a broker."""

INFOS_MAX = 50_000
"""Static topics of one registration, and of a broker set, for the same reason."""

MEMBERS_MAX = 1_000_000
"""Of a plain body, or of all mapping infos of a compressed one together: the members and elements of
all their objects and lists. 16 MiB that a broker wrote have less."""

SMALL_BYTES_MAX = 64 * 1024
"""Of a DataVersion, which has three numbers, and of the filter servers: they are read in one step."""

PART = 5_000
"""So many topics, or mapping infos and their queues, are read in one turn of the loop, some milliseconds."""


class Body(NamedTuple):
    """What a registration's body says."""

    data_version: DataVersion
    topics: dict[str, QueueData]
    filter_servers: tuple[str, ...] | None
    mapping_infos: dict[str, MappingInfo]


def topic_of(
    key: str, value: object, broker_name: str, settings: RouteSettings
) -> tuple[str, QueueData]:
    """Read one TopicConfig.

    Raises:
        RemoteProtocolError: no name, or a member of the wrong kind.
    """
    topic = object_of(value, "a topic")
    name = short(text_of(topic.get("topicName"), key), "a topic's name", settings)
    if not name:
        raise RemoteProtocolError("a topic without a name")
    return name, QueueData(
        broker_name,
        number_of(topic, "perm", PERM_DEFAULT, INT32_MAX),
        number_of(topic, "readQueueNums", QUEUES_DEFAULT, QUEUE_NUMS_MAX),
        number_of(topic, "topicSysFlag", 0, INT32_MAX),
        number_of(topic, "writeQueueNums", QUEUES_DEFAULT, QUEUE_NUMS_MAX),
    )


def queue_data_of(value: object, settings: RouteSettings) -> QueueData:
    """Read one QueueData of a 217.

    Raises:
        RemoteProtocolError: no name, or a member of the wrong kind.
    """
    members = object_of(value, "a queue data")
    name = short(text_of(members.get("brokerName"), ""), "brokerName", settings)
    if not name:
        raise RemoteProtocolError("a queue data without a brokerName")
    return QueueData(
        name,
        number_of(members, "perm", 0, INT32_MAX),
        number_of(members, "readQueueNums", 0, QUEUE_NUMS_MAX),
        number_of(members, "topicSysFlag", 0, INT32_MAX),
        number_of(members, "writeQueueNums", 0, QUEUE_NUMS_MAX),
    )


def mapping_info_of(topic: str, value: object, settings: RouteSettings) -> MappingInfo:
    """Read one TopicQueueMappingInfo.

    Raises:
        RemoteProtocolError: it names no broker, or a member of the wrong kind.
    """
    members = object_of(value, "a mapping info")
    name = short(text_of(members.get("bname"), ""), "bname", settings)
    if not name:
        raise RemoteProtocolError(f"the mapping info of {topic} names no broker")
    ids = object_of(members.get("currIdMap"), "currIdMap")
    check_queues(topic, len(ids))
    return MappingInfo(
        short(text_of(members.get("topic"), topic), "a topic's name", settings),
        name,
        short(text_of(members.get("scope"), SCOPE_DEFAULT), "scope", settings),
        number_of(members, "totalQueues", 0, QUEUE_NUMS_MAX),
        number_of(members, "epoch", 0, INT64_MAX),
        members.get("dirty") is True,
        tuple(sorted((_queue_id(key), _queue_id(number)) for key, number in ids.items())),
    )


def check_queues(topic: str, count: int) -> None:
    """Refuse a mapping info with more queues than a topic may have.

    Raises:
        RemoteProtocolError: it has more.
    """
    if count > QUEUE_NUMS_MAX:
        raise RemoteProtocolError(f"currIdMap of {topic} has more than {QUEUE_NUMS_MAX} queues")


def _queue_id(value: object) -> int:
    number = parse_number(value, INT32_MAX) if isinstance(value, str) else value
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= INT32_MAX:
        raise RemoteProtocolError(f"queue id {value!r} is not a number")
    return number


def small(part: bytes, what: str) -> bytes:
    """A part that is read in one step, if it is small enough for that.

    Raises:
        RemoteProtocolError: it is larger than ``SMALL_BYTES_MAX``.
    """
    if len(part) > SMALL_BYTES_MAX:
        raise RemoteProtocolError(f"{what} is larger than {SMALL_BYTES_MAX} bytes")
    return part


def check_count(count: int, what: str, limit: int) -> None:
    """Refuse a registration that names more than may be, before it is read.

    Raises:
        RemoteProtocolError: it does.
    """
    if count > limit:
        raise RemoteProtocolError(f"the registration has more than {limit} {what}")


def members_in(text: bytes) -> int:
    """How many members or elements JSON has, whichever are more; text may make it seem more."""
    return max(text.count(b":"), text.count(b","))


def topics_max(settings: RouteSettings) -> int:
    """How many topics a registration may have."""
    return min(TOPICS_MAX, settings.routes_max)


def infos_max(settings: RouteSettings) -> int:
    """How many mapping infos a registration may have."""
    return min(INFOS_MAX, settings.routes_max)


def filter_servers_of(value: object, settings: RouteSettings) -> tuple[str, ...] | None:
    """Read the filter servers; None leaves what is known.

    Raises:
        RemoteProtocolError: no list of short texts, or too long a one.
    """
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > FILTER_SERVERS_MAX:
        raise RemoteProtocolError(f"filterServerList is no list of at most {FILTER_SERVERS_MAX}")
    return tuple(short(text_of(one, ""), "a filter server", settings) for one in value)


def short(value: str, what: str, settings: RouteSettings) -> str:
    """A name or an address that is not too long.

    Raises:
        RemoteProtocolError: it is longer than ``nameLengthMax``.
    """
    if len(value) > settings.name_length_max:
        raise RemoteProtocolError(f"{what} is longer than {settings.name_length_max}")
    return value


def object_of(value: object, what: str) -> dict[str, Any]:
    """An object's members; none for null.

    Raises:
        RemoteProtocolError: something else than an object.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"{what} is no object")
    return value


def text_of(value: object, default: str) -> str:
    """Read a text; null is the default.

    Raises:
        RemoteProtocolError: something else than text.
    """
    if value is None:
        return default
    if not isinstance(value, str):
        raise RemoteProtocolError(f"{type(value).__name__} where text belongs")
    return value


def number_of(members: Mapping[str, Any], name: str, default: int, largest: int) -> int:
    """Read a number of an object; null is the default.

    Raises:
        RemoteProtocolError: no whole number from 0 to the largest.
    """
    value = members.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
        raise RemoteProtocolError(f"{name}={value!r} is not a number from 0 to {largest}")
    return value
