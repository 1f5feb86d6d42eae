"""Pop: the fields of its requests, who may pop what, and the texts that go out with messages.

A consumer that pops owns no queue. The broker remembers what it handed out in a check point, and
delivers again what nobody acknowledges within the invisible time. What identifies a message on
its way back is a text of eight parts, the message's POP_CK.

Source: PopMessageRequestHeader, ExtraInfoUtil, KeyBuilder and PopMessageProcessor of RocketMQ 5.0
to 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.json_members import json_array, json_object, number, read_object, text
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.groups.consumers import PARSE_FAILED, TAG, Subscription, subscription
from rmqha.broker.pop.bit_sets import bits_of, check_size
from rmqha.broker.topics.group_table import GroupConfig, own_group_refusal
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.headers import (
    INT32_MAX,
    INT64_MAX,
    bool_field,
    int_field,
    long_field,
    parse_number,
    text_field,
)
from rmqha.remoting.topic_names import PERM_READ, RETRY_PREFIX, retry_topic_of
from rmqha.store.consume_queue import name_error

COUNT_MAX = 32
"""Messages of one pop: a check point has 32 bits."""

ORDER_REVIVE_QUEUE = 999
"""What stands for one where messages were popped in order: they have no check point."""

FIRST_OF_QUEUE = 0
"""initMode: a group without an offset begins at a queue's beginning, not at its end."""

_NORMAL, _RETRY, _RETRY_V2 = "0", "1", "2"
_PARTS = 8
_ACKS_MAX = 10_000


class PopRequest(NamedTuple):
    """The fields of 200050; 200054 and 200052 have the same, as far as they concern them.

    Times are ms.

    Attributes:
        order: nothing more of a queue while something of it is in flight.
        attempt_id: of an order; who asks again by the same one is answered again.
    """

    consumer_group: str
    topic: str
    queue_id: int
    max_msg_nums: int
    invisible_ms: int
    poll_ms: int
    init_mode: int
    expression_type: str
    expression: str
    order: bool
    attempt_id: str | None = None


class PopKey(NamedTuple):
    """What a POP_CK says: the check point and the message's place in it.

    Attributes:
        start_offset: of the check point.
        retry: "0" the topic itself, "1" or "2" the group's retry topic of it.
    """

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    retry: str
    broker_name: str
    queue_id: int
    queue_offset: int


class AckRequest(NamedTuple):
    """The fields of 200051 and 200053; ``invisible_ms`` is asked for by 200053."""

    consumer_group: str
    topic: str
    queue_id: int
    offset: int
    key: PopKey
    invisible_ms: int


class BatchAck(NamedTuple):
    """One entry of 200151: acknowledged messages of one check point."""

    consumer_group: str
    topic: str
    queue_id: int
    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    offsets: tuple[int, ...]


def real_topic(topic: str, group: str, retry: str) -> str:
    """The topic that a message came from.

    Raises:
        RemoteProtocolError: no known mark.
    """
    match retry:
        case "0":
            return topic
        case "1":
            return f"{RETRY_PREFIX}{group}_{topic}"
        case "2":
            return f"{RETRY_PREFIX}{group}+{topic}"
        case _:
            raise RemoteProtocolError(f"retry mark {retry!r} is none of 0, 1, 2")


def retry_mark(topic: str) -> str:
    """What stands for a topic in the texts."""
    if not topic.startswith(RETRY_PREFIX):
        return _NORMAL
    return _RETRY_V2 if "+" in topic else _RETRY


# -- requests --------------------------------------------------------------------------------------


def parse_pop(fields: Mapping[str, str] | None) -> PopRequest:
    """Read the fields of 200050 or 200054; numbers that miss have the value that asks for least."""
    return PopRequest(
        consumer_group=text_field(fields, "consumerGroup", ""),
        topic=text_field(fields, "topic", ""),
        queue_id=int_field(fields, "queueId", -1),
        max_msg_nums=int_field(fields, "maxMsgNums", 1),
        invisible_ms=long_field(fields, "invisibleTime", -1),
        poll_ms=long_field(fields, "pollTime", 0),
        init_mode=int_field(fields, "initMode", FIRST_OF_QUEUE),
        expression_type=text_field(fields, "expType", TAG) or TAG,
        expression=text_field(fields, "exp", "") or "*",
        order=bool_field(fields, "order"),
        attempt_id=text_field(fields, "attemptId", None),
    )


