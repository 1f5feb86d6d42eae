"""What a broker tells a name server (103, 104) and learns from it.

Source: RegisterBrokerRequestHeader, RegisterBrokerBody and BrokerOuterAPI of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import NamedTuple

from rmqha.broker.common.json_members import json_object, read_object
from rmqha.broker.topics.mapping_table import MappingTable
from rmqha.broker.topics.topic_table import DataVersion, TopicTable
from rmqha.remoting import fastjson
from rmqha.remoting.headers import ext_fields, text_field
from rmqha.remoting.old_clients import serving_fields
from rmqha.remoting.topic_names import PERM_READ, PERM_WRITE

_CRC_MASK = 0x7FFFFFFF


class Registered(NamedTuple):
    """A broker as a name server is to list it.

    Attributes:
        broker_id: 0 for a master, else the persistent id.
    """

    cluster_name: str
    broker_name: str
    address: str
    ha_address: str
    broker_id: int


class MasterKnown(NamedTuple):
    """What a name server answers a slave; empty texts when it knows no master."""

    address: str
    ha_address: str


def registration_body(
    table: TopicTable, wall_ms: int, broker_permission: int = PERM_READ | PERM_WRITE,
    mappings: MappingTable | None = None,
) -> bytes:  # fmt: skip
    """The body of 103: every topic, and the version by which its news are judged.

    Args:
        mappings: of static topics; name servers are told which logical queues this broker leads.
        broker_permission: no topic is shown with more than the broker itself allows.
    """
    members = table.members()
    if broker_permission & (PERM_READ | PERM_WRITE) != PERM_READ | PERM_WRITE:
        members["topicConfigTable"] = {
            name: {**topic, "perm": topic["perm"] & broker_permission}
            for name, topic in members["topicConfigTable"].items()
        }
    wrapper = {
        **members,
        # Java makes it anew at every registration as well: nobody compares it.
        "mappingDataVersion": DataVersion(0, wall_ms, 0).members(),
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {}
        if mappings is None
        else {name: one.info_members() for name, one in sorted(mappings.items.items())},
    }
    return fastjson.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})


def registration_fields(broker: Registered, body: bytes) -> dict[str, str]:
    """The fields of 103. ``enableActingMaster`` marks a 5.x broker, whatever its value."""
    fields = ext_fields(
        brokerAddr=broker.address,
        brokerId=broker.broker_id,
        brokerName=broker.broker_name,
        bodyCrc32=zlib.crc32(body) & _CRC_MASK,
        clusterName=broker.cluster_name,
        compressed=False,
        enableActingMaster=False,
        haServerAddr=broker.ha_address,
    )
    return fields | serving_fields()


def unregistration_fields(broker: Registered) -> dict[str, str]:
    """The fields of 104."""
    return ext_fields(
        brokerAddr=broker.address,
        brokerId=broker.broker_id,
        brokerName=broker.broker_name,
        clusterName=broker.cluster_name,
    )


def master_known(fields: Mapping[str, str] | None) -> MasterKnown:
    """Read the answer to 103."""
    return MasterKnown(
        text_field(fields, "masterAddr", "").strip(),
        text_field(fields, "haServerAddr", "").strip(),
    )


def ordered_topics(body: bytes) -> frozenset[str]:
    """The topics with an order configuration, as the body of the answer to 103 has them (KVTable).

    Raises:
        RemoteProtocolError: the body is something else.
    """
    members = read_object(body, "the answer to a registration")
    return frozenset(json_object(members.get("table") or {}, "table"))
