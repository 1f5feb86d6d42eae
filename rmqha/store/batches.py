"""Several messages in one: the client's batch and the inner batch.

A client batch becomes one record a message; an inner batch stays one record that counts for
INNER_NUM offsets of its queue.

Source: RocketMQ's protocol as observed; the client's framing is the MessageDecoder of RocketMQ's
clients: total size, magic, CRC, flag (i32 each), body (i32 + n), properties (i16 + n).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from rmqha.base.errors import MessageIllegal
from rmqha.store import properties as props
from rmqha.store.record import INNER_BATCH, Message

_HEAD = struct.Struct(">5i")
_PROPERTIES_LENGTH = struct.Struct(">h")
OVERHEAD_BYTES = _HEAD.size + _PROPERTIES_LENGTH.size
"""Of a client batch, for each of its messages."""
INNER_NUM_MAX = 32_767
"""batchSize is an i16 in the queue unit."""


def join_client_batch(messages: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The body of request 320, of bodies with their encoded properties."""
    return b"".join(
        _HEAD.pack(OVERHEAD_BYTES + len(body) + len(properties), 0, 0, 0, len(body))
        + body
        + _PROPERTIES_LENGTH.pack(len(properties))
        + properties
        for body, properties in messages
    )


def split_client_batch(batch: Message, *, messages_max: int) -> list[Message]:
    """The messages that a client packed into one body; each inherits the batch's other fields.

    The batch's own properties are those of no single message and are left out, as Java does since
    #9416: behind each message's own they gave all of them the batch's UNIQ_KEY.

    Raises:
        MessageIllegal: the body is cut off, empty, or holds more than ``messages_max``.
    """
    body, position = batch.body, 0
    has_pop_ck = b"POP_CK\x01" in body
    found: list[Message] = []
    while position < len(body):
        if len(found) >= messages_max:
            raise MessageIllegal(f"batch of more than {messages_max} messages")
        try:
            size, _, _, flag, body_size = _HEAD.unpack_from(body, position)
            at = position + _HEAD.size
            (properties_size,) = _PROPERTIES_LENGTH.unpack_from(body, at + body_size)
        except struct.error as error:
            raise MessageIllegal(f"batch is cut off at byte {position}") from error
        properties_at = at + body_size + _PROPERTIES_LENGTH.size
        end = properties_at + properties_size
        if body_size < 0 or properties_size < 0 or end - position != size or end > len(body):
            raise MessageIllegal(f"batch holds a message of wrong lengths at byte {position}")
        properties = body[properties_at:end]
        found.append(
            batch._replace(
                body=body[at : at + body_size],
                # As of a message by itself: only a broker says where one of pop mode was read.
                properties=props.drop(properties, b"POP_CK") if has_pop_ck else properties,
                flag=flag,
                prepared_transaction_offset=0,
            )
        )
        position = end
    if not found:
        raise MessageIllegal("batch without messages")
    return found


def inner_count(message: Message) -> int:
    """How many queue offsets a message takes: INNER_NUM of an inner batch, else 1.

    Raises:
        MessageIllegal: flag and INNER_NUM do not agree.
    """
    flagged = bool(message.sys_flag & INNER_BATCH)
    if not flagged and b"INNER_NUM\x01" not in message.properties:
        return 1
    number = props.find_integer(message.properties, b"INNER_NUM")
    if not flagged:
        if number is None:
            return 1
        raise MessageIllegal("INNER_NUM without the inner-batch flag")
    if number is None or not 0 < number <= INNER_NUM_MAX:
        raise MessageIllegal(f"an inner batch needs INNER_NUM from 1 to {INNER_NUM_MAX}")
    return number


def with_inner_base(message: Message, base_offset: int) -> Message:
    """The inner batch as it is stored: with the queue offset of its first message."""
    if props.find(message.properties, b"INNER_BASE") is not None:
        raise MessageIllegal("INNER_BASE is the broker's to write")
    joint = b"\x02" if message.properties[-1:] not in (b"", b"\x02") else b""
    added = f"{props.INNER_BASE}\x01{base_offset}\x02".encode()
    return message._replace(properties=message.properties + joint + added)
