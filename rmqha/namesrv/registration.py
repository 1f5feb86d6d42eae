"""Reads a registration (103): plain or compressed, from brokers of 3.x to 5.x.

What is read here has been checked; anything else is a RemoteProtocolError that names the member,
and the registration is refused as a whole.

Source: RegisterBrokerRequestHeader, RegisterBrokerBody, TopicConfig and TopicQueueMappingInfo,
RocketMQ remoting.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from rmqha.base.errors import RemoteProtocolError
from rmqha.namesrv.messages import MappingInfo, QueueData, Registration
from rmqha.namesrv.settings import RouteSettings
from rmqha.namesrv.usual_body import (
    PERM_DEFAULT,
    QUEUE_NUMS_MAX,
    QUEUES_DEFAULT,
    members_of,
    usual_body,
)
from rmqha.remoting import fastjson
from rmqha.remoting.data_version import DataVersion
from rmqha.remoting.headers import (
    INT32_MAX,
    INT64_MAX,
    bool_field,
    int_field,
    long_field,
    parse_number,
    text_field,
)
from rmqha.remoting.old_clients import knows_static_topics, serves_old_clients

HEARTBEAT_TIMEOUT_MS = 120_000
VERSION_3_0_11 = 37
CRC_MASK = 0x7FFFFFFF
FILTER_SERVERS_MAX = 1_000
_TEXT_RECORD_FIELDS = 5


class Body(NamedTuple):
    """What a registration's body says."""

    data_version: DataVersion
    topics: dict[str, QueueData]
    filter_servers: tuple[str, ...] | None
    mapping_infos: dict[str, MappingInfo]


def crc_matches(fields: Mapping[str, str], body: bytes) -> bool:
    """Whether the body arrived as it was sent; 0 or nothing asks for no check."""
    expected = int_field(fields, "bodyCrc32", 0)
    return expected == 0 or expected == zlib.crc32(body) & CRC_MASK


def read_registration(
    version: int, fields: Mapping[str, str], body: bytes, settings: RouteSettings
) -> Registration:
    """Read header fields and body.

    Raises:
        RemoteProtocolError: a field is missing, or the body is none of a registration.
    """
    broker_name = _name(fields, "brokerName", settings)
    broker_id = long_field(fields, "brokerId", None)
    if broker_id is None or broker_id < 0:
        raise RemoteProtocolError("the field brokerId is no id")
    timeout_ms = long_field(fields, "heartbeatTimeoutMillis", HEARTBEAT_TIMEOUT_MS)
    acting = bool_field(fields, "enableActingMaster") if "enableActingMaster" in fields else None
    read = _read_body(version, fields, body, broker_name, settings)
    return Registration(
        cluster_name=_name(fields, "clusterName", settings),
        broker_name=broker_name,
        address=_name(fields, "brokerAddr", settings),
        ha_address=_short(text_field(fields, "haServerAddr", ""), "haServerAddr", settings),
        broker_id=broker_id,
        heartbeat_timeout_ms=timeout_ms,
        enable_acting_master=acting,
        zone_name=_zone(fields, settings),
        data_version=read.data_version,
        topics=read.topics,
        filter_servers=read.filter_servers,
        mapping_infos=read.mapping_infos,
        serves_old_clients=serves_old_clients(fields),
    )


def required(fields: Mapping[str, str], name: str) -> str:
    """A field's text.

    Raises:
        RemoteProtocolError: it is missing, in Java's words.
    """
    value = fields.get(name)
    if value is None:
        raise RemoteProtocolError(f"the custom field <{name}> is null")
    return value


def _name(fields: Mapping[str, str], name: str, settings: RouteSettings) -> str:
    value = _short(required(fields, name), name, settings)
    if not value.strip():
        raise RemoteProtocolError(f"the field {name} is blank")
    return value


def _zone(fields: Mapping[str, str], settings: RouteSettings) -> str | None:
    zone = fields.get("__ZONE_NAME")
    return None if zone is None else _short(zone, "__ZONE_NAME", settings)


def _short(value: str, what: str, settings: RouteSettings) -> str:
    if len(value) > settings.name_length_max:
        raise RemoteProtocolError(f"{what} is longer than {settings.name_length_max}")
    return value


