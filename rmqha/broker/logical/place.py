"""Where a request about a logical queue belongs.

``lo=false`` marks a request between brokers, whose numbers are those of physical queues already.

Source: TopicQueueMappingManager.buildTopicQueueMappingContext of RocketMQ 5.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.broker.topics.mapping_table import MappingTable
from rmqha.remoting.old_clients import knows_static_topics
from rmqha.statictopic.mapping import TopicQueueMappingDetail

LOGICAL_FIELD = "lo"

FORWARDED_FIELD = "rmqhaForwarded"
"""Of a client's request that a broker of this kind has passed on: nobody passes it on again."""


def mapping_for(
    table: MappingTable, topic: str, fields: Mapping[str, str] | None
) -> TopicQueueMappingDetail | None:
    """The mapping that a request goes by; None for an ordinary topic, and between brokers."""
    if not table.items:
        return None
    found = table.items.get(topic)
    if found is None or (fields or {}).get(LOGICAL_FIELD, "").lower() == "false":
        return None
    return found


def is_of_old_client(version: int, fields: Mapping[str, str] | None) -> bool:
    """Whether a request is of a client that knows no static topics, and to be translated here.

    What another broker has passed on is of that broker, which translates.
    """
    return not knows_static_topics(version) and FORWARDED_FIELD not in (fields or {})


def elsewhere(
    mapping: TopicQueueMappingDetail, logical_id: int, fields: Mapping[str, str] | None
) -> str | None:
    """The broker set that leads a queue which this one does not lead any more; None if unknown.

    It is known where the queue was moved away from here. A client that has not heard of it yet need
    not notice, unless two brokers each believe in the other.
    """
    if FORWARDED_FIELD in (fields or {}):
        return None
    segments = mapping.hosted_queues.get(logical_id)
    if not segments or segments[-1].broker_name == mapping.broker_name:
        return None
    return segments[-1].broker_name
