"""What a broker says to a message: the fields of requests 10, 310 and 320, checks, and answers.

Source: SendMessageRequestHeader(V2), SendMessageProcessor and AbstractSendMessageProcessor of
RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from rmqha.broker.common.refusal import Refusal
from rmqha.broker.topics.topic_table import TopicConfig, is_for_services, unserved_attribute
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.headers import (
    INT32_MAX,
    bool_field,
    int_field,
    long_field,
    parse_number,
    text_field,
)
from rmqha.remoting.topic_names import RETRY_PREFIX, topic_error
from rmqha.statictopic.mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from rmqha.statictopic.translate import led_by, not_leader
from rmqha.store import properties as props
from rmqha.store.record import INNER_BATCH, PROPERTIES_MAX, TRANSACTION_MASK, Message

_PAIR_END = 2

MULTI_DISPATCH = b"INNER_MULTI_DISPATCH\x01"
LITE_TOPIC = b"__LITE_TOPIC\x01"
"""What clients of 5.5 send, of which a broker of Java's makes the former."""

PRIORITY = b"_SYS_MSG_PRIORITY_"
_OTHER_KINDS = (
    b"DELAY",
    b"TIMER_DELIVER_MS",
    b"TIMER_DELAY_SEC",
    b"TIMER_DELAY_MS",
    b"__SHARDINGKEY",
)

MAX_RECONSUME_VERSION = 121
"""Clients from 3.4.9 on say themselves how often a message may be delivered."""

MULTI_TAGS = 0x2
_PREPARED, _ROLLED_BACK = 0x4, 0xC
_QUEUES_DEFAULT = 4
_INT_DIGITS, _LONG_DIGITS = 9, 18
"""Numbers of so many digits surely fit into 32 and 64 bits."""

_LONG = (
    "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp",
    "flag", "properties", "reconsumeTimes", "batch", "producerGroup", "maxReconsumeTimes",
    "unitMode",
)  # fmt: skip
_SHORT = ("b", "c", "d", "e", "f", "g", "h", "i", "j", "m", "a", "l", "k")
_LONG_CODES = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})


class SendRequest(NamedTuple):
    """One request's fields, whichever names they came under.

    Attributes:
        named: the values of ``properties`` by name, read once for all rules.
    """

    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: bytes
    named: Mapping[bytes, bytes]
    reconsume_times: int
    batch: bool
    producer_group: str = ""
    max_reconsume_times: int | None = None
    unit_mode: bool = False


class Stamps(NamedTuple):
    """What the broker writes into every message's properties.

    Attributes:
        encoded: all of it, as properties.
    """

    region_id: str
    trace_on: str
    encoded: bytes

    @classmethod
    def of(cls, cluster_name: str, region_id: str, trace_on: str) -> Stamps:
        """Encode once what every message gets."""
        pairs = {"MSG_REGION": region_id, "TRACE_ON": trace_on, "CLUSTER": cluster_name}
        return cls(region_id, trace_on, props.encode(pairs))


def parse_send(code: int, fields: Mapping[str, str] | None) -> SendRequest | Refusal:
    """Read the fields of 10 and 324 (long names), 310, 320 and 325 (single letters)."""
    if code == RequestCode.SEND_MESSAGE_V2 and fields is not None:
        usual = _parse_usual(fields)
        if usual is not None:
            return usual
    return parse_any_send(code, fields)


def _parse_usual(fields: Mapping[str, str]) -> SendRequest | None:
    """The fields of 310 with all numbers plain, as clients send them; None for any others.

    Most of what a busy broker gets: a property test holds it equal to the lenient way.
    """
    try:
        queues, queue, flags, born, flag = (
            fields["d"], fields["e"], fields["f"], fields["g"], fields["h"],
        )  # fmt: skip
        topic, default = fields["b"], fields["c"]
    except KeyError:
        return None
    times = fields.get("j", "0")
    digits = f"{queues}{queue}{flags}{born}{flag}{times}"
    plain = queues and queue and flags and born and flag and times
    if not plain or not digits.isascii() or not digits.isdigit() or len(born) > _LONG_DIGITS:
        return None
    if max(len(queues), len(queue), len(flags), len(flag), len(times)) > _INT_DIGITS:
        return None
    most = fields.get("l")
    properties = fields.get("i", "").encode("utf-8", "replace")
    return SendRequest(
        topic, default, int(queues), int(queue), int(flags), int(born), int(flag),
        properties, props.by_name(properties), int(times),
        fields.get("m", "").lower() == "true", fields.get("a", ""),
        None if most is None else int_field(fields, "l", None),
        fields.get("k", "").lower() == "true",
    )  # fmt: skip