def _read_body(
    version: int,
    fields: Mapping[str, str],
    body: bytes,
    broker_name: str,
    settings: RouteSettings,
) -> Body:
    if not body:
        return Body(DataVersion(), {}, (), {})
    if bool_field(fields, "compressed"):
        return _read_compressed(version, body, broker_name, settings)
    if version >= VERSION_3_0_11 and (read := _read_usual(body, broker_name, settings)) is not None:
        return read
    members = fastjson.loads(body)
    if version < VERSION_3_0_11:
        return _read_wrapper(members, broker_name, settings, None)
    found = _object(members, "the body")
    servers = _filter_servers(found.get("filterServerList"), settings)
    return _read_wrapper(found.get("topicConfigSerializeWrapper"), broker_name, settings, servers)


def _read_usual(body: bytes, broker_name: str, settings: RouteSettings) -> Body | None:
    """Read the body of a 103 as brokers write it; None for one that has to be looked at closely."""
    usual = usual_body(body)
    if usual is None:
        return None
    wrapper = usual.topic_config_serialize_wrapper
    servers = _filter_servers(members_of(usual.filter_server_list), settings)
    rest = {
        "dataVersion": members_of(wrapper.data_version),
        "topicQueueMappingInfoMap": members_of(wrapper.topic_queue_mapping_info_map),
    }
    found = _read_wrapper(rest, broker_name, settings, servers)
    # Most topics have the same queues: one value for all of them also takes less memory.
    seen: dict[tuple[int, int, int, int], QueueData] = {}
    for one in wrapper.topic_config_table.values():
        numbers = (one.perm, one.read_queue_nums, one.topic_sys_flag, one.write_queue_nums)
        queues = seen.get(numbers)
        if queues is None:
            queues = seen[numbers] = QueueData(broker_name, *numbers)
        found.topics[_short(one.topic_name, "a topic's name", settings)] = queues
    return found


def _read_wrapper(
    value: object,
    broker_name: str,
    settings: RouteSettings,
    filter_servers: tuple[str, ...] | None,
) -> Body:
    members = _object(value, "topicConfigSerializeWrapper")
    table = _object(members.get("topicConfigTable"), "topicConfigTable")
    infos = _object(members.get("topicQueueMappingInfoMap"), "topicQueueMappingInfoMap")
    topics = [_topic(name, topic, broker_name, settings) for name, topic in table.items()]
    mapping_infos = {
        _short(name, "a topic's name", settings): _mapping_info(name, info, settings)
        for name, info in infos.items()
    }
    version = DataVersion.of(_object(members.get("dataVersion"), "dataVersion"))
    return Body(version, dict(topics), filter_servers, mapping_infos)


def _topic(
    key: str, value: object, broker_name: str, settings: RouteSettings
) -> tuple[str, QueueData]:
    """One TopicConfig; what misses has Java's default."""
    topic = _object(value, "a topic")
    name = _short(_text(topic.get("topicName"), key), "a topic's name", settings)
    if not name:
        raise RemoteProtocolError("a topic without a name")
    return name, QueueData(
        broker_name,
        _number(topic, "perm", PERM_DEFAULT, INT32_MAX),
        _number(topic, "readQueueNums", QUEUES_DEFAULT, QUEUE_NUMS_MAX),
        _number(topic, "topicSysFlag", 0, INT32_MAX),
        _number(topic, "writeQueueNums", QUEUES_DEFAULT, QUEUE_NUMS_MAX),
    )


def queue_data_of(value: object, settings: RouteSettings) -> QueueData:
    """Read one QueueData of a 217.

    Raises:
        RemoteProtocolError: no name, or a member of the wrong kind.
    """
    members = _object(value, "a queue data")
    name = _short(_text(members.get("brokerName"), ""), "brokerName", settings)
    if not name:
        raise RemoteProtocolError("a queue data without a brokerName")
    return QueueData(
        name,
        _number(members, "perm", 0, INT32_MAX),
        _number(members, "readQueueNums", 0, QUEUE_NUMS_MAX),
        _number(members, "topicSysFlag", 0, INT32_MAX),
        _number(members, "writeQueueNums", 0, QUEUE_NUMS_MAX),
    )