def check_pop(
    pop: PopRequest,
    group: GroupConfig | None,
    topic: TopicConfig | None,
    invisible_max_ms: int,
) -> Subscription | Refusal:
    """What the consumer wants of the topic, or why it gets nothing; in Java's order.

    Args:
        invisible_max_ms: a check point may not outlive the log.
    """
    name = pop.consumer_group
    if not 0 < pop.max_msg_nums <= COUNT_MAX:
        return Refusal(ResponseCode.INVALID_PARAMETER, f"a pop takes 1 to {COUNT_MAX} messages")
    if topic is None:
        return Refusal(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{pop.topic}] not exist, apply first please!"
        )
    if not topic.perm & PERM_READ:
        return Refusal(
            ResponseCode.NO_PERMISSION, f"the topic[{pop.topic}] peeking message is forbidden"
        )
    if pop.queue_id >= topic.read_queue_nums:
        return Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{pop.queue_id}] is illegal, topic:[{pop.topic}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
        )
    if group is None:
        return Refusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{name}] does not exist"
        )
    if not group.consume_enable:
        return Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")
    refusal = own_group_refusal(name)
    if refusal is not None:
        return refusal
    error = name_error(retry_topic_of(pop.topic, name).encode())
    if error is not None:
        # What is popped comes again from there.
        return Refusal(ResponseCode.INVALID_PARAMETER, f"no retry topic can be made: {error}")
    return _wanted(pop, invisible_max_ms)


def _wanted(pop: PopRequest, invisible_max_ms: int) -> Subscription | Refusal:
    if not 0 <= pop.invisible_ms <= invisible_max_ms:
        return Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"an invisible time of {pop.invisible_ms} ms is not from 0 to {invisible_max_ms}",
        )
    wanted = subscription(pop.topic, pop.expression, pop.expression_type, 0)
    if wanted.wants_nothing:
        return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, PARSE_FAILED)
    return wanted


def parse_key(value: str) -> PopKey:
    """Read a POP_CK, or the ``extraInfo`` that comes back.

    What follows the eight parts is not looked at, as in Java: a proxy adds the message's offset in
    the commit log.

    Raises:
        RemoteProtocolError: not such a text.
    """
    parts = value.split(" ", _PARTS)
    if len(parts) < _PARTS:
        raise RemoteProtocolError(f"extraInfo of {len(parts)} parts, there should be {_PARTS}")
    longs = [parse_number(part, INT64_MAX) for part in (*parts[:3], parts[7])]
    ints = [parse_number(part, INT32_MAX) for part in (parts[3], parts[6])]
    start, pop_ms, invisible_ms, offset = longs
    revive, queue = ints
    if start is None or pop_ms is None or invisible_ms is None or offset is None:
        raise RemoteProtocolError(f"extraInfo {value!r} holds other than numbers")
    if revive is None or queue is None:
        raise RemoteProtocolError(f"extraInfo {value!r} holds other than numbers")
    return PopKey(start, pop_ms, invisible_ms, revive, parts[4], parts[5], queue, offset)


def encode_key(key: PopKey) -> str:
    """As clients send it back."""
    return " ".join(str(part) for part in key)


def parse_ack(fields: Mapping[str, str] | None) -> AckRequest:
    """Read the fields of 200051 or 200053; raises RemoteProtocolError."""
    return AckRequest(
        text_field(fields, "consumerGroup", ""),
        text_field(fields, "topic", ""),
        int_field(fields, "queueId", -1),
        long_field(fields, "offset", -1),
        parse_key(text_field(fields, "extraInfo", "")),
        long_field(fields, "invisibleTime", -1),
    )