def parse_any_send(code: int, fields: Mapping[str, str] | None) -> SendRequest | Refusal:
    """The same with Java's leniency, whichever names the fields have."""
    names = _LONG if code in _LONG_CODES else _SHORT
    fields = fields or {}
    for name in names[:4]:
        if name not in fields:
            return Refusal(1, f"the request has no field {name}")
    topic, default, queues, queue, flags, born, flag, pairs, times, batch, group, most, unit = names
    properties = text_field(fields, pairs, "").encode("utf-8", "replace")
    return SendRequest(
        topic=text_field(fields, topic, ""),
        default_topic=text_field(fields, default, ""),
        default_topic_queue_nums=int_field(fields, queues, _QUEUES_DEFAULT),
        queue_id=int_field(fields, queue, -1),
        sys_flag=int_field(fields, flags, 0),
        born_timestamp=long_field(fields, born, 0),
        flag=int_field(fields, flag, 0),
        properties=properties,
        named=props.by_name(properties),
        reconsume_times=int_field(fields, times, 0),
        batch=code == RequestCode.SEND_BATCH_MESSAGE or bool_field(fields, batch),
        producer_group=text_field(fields, group, ""),
        max_reconsume_times=int_field(fields, most, None),
        unit_mode=bool_field(fields, unit),
    )


@lru_cache(maxsize=4096)
def name_refusal(topic: str) -> Refusal | None:
    """Whether producers may send to a topic of this name at all."""
    error = topic_error(topic)
    if error is not None:
        return Refusal(ResponseCode.INVALID_PARAMETER, error)
    if is_for_services(topic):
        return Refusal(ResponseCode.NO_PERMISSION, f"sending to topic {topic} is forbidden")
    return None


def content_refusal(request: SendRequest, body_size: int, body_max: int) -> Refusal | None:
    """What is wrong with the message itself; asked once its topic and queue are known."""
    if not body_size:
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, "the message has no body")
    if body_size > body_max:
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a body of {body_size} bytes is over the limit {body_max}",
        )
    if len(request.properties) > PROPERTIES_MAX:
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL, f"properties are longer than {PROPERTIES_MAX} bytes"
        )
    if request.sys_flag & (TRANSACTION_MASK | INNER_BATCH):
        return _flag_refusal(request)
    # A consumer that cannot send back (36) writes what it read to its retry topic, with all that
    # a broker with multi dispatch has let in.
    if not request.topic.startswith(RETRY_PREFIX):
        for name in (MULTI_DISPATCH, LITE_TOPIC):
            if name in request.properties:
                return Refusal(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"{name[:-1].decode()}: this broker does not dispatch to more",
                )
    return None


def promise_refusal(topic: TopicConfig) -> Refusal | None:
    """Whether a topic promises of its messages what nobody here keeps."""
    unserved = unserved_attribute(topic.attributes) if topic.attributes else None
    if unserved is None:
        return None
    remark = f"topic {topic.name} has {unserved}, which this broker does not serve"
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)


def _flag_refusal(request: SendRequest) -> Refusal | None:
    """Stored as they are, no consumer would see them, or one message would count for several."""
    if request.sys_flag & INNER_BATCH:
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL, "an inner batch needs a topic of queue.type=BatchCQ"
        )
    kind = request.sys_flag & TRANSACTION_MASK
    if kind in (_PREPARED, _ROLLED_BACK) and b"TRAN_MSG" not in request.properties:
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL, "the flag of a transaction, but no property TRAN_MSG"
        )
    return None


def choose_queue(topic: TopicConfig, queue_id: int, turn: int) -> int | Refusal:
    """The queue that was asked for, or for a negative one the queue whose turn it is."""
    if queue_id >= max(topic.read_queue_nums, topic.write_queue_nums):
        return Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"queue {queue_id} of topic {topic.name} does not exist: it has "
            f"{topic.read_queue_nums} to read and {topic.write_queue_nums} to write",
        )
    if queue_id >= 0:
        return queue_id
    return turn % topic.write_queue_nums if topic.write_queue_nums else 0


