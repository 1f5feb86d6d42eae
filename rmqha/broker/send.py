"""What a broker says to a message: the fields of requests 10, 310 and 320, checks, and answers.

Source: SendMessageRequestHeader(V2), SendMessageProcessor and AbstractSendMessageProcessor of
RocketMQ 5.1.1 to 5.5 (reference broker-namesrv 2.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqha.broker.topics import (
    NOT_FOR_PRODUCERS,
    RETRY_PREFIX,
    TopicConfig,
    TopicTable,
    topic_error,
)
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.headers import bool_field, int_field, long_field, text_field
from rmqha.store import properties as props
from rmqha.store.record import PROPERTIES_MAX, TRANSACTION_MASK, Message

SEND_BATCH_MESSAGE = 320

MESSAGE_ILLEGAL = 13
SERVICE_NOT_AVAILABLE = 14
NO_PERMISSION = 16
TOPIC_NOT_EXIST = 17
INVALID_PARAMETER = 29

_LONG = (
    "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp",
    "flag", "properties", "reconsumeTimes", "batch",
)  # fmt: skip
_SHORT = ("b", "c", "d", "e", "f", "g", "h", "i", "j", "m")
# What needs a service that this broker does not run; stored as it is, it would be delivered at once.
_NOT_SERVED = (
    (b"DELAY", "delay levels"),
    (b"TIMER_DELAY_SEC", "timers"),
    (b"TIMER_DELAY_MS", "timers"),
    (b"TIMER_DELIVER_MS", "timers"),
)


class SendRequest(NamedTuple):
    """One request's fields, whichever names they came under."""

    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: bytes
    reconsume_times: int
    batch: bool


class Refusal(NamedTuple):
    """A message that is not stored: the answer's code and remark."""

    code: int
    remark: str


class Stamps(NamedTuple):
    """What the broker writes into every message's properties."""

    cluster_name: str
    region_id: str
    trace_on: str


def parse_send(code: int, fields: Mapping[str, str] | None) -> SendRequest | Refusal:
    """Read the fields of 10 (long names), 310 or 320 (single letters)."""
    names = _LONG if code == RequestCode.SEND_MESSAGE else _SHORT
    fields = fields or {}
    for name in names[:4]:
        if name not in fields:
            return Refusal(1, f"the request has no field {name}")
    topic, default, queues, queue, flags, born, flag, pairs, times, batch = names
    return SendRequest(
        topic=text_field(fields, topic, ""),
        default_topic=text_field(fields, default, ""),
        default_topic_queue_nums=int_field(fields, queues, 4),
        queue_id=int_field(fields, queue, -1),
        sys_flag=int_field(fields, flags, 0),
        born_timestamp=long_field(fields, born, 0),
        flag=int_field(fields, flag, 0),
        properties=text_field(fields, pairs, "").encode("utf-8", "replace"),
        reconsume_times=int_field(fields, times, 0),
        batch=code == SEND_BATCH_MESSAGE or bool_field(fields, batch),
    )


def check_request(request: SendRequest, body_size: int, body_max: int) -> Refusal | None:
    """What can be said before the topic is looked up."""
    error = topic_error(request.topic)
    if error is not None:
        return Refusal(INVALID_PARAMETER, error)
    if request.topic in NOT_FOR_PRODUCERS:
        return Refusal(NO_PERMISSION, f"sending to topic {request.topic} is forbidden")
    if body_size > body_max:
        return Refusal(MESSAGE_ILLEGAL, f"a body of {body_size} bytes is over the limit {body_max}")
    if len(request.properties) > PROPERTIES_MAX:
        return Refusal(MESSAGE_ILLEGAL, f"properties are longer than {PROPERTIES_MAX} bytes")
    if request.batch and request.topic.startswith(RETRY_PREFIX):
        return Refusal(MESSAGE_ILLEGAL, "a batch cannot be sent to a retry topic")
    return _not_served(request)


def _not_served(request: SendRequest) -> Refusal | None:
    if request.sys_flag & TRANSACTION_MASK or props.find(request.properties, b"TRAN_MSG"):
        return Refusal(MESSAGE_ILLEGAL, "transactions are not served by this broker")
    for name, what in _NOT_SERVED:
        value = props.find(request.properties, name)
        if value is not None and value.strip(b" 0"):
            return Refusal(MESSAGE_ILLEGAL, f"{what} are not served by this broker")
    return None


def find_topic(
    table: TopicTable, request: SendRequest, wall_ms: int
) -> tuple[TopicConfig, bool] | Refusal:
    """The topic, made on the way if it may be.

    Returns:
        The topic and whether it is new, or why there is none.
    """
    topic = table.get(request.topic)
    if topic is not None:
        return topic, False
    made = table.create_by_send(
        request.topic, request.default_topic, request.default_topic_queue_nums, wall_ms
    )
    if made is None:
        return Refusal(TOPIC_NOT_EXIST, f"topic {request.topic} does not exist")
    return made, True


def choose_queue(topic: TopicConfig, queue_id: int, turn: int) -> int | Refusal:
    """The queue that was asked for, or for a negative one the queue whose turn it is."""
    if queue_id >= max(topic.read_queue_nums, topic.write_queue_nums):
        return Refusal(
            INVALID_PARAMETER,
            f"queue {queue_id} of topic {topic.name} does not exist: it has "
            f"{topic.read_queue_nums} to read and {topic.write_queue_nums} to write",
        )
    if queue_id >= 0:
        return queue_id
    return turn % topic.write_queue_nums if topic.write_queue_nums else 0


def build_message(
    request: SendRequest,
    queue_id: int,
    body: bytes,
    *,
    stamps: Stamps,
    unique_key: str,
    born_host: bytes,
    store_host: bytes,
) -> Message:
    """The record's content; the broker's own properties come last.

    Args:
        unique_key: UNIQ_KEY for a message that came without one.
    """
    added = f"MSG_REGION\x01{stamps.region_id}\x02TRACE_ON\x01{stamps.trace_on}\x02"
    if props.find(request.properties, b"UNIQ_KEY") is None:
        added = f"UNIQ_KEY\x01{unique_key}\x02{added}"
    added += f"CLUSTER\x01{stamps.cluster_name}\x02"
    joint = b"\x02" if request.properties[-1:] not in (b"", b"\x02") else b""
    return Message(
        topic=request.topic,
        queue_id=queue_id,
        body=body,
        properties=request.properties + joint + added.encode(),
        born_timestamp=request.born_timestamp,
        born_host=born_host,
        store_host=store_host,
        sys_flag=request.sys_flag,
        flag=request.flag,
        reconsume_times=request.reconsume_times,
    )


def waits_for_store(properties: bytes) -> bool:
    """Whether the producer wants to know that replicas have it: WAIT is absent or "true"."""
    value = props.find(properties, b"WAIT")
    return value is None or value.lower() == b"true"


def stored_fields(
    message: Message, msg_ids: list[str], queue_offset: int, stamps: Stamps
) -> dict[str, str]:
    """The response fields of a stored message; of a batch, ids are joined by commas."""
    unique_key = props.find(message.properties, b"UNIQ_KEY") or b""
    return {
        "msgId": ",".join(msg_ids),
        "queueId": str(message.queue_id),
        "queueOffset": str(queue_offset),
        "transactionId": unique_key.decode("utf-8", "replace"),
        "MSG_REGION": stamps.region_id,
        "TRACE_ON": stamps.trace_on,
    }
