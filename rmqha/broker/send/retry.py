"""Messages that a consumer could not handle: once more later, or to the dead letters.

Source: AbstractSendMessageProcessor and SendMessageProcessor of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqha.broker.common.refusal import Refusal
from rmqha.broker.send.request import MAX_RECONSUME_VERSION
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.headers import bool_field, int_field, long_field, text_field
from rmqha.remoting.topic_names import DLQ_PREFIX, RETRY_PREFIX, UNIT_SUB_FLAG
from rmqha.store import properties as props
from rmqha.store.record import Message, Record

FIRST_RETRY_LEVEL = 3


class BackRequest(NamedTuple):
    """The fields of request 36."""

    offset: int
    group: str
    delay_level: int
    max_reconsume_times: int | None
    unit_mode: bool


def parse_back(fields: Mapping[str, str] | None) -> BackRequest:
    """Read the fields."""
    return BackRequest(
        long_field(fields, "offset", -1),
        text_field(fields, "group", ""),
        int_field(fields, "delayLevel", 0),
        int_field(fields, "maxReconsumeTimes", None),
        bool_field(fields, "unitMode"),
    )


def reconsume_max(of_group: int, of_request: int | None, version: int) -> int:
    """How often a message is delivered before it goes to the dead letters."""
    if of_request is not None and version >= MAX_RECONSUME_VERSION:
        return of_request
    return of_group


def goes_to_dead_letters(times: int, times_max: int, delay_level: int) -> bool:
    """Whether a message that was sent back is given up."""
    return times >= times_max or delay_level < 0


def retry_topic(group: str, queues: int, *, unit_mode: bool) -> TopicConfig:
    """The retry topic of a group."""
    flag = UNIT_SUB_FLAG if unit_mode else 0
    return TopicConfig(RETRY_PREFIX + group, queues, queues, topic_sys_flag=flag)


def dead_letter_topic(group: str) -> TopicConfig:
    """The topic of a group's dead letters."""
    return TopicConfig(DLQ_PREFIX + group, 1, 1)


def first_topic(record: Record) -> str:
    """The topic that a message was sent to, before it came from a retry topic."""
    found = props.find(record.properties, b"RETRY_TOPIC")
    return record.topic if found is None else bytes(found).decode("utf-8", "replace")


def returned_message(
    record: Record, topic: str, queue_id: int, delay_level: int, store_host: bytes
) -> Message:
    """The message that a consumer sent back, for its next delivery.

    Args:
        delay_level: after which to deliver it; 0 for a dead letter.
    """
    message = record.message()
    properties = message.properties
    if props.find(properties, b"RETRY_TOPIC") is None:
        properties = props.put(properties, b"RETRY_TOPIC", record.topic.encode())
    if props.find(properties, b"ORIGIN_MESSAGE_ID") is None:
        properties = props.put(properties, b"ORIGIN_MESSAGE_ID", record.message_id.encode())
    properties = props.put(properties, b"DELAY", b"%d" % delay_level)
    properties = props.put(properties, b"WAIT", b"false")
    return message._replace(
        topic=topic, queue_id=queue_id, properties=properties, store_host=store_host,
        reconsume_times=record.reconsume_times + 1, prepared_transaction_offset=0,
    )  # fmt: skip


def group_refusal(group: str) -> Refusal:
    """The group does not exist."""
    return Refusal(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}"
    )
