"""Transactions: half messages, what ends them, and which of them to ask about.

Everything is in the log: a half message waits in a topic of the broker's own, and an op message says
that it is committed or rolled back. So any replica that becomes master can go on from there.

Source: TransactionalMessageBridge, TransactionalMessageServiceImpl and EndTransactionProcessor of
RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqha.broker.common.refusal import Refusal
from rmqha.broker.deferred.delays import real_place
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.headers import (
    INT64_MAX,
    bool_field,
    int_field,
    long_field,
    parse_number,
    text_field,
)
from rmqha.remoting.topic_names import ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC
from rmqha.store import properties as props
from rmqha.store.record import (
    PROPERTIES_MAX,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    Message,
    Record,
)


class HalfPair(NamedTuple):
    """Names of a topic of half messages, and of the one that says which have ended."""

    half: str
    op: str


HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
PAIR = HalfPair(HALF_TOPIC, OP_TOPIC)
NEWER_PAIR = HalfPair(ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC)
"""Of brokers of 5.5 with ``transRocksDBEnable``."""
EXPIRED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"
QUEUE = 0
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0

_PREPARED = b"TRAN_MSG"
_CHECK_TIMES = b"TRANSACTION_CHECK_TIMES"
_IMMUNITY = b"CHECK_IMMUNITY_TIME_IN_SECONDS"
_PREPARED_OFFSET = b"TRAN_PREPARED_QUEUE_OFFSET"
_OP_TAG = b"d"
_TRANSACTION_ID = b"__transactionId__"
_ENDED_PLACE = b"TRANS_OFFSET"

BROKERS_OWN = (_PREPARED_OFFSET, _CHECK_TIMES)
"""Properties by which a broker knows that a half message renews another one. Consumers find them in what
was committed, as Java's do; a copy of it that begins a transaction must not end somebody else's.
"""

RENEWAL_BYTES = 128
"""What :func:`renewed_half` adds to the properties, and CRCs of them, at most."""


def is_half(named: Mapping[bytes, bytes]) -> bool:
    """Whether a producer sent it as the first half of a transaction, by its properties' names."""
    value = named.get(_PREPARED)
    return value is not None and value.lower() == b"true"


def half_message(message: Message, named: Mapping[bytes, bytes]) -> Message | Refusal:
    """A half message as it is stored; delays count from its commit.

    One that could not be stored once more is refused: nobody could ask about it.

    Args:
        named: its properties by name.
    """
    properties = message.properties
    for name in BROKERS_OWN:
        if name in named:
            properties = props.drop(properties, name)
    key = named.get(b"UNIQ_KEY")
    pairs = {} if key is None else {_TRANSACTION_ID: key}
    pairs[b"REAL_TOPIC"] = message.topic.encode()
    pairs[b"REAL_QID"] = b"%d" % message.queue_id
    properties = props.put_all(properties, pairs)
    if len(properties) > PROPERTIES_MAX - RENEWAL_BYTES:
        most = PROPERTIES_MAX - RENEWAL_BYTES
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"properties of {len(properties)} bytes, at most {most} of a half message",
        )
    return message._replace(
        topic=HALF_TOPIC,
        queue_id=QUEUE,
        properties=properties,
        sys_flag=message.sys_flag & ~TRANSACTION_MASK,
    )


# -- request 37: the end of one


class EndRequest(NamedTuple):
    """The fields of request 37."""

    producer_group: str
    queue_offset: int
    physical_offset: int
    decision: int
    from_check: bool


def parse_end(fields: Mapping[str, str] | None) -> EndRequest:
    """Read the fields; what is missing matches no half message."""
    return EndRequest(
        text_field(fields, "producerGroup", ""),
        long_field(fields, "tranStateTableOffset", -1),
        long_field(fields, "commitLogOffset", -1),
        int_field(fields, "commitOrRollback", UNKNOWN),
        bool_field(fields, "fromTransactionCheck"),
    )