def _mapping_info(topic: str, value: object, settings: RouteSettings) -> MappingInfo:
    members = _object(value, "a mapping info")
    name = _short(_text(members.get("bname"), ""), "bname", settings)
    if not name:
        raise RemoteProtocolError(f"the mapping info of {topic} names no broker")
    ids = _object(members.get("currIdMap"), "currIdMap")
    if len(ids) > QUEUE_NUMS_MAX:
        raise RemoteProtocolError(f"currIdMap of {topic} has more than {QUEUE_NUMS_MAX} queues")
    return MappingInfo(
        _short(_text(members.get("topic"), topic), "a topic's name", settings),
        name,
        _short(_text(members.get("scope"), "__global__"), "scope", settings),
        _number(members, "totalQueues", 0, QUEUE_NUMS_MAX),
        _number(members, "epoch", 0, INT64_MAX),
        members.get("dirty") is True,
        tuple(sorted((_queue_id(key), _queue_id(number)) for key, number in ids.items())),
    )


def _queue_id(value: object) -> int:
    number = parse_number(value, INT32_MAX) if isinstance(value, str) else value
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= INT32_MAX:
        raise RemoteProtocolError(f"queue id {value!r} is not a number")
    return number


def _filter_servers(value: object, settings: RouteSettings) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > FILTER_SERVERS_MAX:
        raise RemoteProtocolError(f"filterServerList is no list of at most {FILTER_SERVERS_MAX}")
    return tuple(_short(_text(one, ""), "a filter server", settings) for one in value)


# -- the compressed form -----------------------------------------------------------------------


class _Reader:
    """Lengths and blocks of an inflated body."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        """A count or a length, which can be no more than there are bytes."""
        number = int.from_bytes(self._take(4), signed=True)
        if not 0 <= number <= len(self._data):
            raise RemoteProtocolError(f"the compressed body has a length of {number}")
        return number

    def block(self) -> bytes:
        """A length and as many bytes."""
        return self._take(self.number())

    def _take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) != size:
            raise RemoteProtocolError("the compressed body ends too early")
        self._at += size
        return found


def _read_compressed(version: int, body: bytes, broker_name: str, settings: RouteSettings) -> Body:
    reader = _Reader(_inflate(body, settings.registration_bytes_max))
    data_version = DataVersion.of(_object(fastjson.loads(reader.block()), "dataVersion"))
    topics: dict[str, QueueData] = {}
    for _ in range(reader.number()):
        name, queues = _text_record(reader.block(), broker_name, settings)
        topics[name] = queues
    servers = _filter_servers(fastjson.loads(reader.block()), settings)
    infos: dict[str, MappingInfo] = {}
    # Older brokers end here.
    for _ in range(reader.number() if knows_static_topics(version) else 0):
        members = _object(fastjson.loads(reader.block()), "a mapping info")
        topic = _text(members.get("topic"), "")
        infos[topic] = _mapping_info(topic, members, settings)
    return Body(data_version, topics, servers, infos)


def _inflate(body: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, limit)
    except zlib.error as error:
        raise RemoteProtocolError(f"the body cannot be inflated: {error}") from error
    if inflater.unconsumed_tail or (len(data) >= limit and not inflater.eof):
        raise RemoteProtocolError(f"the body is larger than {limit} bytes once inflated")
    return data


def _text_record(block: bytes, broker_name: str, settings: RouteSettings) -> tuple[str, QueueData]:
    """``name readNums writeNums perm filterType [attributes]``; the flags are lost in this form."""
    try:
        parts = block.decode().split(" ")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("a topic record is no UTF-8") from error
    if len(parts) < _TEXT_RECORD_FIELDS or not parts[0]:
        raise RemoteProtocolError(f"a topic record has {len(parts)} fields")
    numbers = [parse_number(text, QUEUE_NUMS_MAX) for text in parts[1:4]]
    read, write, perm = numbers
    if read is None or write is None or perm is None or min(read, write, perm) < 0:
        raise RemoteProtocolError(f"topic {parts[0]!r} has numbers that are none")
    name = _short(parts[0], "a topic's name", settings)
    return name, QueueData(broker_name, perm, read, 0, write)


# -- members -----------------------------------------------------------------------------------


def _object(value: object, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"{what} is no object")
    return value


def _text(value: object, default: str) -> str:
    if value is None:
        return default
    if not isinstance(value, str):
        raise RemoteProtocolError(f"{type(value).__name__} where text belongs")
    return value


def _number(members: Mapping[str, Any], name: str, default: int, largest: int) -> int:
    value = members.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
        raise RemoteProtocolError(f"{name}={value!r} is not a number from 0 to {largest}")
    return value
