"""The topics of a broker, their version, and the rules by which new ones come to be.

Source: TopicConfigManager, TopicConfig, DataVersion and TopicValidator of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.versioned_table import COUNT_MAX, VersionedTable
from rmqha.remoting.data_version import DataVersion as DataVersion  # rooms above take it from here
from rmqha.remoting.topic_names import (
    AUTO_CREATE_TOPIC,
    CLOSED_TOPICS,
    LIGHT_PREFIX,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    RETRY_PREFIX,
    REVIVE_TOPIC,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    UNIT_FLAG,
    UNIT_SUB_FLAG,
    is_system_topic,
)
from rmqha.statictopic.mapping import QUEUES_MAX as QUEUES_MAX  # rooms above take it from here
from rmqha.store.metadata_records import METADATA_TOPIC


class TopicConfig(Struct, frozen=True):
    """The configuration of one topic."""

    name: str
    read_queue_nums: int = 8
    write_queue_nums: int = 8
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)

    def members(self) -> dict[str, Any]:
        """The JSON members, under Java's names."""
        return {
            "attributes": dict(self.attributes),
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.topic_filter_type,
            "topicName": self.name,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def of(cls, value: object) -> TopicConfig:
        """Read the JSON members; what misses has Java's default.

        Raises:
            RemoteProtocolError: no name, or a member of the wrong kind.
        """
        if not isinstance(value, dict) or not isinstance(value.get("topicName"), str):
            raise RemoteProtocolError("a topic without a name")
        attributes = value.get("attributes") or {}
        if not isinstance(attributes, dict):
            raise RemoteProtocolError("topic attributes are no object")
        return cls(
            name=value["topicName"],
            read_queue_nums=_count(value, "readQueueNums", 16),
            write_queue_nums=_count(value, "writeQueueNums", 16),
            perm=_count(value, "perm", PERM_READ | PERM_WRITE),
            topic_filter_type=str(value.get("topicFilterType") or "SINGLE_TAG"),
            topic_sys_flag=_count(value, "topicSysFlag", 0),
            order=value.get("order") is True,
            attributes={str(key): str(text) for key, text in attributes.items()},
        )


def _count(value: Mapping[str, Any], name: str, default: int) -> int:
    number = value.get(name, default)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= QUEUES_MAX:
        raise RemoteProtocolError(f"{name}={number!r} is not a number from 0 to {QUEUES_MAX}")
    return number


PRIORITY_TYPE = "PRIORITY"
"""Of the attribute ``message.type``."""


def has_priorities(topic: TopicConfig) -> bool:
    """Whether pops begin with the topic's last queue, where what is most urgent is (RocketMQ 5.5)."""
    return topic.attributes.get("message.type") == PRIORITY_TYPE


def unserved_attribute(attributes: Mapping[str, str]) -> str | None:
    """What a topic promises and this broker does not keep; None where there is nothing.

    A Java broker's topics may have it. Their messages are replicated and read, but no more are
    taken: one that is no inner batch has no place in a batch queue, nothing compacts, and what is
    for lite queues (RocketMQ 5.5) would be in none.
    """
    for name, value in (
        ("queue.type", "BatchCQ"), ("cleanup.policy", "COMPACTION"), ("message.type", "LITE"),
    ):  # fmt: skip
        if attributes.get(name) == value:
            return f"{name}={value}"
    return None


def is_for_services(topic: str) -> bool:
    """Whether the broker acts on what is written to a topic: no client may write there.

    Java lets clients write to the last two.
    """
    return (
        topic in CLOSED_TOPICS
        or topic in (METADATA_TOPIC, TIMER_TOPIC)
        or topic.startswith(REVIVE_TOPIC)
    )


class TopicTable(VersionedTable[TopicConfig]):
    """All topics of one broker; the version changes with the role, too.

    Attributes:
        topics: by name.
    """

    def __init__(
        self, topics: Iterable[TopicConfig] = (), version: DataVersion | None = None
    ) -> None:
        super().__init__(topics, version, _json_bytes)
        self.topics = self.items

    def advance(self, master_epoch: int, wall_ms: int) -> None:
        """A role was taken up: the name servers must take this table for newer."""
        self.version = self.version.next(wall_ms, master_epoch)

    def topic_for_send(
        self, name: str, default_topic: str, queues: int, *, unit_mode: bool = False
    ) -> TopicConfig | None:
        """The topic that a message to ``name`` makes.

        A retry topic comes to be with one queue; any other inherits what may be done with
        ``default_topic`` and how it is filtered, if that one may be inherited from. Neither its
        order nor its attributes: a default topic for ordered messages, say, makes plain topics.

        Returns:
            None when it must not be made, or there is no room for it.
        """
        template = self.topics.get(default_topic)
        if name.startswith(RETRY_PREFIX):
            topic = TopicConfig(name, 1, 1, topic_sys_flag=UNIT_SUB_FLAG if unit_mode else 0)
        elif template is None or not template.perm & PERM_INHERIT:
            return None
        else:
            count = max(0, min(queues, template.write_queue_nums))
            topic = TopicConfig(
                name,
                count,
                count,
                perm=template.perm & ~PERM_INHERIT,
                topic_filter_type=template.topic_filter_type,
                topic_sys_flag=UNIT_FLAG if unit_mode else 0,
            )
        return topic if self.fits((topic,)) else None

    def members(self) -> dict[str, Any]:
        """``config/topics.json``, and the heart of requests 21 and 103."""
        return {
            "dataVersion": self.version.members(),
            "topicConfigTable": self.item_members(),
        }

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> TopicTable:
        """Read ``config/topics.json`` or the answer to 21.

        Raises:
            RemoteProtocolError: not such an object.
        """
        table = value.get("topicConfigTable") or {}
        if not isinstance(table, dict) or len(table) > COUNT_MAX:
            raise RemoteProtocolError("the topic table is no object, or too large")
        topics = [TopicConfig.of(topic) for topic in table.values()]
        return cls(topics, DataVersion.of(value.get("dataVersion") or {}))


def _json_bytes(topic: TopicConfig) -> int:
    """How long a topic's member of the table is, at most."""
    attributes = sum(len(key) + len(text) + 6 for key, text in topic.attributes.items())
    return 220 + 2 * len(topic.name) + attributes


def system_topics(
    cluster_name: str, broker_name: str, *, auto_create: bool, default_queues: int, timers: bool,
    traces: str = "",
) -> list[TopicConfig]:  # fmt: skip
    """The topics that every broker has from its start; a Java slave copies them from its master.

    Args:
        timers: timerWheelEnable.
        traces: msgTraceTopicName, where clients write what became of messages; empty for none.
    """
    everything = PERM_READ | PERM_WRITE | PERM_INHERIT
    found = [TopicConfig(AUTO_CREATE_TOPIC, default_queues, default_queues, everything)]
    if not auto_create:
        found = []
    for name, queues in (
        ("SELF_TEST_TOPIC", 1), ("BenchmarkTest", 1024), ("OFFSET_MOVED_EVENT", 1),
        ("SCHEDULE_TOPIC_XXXX", 18), (f"{cluster_name}_REPLY_TOPIC", 1),
        (REVIVE_TOPIC + cluster_name, 8), ("RMQ_SYS_TRANS_HALF_TOPIC", 1),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1),
    ):  # fmt: skip
        found.append(TopicConfig(name, queues, queues))
    if timers:
        found.append(TopicConfig(TIMER_TOPIC, 1, 1))
    if traces:
        found.append(TopicConfig(traces, 1, 1))
    found.append(TopicConfig(cluster_name, 16, 16, everything))
    found.append(TopicConfig(broker_name, 1, 1, everything))
    found.append(TopicConfig(f"rmq_sys_SYNC_BROKER_MEMBER_{broker_name}", 1, 1, PERM_INHERIT))
    return found


def system_topic_names(given: Iterable[TopicConfig]) -> list[str]:
    """The answer to 305: what tools must not count among the topics of users.

    Args:
        given: topics that the broker has from its start.
    """
    return sorted({*SYSTEM_TOPICS, METADATA_TOPIC, *(topic.name for topic in given)})


def unused_topics(stored: Iterable[str], known: Collection[str]) -> list[str]:
    """Topics that have queues but are none any more, and whose queues nobody needs."""
    return [
        name for name in stored
        if name not in known and not is_system_topic(name) and not name.startswith(LIGHT_PREFIX)
    ]  # fmt: skip