def priority_of(named: Mapping[bytes, bytes]) -> int | None:
    """The priority that a message says; None where that is no number of at least 0."""
    number = parse_number(named[PRIORITY].decode("utf-8", "replace"), INT32_MAX)
    return None if number is None or number < 0 else number


def priority_queue(
    topic: TopicConfig, priority: int, named: Mapping[bytes, bytes]
) -> int | None:  # fmt: skip
    """The queue of a message with a priority, whichever it was sent to: the higher, the later.

    Returns:
        None for a message of another kind: of a transaction, delayed, or in the order of a sharding
        key.
    """
    is_other = named.get(b"TRAN_MSG", b"").lower() == b"true"
    if is_other or any(name in named for name in _OTHER_KINDS):
        return None
    return max(0, min(priority, topic.write_queue_nums - 1))


class LogicalQueue(NamedTuple):
    """Where a message of a static topic goes.

    Attributes:
        logical_id: as producers know the queue.
        leader: the segment that takes it.
    """

    logical_id: int
    leader: LogicQueueMappingItem


def choose_logical(
    mapping: TopicQueueMappingDetail, queue_id: int, turn: int
) -> LogicalQueue | Refusal:
    """The queue that was asked for, or for a negative one the led queue whose turn it is."""
    if queue_id < 0:
        # One whose first offset is being decided has to wait.
        open_ids = [one for one in mapping.curr_id_map if mapping.hosted_queues[one][-1].is_decided]
        led = open_ids or list(mapping.curr_id_map)
        if not led:
            return Refusal(ResponseCode.NOT_LEADER_FOR_QUEUE, not_leader(mapping, queue_id))
        queue_id = led[turn % len(led)]
    segments = led_by(mapping, queue_id)
    if segments is None:
        return Refusal(ResponseCode.NOT_LEADER_FOR_QUEUE, not_leader(mapping, queue_id))
    return LogicalQueue(queue_id, segments[-1])


def build_message(
    request: SendRequest,
    queue_id: int,
    body: bytes,
    *,
    stamps: Stamps,
    unique_key: str,
    born_host: bytes,
    store_host: bytes,
    topic: TopicConfig | None = None,
) -> Message:
    """The record's content; the broker's own properties come last.

    Args:
        unique_key: UNIQ_KEY for a message that came without one; else empty.
        topic: decides whether several tags are in TAGS.
    """
    properties = request.properties
    if b"POP_CK\x01" in properties:
        # Only the broker says where a message of pop mode was read.
        properties = props.drop(properties, b"POP_CK")
    if properties and properties[-1] != _PAIR_END:
        properties += b"\x02"
    if unique_key:
        properties += b"UNIQ_KEY\x01" + unique_key.encode() + b"\x02"
    sys_flag = request.sys_flag
    if topic is not None and topic.topic_filter_type == "MULTI_TAG":
        sys_flag |= MULTI_TAGS
    return Message(
        request.topic, queue_id, body, properties + stamps.encoded, request.born_timestamp,
        born_host, store_host, sys_flag, request.flag, request.reconsume_times,
    )  # fmt: skip


def disk_full(commit_log: float, queues: float) -> Refusal:
    """What Java answers while its disk is used above diskSpaceWarningLevelRatio.

    Args:
        commit_log, queues: the shares of their disks in use; the index lies with the queues.
    """
    return Refusal(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now. It may be caused by one of the following reasons: the broker's"
        f" disk is full [CL: {commit_log:5.2f} CQ: {queues:5.2f} INDEX: {queues:5.2f}], messages are"
        " put to the slave, message store has been shut down, etc.",
    )


def waits_for_store(properties: bytes, named: Mapping[bytes, bytes]) -> bool:
    """Whether the producer wants to know that replicas have it: WAIT is absent or "true"."""
    if b"WAIT\x01true" in properties:
        return True
    value = named.get(b"WAIT")
    return value is None or value.lower() == b"true"


def stored_fields(
    msg_id: str, queue_id: int, queue_offset: int, unique_key: str, stamps: Stamps
) -> dict[str, str]:
    """The response fields of a stored message; of a batch, ``msg_id`` are several."""
    return {
        "msgId": msg_id,
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "transactionId": unique_key,
        "MSG_REGION": stamps.region_id,
        "TRACE_ON": stamps.trace_on,
    }
