"""What name servers and brokers answer to mqadmin: routes, statistics, connections, HA figures.

Each type reads what any Java peer writes; unknown members are ignored, a member of the wrong type
makes the body malformed.

Source: TopicRouteData, TopicStatsTable, ConsumeStats, ConsumerConnection and HARuntimeInfo, RocketMQ
remoting; fastjson's maps with object keys (reference broker-namesrv 8).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from rmqha.remoting import fastjson
from rmqha.remoting.bodies import BrokerMemberGroup
from rmqha.remoting.values import as_array, as_float, as_number, as_object, as_text

MASTER_ID = 0


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


class TopicOffset(NamedTuple):
    """A queue's ends; the timestamp is 0 while nothing is stored."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int


def decode_topic_stats(body: bytes) -> tuple[dict[QueueKey, TopicOffset], float]:
    """Read 202's body: the queues of one broker, and its puts per second.

    Raises:
        RemoteProtocolError: not such a body.
    """
    members = as_object(fastjson.loads(body))
    table: dict[QueueKey, TopicOffset] = {}
    for key, value in _queue_table(members).items():
        offset = as_object(value)
        table[key] = TopicOffset(
            as_number(offset.get("minOffset")),
            as_number(offset.get("maxOffset")),
            as_number(offset.get("lastUpdateTimestamp")),
        )
    return table, as_float(members.get("topicPutTps"))


class ConsumeOffset(NamedTuple):
    """How far a group is in a queue."""

    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_timestamp: int

    @property
    def diff(self) -> int:
        """Messages that the group has yet to consume."""
        return self.broker_offset - self.consumer_offset

    @property
    def inflight(self) -> int:
        """Messages that were pulled and are not yet consumed."""
        return self.pull_offset - self.consumer_offset


class ConsumeStats(Struct, frozen=True):
    """How far a group is in all its queues."""

    offset_table: Mapping[QueueKey, ConsumeOffset]
    consume_tps: float

    @classmethod
    def decode(cls, body: bytes) -> ConsumeStats:
        """Read 208's body.

        Raises:
            RemoteProtocolError: not such a body.
        """
        return cls.of(fastjson.loads(body))

    @classmethod
    def of(cls, value: object) -> ConsumeStats:
        """Read the JSON members.

        Raises:
            RemoteProtocolError: not such an object.
        """
        members = as_object(value)
        table = {key: _consume_offset(offset) for key, offset in _queue_table(members).items()}
        return cls(table, as_float(members.get("consumeTps")))


def _consume_offset(value: object) -> ConsumeOffset:
    members = as_object(value)
    return ConsumeOffset(
        as_number(members.get("brokerOffset")),
        as_number(members.get("consumerOffset")),
        as_number(members.get("pullOffset")),
        as_number(members.get("lastTimestamp")),
    )


def decode_reset(body: bytes) -> dict[QueueKey, int]:
    """Read 222's body: the new offset of each queue; an absent body is empty.

    Raises:
        RemoteProtocolError: not such a body.
    """
    members = as_object(fastjson.loads(body)) if body else {}
    return {key: as_number(value) for key, value in _queue_table(members).items()}


def _queue_table(members: Mapping[str, Any]) -> dict[QueueKey, object]:
    return {
        queue_key(fastjson.loads(key.encode())): value
        for key, value in as_object(members.get("offsetTable")).items()
    }


def queue_key(value: object) -> QueueKey:
    """Read a message queue's members; raises RemoteProtocolError."""
    members = as_object(value)
    return QueueKey(
        as_text(members.get("topic")),
        as_text(members.get("brokerName")),
        as_number(members.get("queueId")),
    )


class ConsumerConnection(Struct, frozen=True):
    """The living members of a group.

    Attributes:
        clients: id and release ordinal of each.
        subscriptions: by topic, the tags that it is subscribed to; empty is all.
    """

    clients: tuple[tuple[str, int], ...]
    consume_type: str
    message_model: str
    subscriptions: Mapping[str, tuple[str, ...]]

    @classmethod
    def decode(cls, body: bytes) -> ConsumerConnection:
        """Read 203's body.

        Raises:
            RemoteProtocolError: not such a body.
        """
        members = as_object(fastjson.loads(body))
        connections = map(as_object, as_array(members.get("connectionSet")))
        subscriptions = as_object(members.get("subscriptionTable"))
        return cls(
            tuple(
                (as_text(one.get("clientId")), as_number(one.get("version"))) for one in connections
            ),
            as_text(members.get("consumeType")),
            as_text(members.get("messageModel")),
            {
                topic: tuple(map(as_text, as_array(as_object(value).get("tagsSet"))))
                for topic, value in subscriptions.items()
            },
        )


def decode_names(body: bytes, member: str) -> list[str]:
    """Read a body that is one list of names, such as ``{"topicList":[..]}``.

    Raises:
        RemoteProtocolError: not such a body.
    """
    return list(map(as_text, as_array(as_object(fastjson.loads(body)).get(member))))


def decode_table(body: bytes) -> dict[str, str]:
    """Read a body that is one map of texts, ``{"table":{..}}``.

    Raises:
        RemoteProtocolError: not such a body.
    """
    table = as_object(as_object(fastjson.loads(body)).get("table"))
    return {name: as_text(value) for name, value in table.items()}
