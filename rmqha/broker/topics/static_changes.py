"""Changes of static topics that people ask for (513), and what a mapping asks of its topic.

Source: AdminBrokerProcessor.updateAndCreateStaticTopic and TopicQueueMappingManager of RocketMQ 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.topics.changes import parse_topic
from rmqha.broker.topics.mapping_table import MappingTable
from rmqha.broker.topics.metadata_change import Change
from rmqha.broker.topics.topic_table import TopicConfig, TopicTable
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.headers import bool_field
from rmqha.statictopic.mapping import TopicQueueMappingDetail
from rmqha.statictopic.mapping_body import decode_detail
from rmqha.statictopic.rules import updated


def static_change(
    fields: Mapping[str, str] | None, body: bytes, topics: TopicTable, mappings: MappingTable,
    *, broker_name: str, is_protected: Callable[[str], bool],
) -> Change | Refusal:  # fmt: skip
    """What request 513 changes, topic and mapping in one; nothing where all is as asked for.

    Args:
        fields: as of 17, and ``force``.
        body: a TopicQueueMappingDetail.
        is_protected: as of ``check_name``.
    """
    topic = parse_topic(fields, topics.get, is_protected, queues_min=0)
    if isinstance(topic, Refusal):
        return _refusal(topic.remark)
    try:
        asked = decode_detail(bytes(body))
    except RemoteProtocolError as error:
        return _refusal(f"the mapping cannot be read: {error}")
    if asked.topic != topic.name:
        return _refusal(f"the mapping is of topic {asked.topic}, not {topic.name}")
    if asked.broker_name != broker_name:
        return _refusal(f"the mapping is of broker {asked.broker_name}, not {broker_name}")
    old = mappings.get(topic.name)
    mapping = updated(old, asked, force=bool_field(fields, "force"))
    if isinstance(mapping, str):
        return _refusal(f"the mapping of {topic.name} stays as it is: {mapping}")
    lacking = queues_error(topic, mapping)
    if lacking is not None:
        return _refusal(lacking)
    return Change(
        topics=() if topics.get(topic.name) == topic else (topic,),
        mappings=() if old == mapping else (mapping,),
    )


def queues_error(topic: TopicConfig, mapping: TopicQueueMappingDetail | None) -> str | None:
    """Why a topic has too few queues for its mapping; None if it has enough."""
    if mapping is None:
        return None
    used = queues_used(mapping)
    if min(topic.read_queue_nums, topic.write_queue_nums) >= used:
        return None
    return (
        f"logical queues of {topic.name} use {used} queues of this broker, and it would have "
        f"{topic.read_queue_nums} to read and {topic.write_queue_nums} to write"
    )


def queues_used(mapping: TopicQueueMappingDetail) -> int:
    """How many physical queues a mapping needs on its own broker set."""
    return max(
        (
            one.queue_id + 1
            for segments in mapping.hosted_queues.values()
            for one in segments
            if one.broker_name == mapping.broker_name
        ),
        default=0,
    )


def _refusal(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)