def check_ack(
    ack: AckRequest, topic: TopicConfig | None, low: int, high: int, revive_queues: int
) -> Refusal | None:
    """Why an acknowledgement counts for nothing.

    Args:
        low, high: the queue's first offset and its end.
    """
    if topic is None:
        return Refusal(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{ack.topic}] not exist, apply first please!"
        )
    if not 0 <= ack.queue_id < topic.read_queue_nums:
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"queueId[{ack.queue_id}] is illegal, topic:[{ack.topic}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
        )
    if not low <= ack.offset < high:
        return Refusal(
            ResponseCode.NO_MESSAGE,
            f"offset is illegal, key:{ack.topic}@{ack.queue_id}, commit:{ack.offset}, "
            f"store:{low}~{high}",
        )
    revive_queue = ack.key.revive_queue
    if revive_queue != ORDER_REVIVE_QUEUE and not 0 <= revive_queue < revive_queues:
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"revive queue {revive_queue} does not exist")
    return None


def read_batch(body: bytes) -> tuple[str, list[Any]]:
    """Read the body of 200151: the broker's name, and the entries for :func:`batch_acks`.

    Raises:
        RemoteProtocolError: not such a body.
    """
    members = read_object(body, "a batch of acknowledgements")
    entries = json_array(members.get("acks"), "acks")
    if len(entries) > _ACKS_MAX:
        raise RemoteProtocolError(f"more than {_ACKS_MAX} acknowledgements at once")
    check_size([_bit_set(json_object(one, "an acknowledgement")) for one in entries])
    return text(members, "brokerName", ""), entries


def batch_acks(entries: Sequence[Any]) -> list[BatchAck]:
    """Read entries; raises RemoteProtocolError."""
    return [_batch_ack(one) for one in entries]


def _bit_set(members: Mapping[str, Any]) -> object:
    return members.get("b", members.get("bitSet"))


def _batch_ack(members: Mapping[str, Any]) -> BatchAck:
    def count(short: str, long: str) -> int:
        return number(members, short if short in members else long, 0)

    def name(short: str, long: str) -> str:
        return text(members, short if short in members else long, "")

    group, start = name("c", "consumerGroup"), count("so", "startOffset")
    topic = real_topic(name("t", "topic"), group, name("r", "retry") or _NORMAL)
    bits = bits_of(_bit_set(members))
    return BatchAck(
        group, topic, count("q", "queueId"), start, count("pt", "popTime"),
        count("it", "invisibleTime"), count("rq", "reviveQueueId"),
        tuple(start + bit for bit in bits),
    )  # fmt: skip


# -- answers ---------------------------------------------------------------------------------------


class Handed(NamedTuple):
    """Messages of one queue in an answer."""

    topic: str
    queue_id: int
    start_offset: int
    offsets: Sequence[int]


def start_offset_info(handed: Sequence[Handed]) -> str:
    """``startOffsetInfo``: where each queue's check point begins."""
    return ";".join(f"{retry_mark(h.topic)} {h.queue_id} {h.start_offset}" for h in handed)


def msg_offset_info(handed: Sequence[Handed]) -> str:
    """``msgOffsetInfo``: the offsets of each queue's messages."""
    return ";".join(
        f"{retry_mark(h.topic)} {h.queue_id} {','.join(map(str, h.offsets))}" for h in handed
    )


def pop_fields(
    handed: Sequence[Handed],
    *,
    pop_ms: int,
    invisible_ms: int,
    revive_queue: int,
    rest: int,
    order_counts: str | None = None,
) -> dict[str, Any]:
    """The response fields, before they become texts."""
    return {
        "popTime": pop_ms,
        "invisibleTime": invisible_ms,
        "reviveQid": revive_queue,
        "restNum": rest,
        "startOffsetInfo": start_offset_info(handed),
        "msgOffsetInfo": msg_offset_info(handed),
        "orderCountInfo": order_counts,
    }
