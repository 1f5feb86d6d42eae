"""Where topics and their queues are, as name servers tell it.

Each type reads what any Java peer writes; unknown members are ignored, a member of the wrong type
makes the body malformed.

Source: TopicRouteData and MessageQueue, RocketMQ remoting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from rmqha.remoting import fastjson
from rmqha.remoting.bodies import BrokerMemberGroup
from rmqha.remoting.values import as_array, as_number, as_object, as_text


class QueueKey(NamedTuple):
    """A message queue, in the order in which tables are sorted."""

    topic: str
    broker_name: str
    queue_id: int

    def members(self) -> dict[str, Any]:
        """The JSON members, as rows of ``--json`` begin."""
        return {"topic": self.topic, "brokerName": self.broker_name, "queueId": self.queue_id}

    def __str__(self) -> str:
        return (
            f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, "
            f"queueId={self.queue_id}]"
        )


class QueueData(Struct, frozen=True):
    """How many queues a topic has in a broker set."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int


class TopicRoute(Struct, frozen=True):
    """Where a topic is.

    Attributes:
        raw: the members that the Java tool prints, without those that are null.
    """

    groups: tuple[BrokerMemberGroup, ...]
    queues: tuple[QueueData, ...]
    raw: Mapping[str, Any]

    @classmethod
    def decode(cls, body: bytes) -> TopicRoute:
        """Read a body.

        Raises:
            RemoteProtocolError: not such a body.
        """
        members = as_object(fastjson.loads(body))
        groups = as_array(members.get("brokerDatas"))
        queues = as_array(members.get("queueDatas"))
        raw: dict[str, Any] = {
            "brokerDatas": [_group_members(group) for group in groups],
            "filterServerTable": as_object(members.get("filterServerTable")),
        }
        if (order := members.get("orderTopicConf")) is not None:
            raw["orderTopicConf"] = as_text(order)
        raw["queueDatas"] = [_queue_members(queue) for queue in queues]
        if (mapping := members.get("topicQueueMappingByBroker")) is not None:
            raw["topicQueueMappingByBroker"] = as_object(mapping)
        return cls(tuple(map(BrokerMemberGroup.of, groups)), tuple(map(_queue_data, queues)), raw)

    @property
    def is_mapped(self) -> bool:
        """Whether this is a static topic."""
        return bool(self.raw.get("topicQueueMappingByBroker"))

    def brokers(self, cluster_name: str | None = None) -> list[tuple[str, str]]:
        """Broker name and the address to ask, of each set of the topic, or of one cluster's."""
        return [
            (group.broker_name, address)
            for group in self.groups
            if not cluster_name or group.cluster == cluster_name
            if (address := chosen_address(group)) is not None
        ]

    def address_of(self, broker_name: str) -> str | None:
        """The address to ask of one set."""
        return dict(self.brokers()).get(broker_name)


def chosen_address(group: BrokerMemberGroup) -> str | None:
    """The master's address, else that of the lowest id."""
    ids = sorted(group.broker_addrs)
    return group.broker_addrs[ids[0]] if ids else None


def _group_members(value: object) -> dict[str, Any]:
    members, group = as_object(value), BrokerMemberGroup.of(value)
    found = {
        "brokerAddrs": dict(sorted(group.broker_addrs.items())),
        "brokerName": group.broker_name,
        "cluster": group.cluster,
        "enableActingMaster": members.get("enableActingMaster") is True,
    }
    if (zone := members.get("zoneName")) is not None:
        found["zoneName"] = as_text(zone)
    return found


def _queue_data(value: object) -> QueueData:
    members = as_object(value)
    return QueueData(
        as_text(members.get("brokerName")),
        as_number(members.get("readQueueNums")),
        as_number(members.get("writeQueueNums")),
        as_number(members.get("perm")),
        as_number(members.get("topicSysFlag")),
    )


def _queue_members(value: object) -> dict[str, Any]:
    queue = _queue_data(value)
    return {
        "brokerName": queue.broker_name,
        "perm": queue.perm,
        "readQueueNums": queue.read_queue_nums,
        "topicSysFlag": queue.topic_sys_flag,
        "writeQueueNums": queue.write_queue_nums,
    }


def queue_key(value: object) -> QueueKey:
    """Read a message queue's members; raises RemoteProtocolError."""
    members = as_object(value)
    return QueueKey(
        as_text(members.get("topic")),
        as_text(members.get("brokerName")),
        as_number(members.get("queueId")),
    )


def decode_names(body: bytes, member: str) -> list[str]:
    """Read a body that is one list of names, such as ``{"topicList":[..]}``.

    Raises:
        RemoteProtocolError: not such a body.
    """
    return list(map(as_text, as_array(as_object(fastjson.loads(body)).get(member))))