def check_end(
    request: EndRequest, half: Record | None, wall_ms: int, timeout_ms: int
) -> Refusal | None:
    """Whether the producer may end this transaction."""
    if half is None or half.topic not in (PAIR.half, NEWER_PAIR.half):
        return Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
    # Not by the producer's clock, which may be any.
    age_ms = wall_ms - half.store_timestamp
    named = not request.from_check and props.find(half.properties, _IMMUNITY) is not None
    if named and age_ms > immunity_ms(half.properties, timeout_ms):
        # The producer itself named the time after which it wants to be asked.
        return Refusal(
            ResponseCode.ILLEGAL_OPERATION, "the time to end the transaction unasked is over"
        )
    group = props.find(half.properties, b"PGROUP") or b""
    if group.decode("utf-8", "replace") != request.producer_group:
        return Refusal(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    if half.queue_offset != request.queue_offset:
        return Refusal(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    if real_place(half.properties) is None:
        return Refusal(ResponseCode.SYSTEM_ERROR, "the half message does not say where it belongs")
    return None


def committed_message(half: Record) -> Message:
    """The message that consumers get.

    It keeps TRAN_MSG: Java's consumers take the transaction id from there.
    """
    place = real_place(half.properties)
    topic, queue_id = place if place is not None else (half.topic, half.queue_id)
    return half.message()._replace(
        topic=topic,
        queue_id=queue_id,
        sys_flag=(half.sys_flag & ~TRANSACTION_MASK) | TRANSACTION_COMMIT,
        prepared_transaction_offset=half.physical_offset,
    )


def op_message(half_offsets: list[int], wall_ms: int, store_host: bytes, key: str) -> Message:
    """What says that half messages have ended."""
    body = "".join(f"{offset}," for offset in half_offsets).encode()
    properties = props.encode({"TAGS": "d", "UNIQ_KEY": key})
    return Message(OP_TOPIC, QUEUE, body, properties, wall_ms, store_host, store_host)


def ended_offsets(op: Record) -> list[int]:
    """The half messages that an op message ends."""
    if props.find(op.properties, b"TAGS") != _OP_TAG:
        return []
    parts = op.body.decode("ascii", "replace").split(",")
    numbers = [parse_number(part, INT64_MAX) for part in parts if part]
    return [number for number in numbers if number is not None and number >= 0]


def newer_op_message(half: Record, wall_ms: int, store_host: bytes, key: str) -> Message:
    """The same in the topic of :data:`NEWER_PAIR`, for one half message, which it names by its place."""
    named = props.decode(half.properties)
    pairs = {"TAGS": "d", "UNIQ_KEY": key, "TRANS_OFFSET": str(half.physical_offset)}
    for name, source in (("__transactionId__", "UNIQ_KEY"), ("REAL_TOPIC", "REAL_TOPIC")):
        if source in named:
            pairs[name] = named[source]
    return Message(
        NEWER_PAIR.op, QUEUE, b"\0", props.encode(pairs), wall_ms, store_host, store_host
    )


def ended_place(op: Record) -> int | None:
    """Where the half message is that such an op message ends; None for none."""
    if props.find(op.properties, b"TAGS") != _OP_TAG:
        return None
    return props.find_integer(op.properties, _ENDED_PLACE)


# -- request 39: asking


def immunity_ms(properties: bytes, timeout_ms: int) -> int:
    """How long after its birth a half message is not asked about."""
    seconds = props.find_integer(properties, _IMMUNITY)
    return timeout_ms if seconds is None else seconds * 1000


def check_times(properties: bytes) -> int:
    """How often it was asked about."""
    return props.find_integer(properties, _CHECK_TIMES) or 0


def renewed_half(half: Record) -> Message:
    """The half message with one more question counted, to be stored anew.

    Ends of the first one count for it as long as its offset is among the properties.
    """
    message = half.message()
    properties = props.put(
        message.properties, _CHECK_TIMES, b"%d" % (check_times(message.properties) + 1)
    )
    if props.find(properties, _PREPARED_OFFSET) is None:
        properties = props.put(properties, _PREPARED_OFFSET, b"%d" % half.queue_offset)
    return message._replace(properties=properties, sys_flag=half.sys_flag & ~TRANSACTION_MASK)


def first_offset(half: Record) -> int:
    """Where the half message stood before it was renewed."""
    value = props.find_integer(half.properties, _PREPARED_OFFSET)
    return half.queue_offset if value is None else value


def expired_message(half: Record) -> Message:
    """Asked too often, or too old: it goes where people look."""
    return half.message()._replace(topic=EXPIRED_TOPIC, queue_id=QUEUE)
