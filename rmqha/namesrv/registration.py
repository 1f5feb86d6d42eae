"""Reads a registration (103): plain or compressed, from brokers of 3.x to 5.x.

What is read here has been checked; anything else is a RemoteProtocolError that names the member,
and the registration is refused as a whole.

Source: RegisterBrokerRequestHeader, RegisterBrokerBody, TopicConfig and TopicQueueMappingInfo,
RocketMQ remoting.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Mapping

from rmqha.base.errors import RemoteProtocolError
from rmqha.namesrv.compressed_body import read_compressed
from rmqha.namesrv.messages import MappingInfo, QueueData, Registration
from rmqha.namesrv.registration_members import (
    MEMBERS_MAX,
    PART,
    Body,
    check_count,
    check_queues,
    filter_servers_of,
    infos_max,
    mapping_info_of,
    members_in,
    object_of,
    short,
    small,
    topic_of,
    topics_max,
)
from rmqha.namesrv.settings import RouteSettings
from rmqha.namesrv.usual_body import SCOPE_DEFAULT, UsualBody, usual_body
from rmqha.remoting import fastjson
from rmqha.remoting.data_version import DataVersion
from rmqha.remoting.headers import bool_field, int_field, long_field, text_field
from rmqha.remoting.old_clients import serves_old_clients

HEARTBEAT_TIMEOUT_MS = 120_000
VERSION_3_0_11 = 37
CRC_MASK = 0x7FFFFFFF

PLAIN_BYTES_PART = 512 * 1024
"""A larger plain body is not even looked at before there is room for it and others had a turn; it is
parsed in one step all the same, which takes 3 ms a megabyte."""

ODD_MEMBERS_MAX = 250_000
"""Of a body that is not as usual: all of it is taken apart in one step, of up to some 100 ms. No
broker since 3.0.11 is known to send one."""

_TOPIC_NAME = b'"topicName"'


def crc_matches(fields: Mapping[str, str], body: bytes) -> bool:
    """Whether the body arrived as it was sent; 0 or nothing asks for no check."""
    expected = int_field(fields, "bodyCrc32", 0)
    return expected == 0 or expected == zlib.crc32(body) & CRC_MASK


def reading(
    version: int, fields: Mapping[str, str], body: bytes, settings: RouteSettings
) -> Generator[None, None, Registration]:
    """Read header fields and body, part by part: others have their turn between two of them.

    Raises:
        RemoteProtocolError: a field is missing, or the body is none of a registration.
    """
    broker_name = _name(fields, "brokerName", settings)
    broker_id = long_field(fields, "brokerId", None)
    if broker_id is None or broker_id < 0:
        raise RemoteProtocolError("the field brokerId is no id")
    timeout_ms = long_field(fields, "heartbeatTimeoutMillis", HEARTBEAT_TIMEOUT_MS)
    acting = bool_field(fields, "enableActingMaster") if "enableActingMaster" in fields else None
    read = yield from _read_body(version, fields, body, broker_name, settings)
    return Registration(
        cluster_name=_name(fields, "clusterName", settings),
        broker_name=broker_name,
        address=_name(fields, "brokerAddr", settings),
        ha_address=short(text_field(fields, "haServerAddr", ""), "haServerAddr", settings),
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
    value = short(required(fields, name), name, settings)
    if not value.strip():
        raise RemoteProtocolError(f"the field {name} is blank")
    return value


def _zone(fields: Mapping[str, str], settings: RouteSettings) -> str | None:
    zone = fields.get("__ZONE_NAME")
    return None if zone is None else short(zone, "__ZONE_NAME", settings)


def _read_body(
    version: int,
    fields: Mapping[str, str],
    body: bytes,
    broker_name: str,
    settings: RouteSettings,
) -> Generator[None, None, Body]:
    if not body:
        return Body(DataVersion(), {}, (), {})
    if bool_field(fields, "compressed"):
        return (yield from read_compressed(version, body, broker_name, settings))
    if len(body) > PLAIN_BYTES_PART:
        yield
    check_count(members_in(body), "members", MEMBERS_MAX)
    check_count(body.count(_TOPIC_NAME), "topics", topics_max(settings))
    is_wrapper = version < VERSION_3_0_11
    usual = None if is_wrapper else usual_body(body)
    if usual is None:
        # fastjson writes the queues of static topics with bare keys, megabytes of them.
        body = yield from fastjson.quoting(body)
        usual = None if is_wrapper else usual_body(body)
    if usual is not None:
        return (yield from _read_usual(usual, broker_name, settings))
    check_count(members_in(body), "members that have to be looked at one by one", ODD_MEMBERS_MAX)
    members = fastjson.loads_strict(body)
    if is_wrapper:
        return (yield from _read_wrapper(members, broker_name, settings, None))
    found = object_of(members, "the body")
    servers = filter_servers_of(found.get("filterServerList"), settings)
    wrapper = found.get("topicConfigSerializeWrapper")
    return (yield from _read_wrapper(wrapper, broker_name, settings, servers))


def _read_usual(
    usual: UsualBody, broker_name: str, settings: RouteSettings
) -> Generator[None, None, Body]:
    """Take the body of a 103 as brokers write it; any other has to be looked at closely."""
    wrapper = usual.topic_config_serialize_wrapper
    listed = small(bytes(usual.filter_server_list), "filterServerList")
    servers = filter_servers_of(fastjson.loads_strict(listed), settings)
    numbers_text = small(bytes(wrapper.data_version), "dataVersion")
    version = DataVersion.of(object_of(fastjson.loads_strict(numbers_text), "dataVersion"))
    topics: dict[str, QueueData] = {}
    # Most topics have the same queues: one value for all of them also takes less memory.
    seen: dict[tuple[int, int, int, int], QueueData] = {}
    for at, one in enumerate(wrapper.topic_config_table.values(), 1):
        numbers = (one.perm, one.read_queue_nums, one.topic_sys_flag, one.write_queue_nums)
        queues = seen.get(numbers)
        if queues is None:
            queues = seen[numbers] = QueueData(broker_name, *numbers)
        topics[short(one.topic_name, "a topic's name", settings)] = queues
        if at % PART == 0:
            yield
    infos = yield from _usual_infos(usual, settings)
    return Body(version, topics, servers, infos)


def _usual_infos(
    usual: UsualBody, settings: RouteSettings
) -> Generator[None, None, dict[str, MappingInfo]]:
    infos: dict[str, MappingInfo] = {}
    listed = usual.topic_config_serialize_wrapper.topic_queue_mapping_info_map or {}
    check_count(len(listed), "mapping infos", infos_max(settings))
    read = 0
    for key, one in listed.items():
        ids = one.curr_id_map or {}
        check_queues(key, len(ids))
        infos[short(key, "a topic's name", settings)] = MappingInfo(
            short(key if one.topic is None else one.topic, "a topic's name", settings),
            short(one.bname, "bname", settings),
            short(SCOPE_DEFAULT if one.scope is None else one.scope, "scope", settings),
            one.total_queues,
            one.epoch,
            one.dirty,
            tuple(sorted(ids.items())),
        )
        read += 1 + len(ids)
        if read >= PART:
            read = 0
            yield
    return infos


def _read_wrapper(
    wrapper: object,
    broker_name: str,
    settings: RouteSettings,
    filter_servers: tuple[str, ...] | None,
) -> Generator[None, None, Body]:
    members = object_of(wrapper, "topicConfigSerializeWrapper")
    table = object_of(members.get("topicConfigTable"), "topicConfigTable")
    listed = object_of(members.get("topicQueueMappingInfoMap"), "topicQueueMappingInfoMap")
    check_count(len(table), "topics", topics_max(settings))
    check_count(len(listed), "mapping infos", infos_max(settings))
    topics: dict[str, QueueData] = {}
    for at, (key, topic) in enumerate(table.items(), 1):
        name, queues = topic_of(key, topic, broker_name, settings)
        topics[name] = queues
        if at % (PART // 4) == 0:
            yield
    infos: dict[str, MappingInfo] = {}
    read = 0
    for key, value in listed.items():
        info = mapping_info_of(key, value, settings)
        infos[short(key, "a topic's name", settings)] = info
        read += 1 + len(info.curr_id_map)
        if read >= PART // 4:
            read = 0
            yield
    version = DataVersion.of(object_of(members.get("dataVersion"), "dataVersion"))
    return Body(version, topics, filter_servers, infos)
