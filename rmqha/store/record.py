"""Commit-log records as bytes: encode a message, check and decode a record. The hot path.

No file, no clock: the caller names queue offset, physical offset and store timestamp.

Source: RocketMQ's protocol as observed; the drawing is ``layout.RECORD``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

from msgspec import Struct

from rmqha.base.errors import MessageIllegal
from rmqha.store import properties as props
from rmqha.store.crc import crc32

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194

COMPRESSED = 0x1
TRANSACTION_MASK = 0xC
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80

BLANK_SIZE = 8
"""Bytes that always stay free at the end of a file, for its blank."""
CRC_MASK = 0x7FFFFFFF
TOPIC_V1_MAX = 127
PROPERTIES_MAX = 32_767
HEADROOM = 65_536
"""A record may be this much larger than maxMessageSize."""

_FIXED = struct.Struct(">iIiiiqqiq")  # up to and including bornTimestamp
_AFTER_HOST = struct.Struct(">q")
_BEFORE_BODY = struct.Struct(">iqi")
_HEAD_V4 = struct.Struct(">iIiiiqqiq8sq8siqi")
_PREFIX = struct.Struct(">iI")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_FIXED_SIZE = _FIXED.size
_PLAIN_SIZE = _HEAD_V4.size + _I16.size
MIN_SIZE = 91
PAGE_BITS = 12
ZEROS = bytes((1 << PAGE_BITS) - 1)
"""Shortest run of zeros in properties that may fill a page, with a zero of their size before it."""
JOINED_MAX = 1 << 16
"""Up to this body one write of a joined record is cheaper than several writes of its parts."""


class Message(NamedTuple):
    """What a producer sent, ready to be stored.

    Attributes:
        topic, queue_id, body, flag, born_timestamp (ms), reconsume_times: as sent.
        properties: encoded, see ``properties.encode``.
        sys_flag: bits of; the host bits are set by the encoder.
        born_host, store_host: packed by :func:`pack_host`, 8 or 20 bytes.
        prepared_transaction_offset: physical offset of the half message, COMMIT and ROLLBACK.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    sys_flag: int = 0
    flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class Head(NamedTuple):
    """A checked record without its contents; positions are indexes into the checked buffer.

    Attributes:
        size: bytes of the record; 0 for an end-of-file blank; -1 when it is damaged.
        offset: physical offset that was checked.
        reason: why it is damaged, else empty.
    """

    size: int
    offset: int
    reason: str = ""
    position: int = 0
    queue_id: int = 0
    queue_offset: int = 0
    sys_flag: int = 0
    store_timestamp: int = 0
    topic: bytes = b""
    body_at: int = 0
    body_size: int = 0
    properties_at: int = 0
    properties_size: int = 0


class Record(NamedTuple):
    """One stored message; the body is a slice of the commit log, not a copy."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    topic: str
    properties: bytes
    view: memoryview

    @property
    def body(self) -> bytes:
        """The body, copied when it is asked for."""
        return bytes(self.view)

    def property_map(self) -> dict[str, str]:
        """The properties, decoded when they are asked for."""
        return props.decode(self.properties)

    @property
    def message_id(self) -> str:
        """The offset message id."""
        return message_id(self.store_host, self.physical_offset)

    def message(self) -> Message:
        """The message that it was made of, to be stored once more."""
        return Message(
            self.topic, self.queue_id, self.body, props.without_crc(self.properties),
            self.born_timestamp, self.born_host, self.store_host, self.sys_flag, self.flag,
            self.reconsume_times, self.prepared_transaction_offset,
        )  # fmt: skip


@lru_cache(maxsize=4096)
def pack_host(host: str, port: int) -> bytes:
    """Pack an IP address and port into 8 (IPv4) or 20 bytes (IPv6).

    Raises:
        MessageIllegal: the host is not an IP address.
    """
    try:
        return ip_address(host).packed + port.to_bytes(4)
    except ValueError as error:
        raise MessageIllegal(f"{host!r} is not an IP address") from error


def unpack_host(packed: bytes) -> tuple[str, int]:
    """Host and port of 8 or 20 bytes."""
    return str(ip_address(packed[:-4])), int.from_bytes(packed[-4:])


def message_id(store_host: bytes, offset: int) -> str:
    """Offset message id: store host and physical offset in upper-case hex."""
    return (store_host + offset.to_bytes(8)).hex().upper()


@lru_cache(maxsize=4096)
def topic_field(topic: str) -> tuple[int, bytes, bytes]:
    """Magic, encoded topic, and the topic with its length before it.

    V2 (a length of two bytes) is used only when the text is longer than 127 characters.

    Raises:
        MessageIllegal: empty, or its UTF-8 does not fit the length field.
    """
    raw = topic.encode()
    if len(topic) > TOPIC_V1_MAX:
        if len(raw) > PROPERTIES_MAX:
            raise MessageIllegal(f"topic of {len(raw)} bytes")
        return MAGIC_V2, raw, len(raw).to_bytes(2) + raw
    if not raw or len(raw) > TOPIC_V1_MAX:
        raise MessageIllegal(f"topic {topic!r} has {len(raw)} bytes, not 1 to {TOPIC_V1_MAX}")
    return MAGIC_V1, raw, len(raw).to_bytes(1) + raw


def encoded_size(message: Message, *, property_crc: bool) -> int:
    """Bytes of the record that :func:`encode_into` will write.

    Raises:
        MessageIllegal: topic or properties do not fit their fields.
    """
    topic, _, body, encoded, _, born_host, store_host, _, _, _, _ = message
    properties = len(encoded)
    if property_crc:
        properties += props.crc_growth(encoded)
    if properties > PROPERTIES_MAX:
        raise MessageIllegal(f"properties of {properties} bytes, at most {PROPERTIES_MAX}")
    if b"\0" in encoded and (encoded[-1] == 0 or ZEROS in encoded):
        # A record must not look like one of which a power cut took a page: see lost_page.
        raise MessageIllegal("properties that end in a zero byte, or hold a page of them")
    hosts = len(born_host) + len(store_host)
    return 74 + hosts + len(body) + len(topic_field(topic)[2]) + properties


def encode_into(
    buffer: memoryview | bytearray,
    position: int,
    message: Message,
    *,
    size: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    property_crc: bool = False,
) -> None:
    """Write a record of ``size`` bytes, as :func:`encoded_size` gave it, at ``position``."""
    (topic, queue_id, body, properties, born_timestamp, born_host, store_host, sys_flag, flag,
     reconsume_times, prepared) = message  # fmt: skip
    magic, _, topic_bytes = topic_field(topic)
    body_size = len(body)
    crc = crc32(body) & CRC_MASK
    sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
    if len(born_host) == 8 and len(store_host) == 8:
        head = _HEAD_V4.pack(
            size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag,
            born_timestamp, born_host, store_timestamp, store_host, reconsume_times, prepared,
            body_size,
        )  # fmt: skip
    else:
        sys_flag |= BORN_HOST_V6 if len(born_host) > 8 else 0
        sys_flag |= STORE_HOST_V6 if len(store_host) > 8 else 0
        head = b"".join((
            _FIXED.pack(size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag,
                        born_timestamp),
            born_host, _AFTER_HOST.pack(store_timestamp), store_host,
            _BEFORE_BODY.pack(reconsume_times, prepared, body_size),
        ))  # fmt: skip
    if property_crc:
        properties = props.with_crc_room(properties)
    tail = (topic_bytes, len(properties).to_bytes(2), properties)
    if body_size <= JOINED_MAX:
        buffer[position : position + size] = b"".join((head, body, *tail))
    else:
        at = position + len(head)
        buffer[position:at] = head
        buffer[at : at + body_size] = body
        buffer[at + body_size : position + size] = b"".join(tail)
    if property_crc:
        props.fill_crc(buffer, position, size)


class Plain(Struct, gc=False):
    """A message like most: IPv4 hosts, no flag of the producer, never retried, of no transaction.

    Attributes:
        key: its queue, as encoded topic and id.
        magic, topic: as :func:`topic_field` gives them, the topic with its size before it.
        properties: encoded, and known to fit.
    """

    key: tuple[bytes, int]
    magic: int
    sys_flag: int
    born_timestamp: int
    body: bytes
    topic: bytes
    properties: bytes


Place = tuple[int, int, int]
"""Where a record stands: its offset, its end and its queue offset."""


def plain_size(message: Plain) -> int:
    """Bytes of the record of such a message."""
    return _PLAIN_SIZE + len(message.body) + len(message.topic) + len(message.properties)


def plain_records(
    messages: Iterable[Plain], next_offsets: dict[tuple[bytes, int], int], *, offset: int,
    end: int, timestamp: int, born_host: bytes, store_host: bytes,
) -> tuple[bytes, list[Place]]:  # fmt: skip
    """What :func:`encode_into` writes for messages like most, one record behind another.

    Args:
        next_offsets: of the queues, those among them that it does not hold; each message takes one.
        offset: of the first record.
        end: the records stop before the first that would pass it.

    Returns:
        The bytes, and where each record stands.
    """
    parts: list[bytes] = []
    places: list[Place] = []
    pack, pack_size = _HEAD_V4.pack, _I16.pack
    for one in messages:
        key, body, topic, properties = one.key, one.body, one.topic, one.properties
        body_size, properties_size = len(body), len(properties)
        size = _PLAIN_SIZE + body_size + len(topic) + properties_size
        stop = offset + size
        if stop > end:
            break
        queue_offset = next_offsets[key]
        next_offsets[key] = queue_offset + 1
        head = pack(
            size, one.magic, crc32(body) & CRC_MASK, key[1], 0, queue_offset, offset,
            one.sys_flag, one.born_timestamp, born_host, timestamp, store_host, 0, 0, body_size,
        )  # fmt: skip
        parts += (head, body, topic, pack_size(properties_size), properties)
        places.append((offset, stop, queue_offset))
        offset = stop
    return b"".join(parts), places


def write_blank(buffer: memoryview | bytearray, position: int, left: int) -> None:
    """Write the end-of-file blank over the ``left`` bytes of a file from ``position`` on."""
    _PREFIX.pack_into(buffer, position, left, MAGIC_BLANK)


def check_record(
    buffer: memoryview | bytes | bytearray,
    position: int,
    end: int,
    offset: int,
    *,
    check_crc: bool,
    verify_property_crc: bool = False,
) -> Head:
    """Check the record at ``position`` of a buffer whose usable bytes end at ``end``.

    It checks magic, lengths, that the record knows itself at ``offset`` (bytes of a cut tail may
    survive in place). When asked, it also checks the CRC of the body. Never raises: any bytes may
    come.

    Returns:
        A Head of size > 0, 0 for a blank, or -1 with the reason.
    """
    if end - position < BLANK_SIZE:
        return Head(-1, offset, f"{end - position} bytes left, too few for a blank")
    size, magic = _PREFIX.unpack_from(buffer, position)
    if magic == MAGIC_BLANK:
        return Head(0, offset, "", position)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return Head(-1, offset, "nothing was written here" if not magic and not size
                    else f"unknown magic 0x{magic:08x}")  # fmt: skip
    if size < MIN_SIZE or size > end - position:
        return Head(-1, offset, f"record of {size} bytes, {end - position} left in the file")
    return _check_parts(buffer, position, size, offset, check_crc, verify_property_crc)


def _check_parts(
    buffer: memoryview | bytes | bytearray,
    position: int,
    size: int,
    offset: int,
    check_crc: bool,
    verify_property_crc: bool,
) -> Head:
    """The rest of :func:`check_record`, for a record whose ``size`` bytes are all there."""
    (_, magic, body_crc, queue_id, _, queue_offset, physical, sys_flag, _) = _FIXED.unpack_from(
        buffer, position
    )
    if physical != offset:
        return Head(-1, offset, f"the record says that its offset is {physical}")
    stop = position + size
    at = position + (68 if sys_flag & BORN_HOST_V6 else 56)
    body_at = at + (44 if sys_flag & STORE_HOST_V6 else 32)
    if body_at + 4 > stop:
        return Head(-1, offset, "its hosts do not fit into it")
    (store_timestamp,) = _AFTER_HOST.unpack_from(buffer, at)
    (body_size,) = _I32.unpack_from(buffer, body_at - 4)
    topic_at = body_at + body_size + (1 if magic == MAGIC_V1 else 2)
    if body_size < 0 or topic_at + 2 > stop:
        return Head(-1, offset, f"body of {body_size} bytes does not fit into it")
    topic_end = topic_at + int.from_bytes(buffer[body_at + body_size : topic_at])
    if topic_end + 2 > stop:
        return Head(-1, offset, "its topic does not fit into it")
    (properties_size,) = _I16.unpack_from(buffer, topic_end)
    if properties_size < 0 or topic_end + 2 + properties_size != stop:
        return Head(-1, offset, f"its parts are not {size} bytes long")
    if check_crc or verify_property_crc:
        whole = verify_property_crc and props.has_crc(buffer, stop)
        if whole and not props.crc_matches(buffer, position, size):
            return Head(-1, offset, "CRC of the record does not match")
        # The CRC of the record covers the body, too.
        checked = check_crc and not whole
        if checked and crc32(buffer[body_at : body_at + body_size]) & CRC_MASK != body_crc:
            return Head(-1, offset, "CRC of the body does not match")
    return Head(
        size, offset, "", position, queue_id, queue_offset, sys_flag, store_timestamp,
        bytes(buffer[topic_at:topic_end]), body_at, body_size, topic_end + 2, properties_size,
    )  # fmt: skip


def lost_page(buffer: memoryview | bytes | bytearray, head: Head) -> str:
    """Why a power cut may have taken a page of a record that is good by its CRC; empty for no reason.

    The CRC covers the body, and texts hold no runs of zeros. But a client may send such, and Java's
    brokers store them: so this is for bytes only of which nobody knows that they were ever durable.
    """
    end = head.position + head.size
    if not head.properties_size:
        end -= 2
    # Not from the body's end: the first byte of a long topic's size is zero.
    topic_at = head.properties_at - 2 - len(head.topic)
    if not buffer[end - 1] or page_missing(buffer, topic_at, end):
        return "a page of its topic and properties was not written"
    return ""


def page_missing(buffer: memoryview | bytes | bytearray, start: int, end: int) -> bool:
    """Whether all that a page has of [start, end) is zero, as where a power cut took that page."""
    if start >> PAGE_BITS == (end - 1) >> PAGE_BITS:
        return False
    while start < end:
        stop = min(end, ((start >> PAGE_BITS) + 1) << PAGE_BITS)
        if not any(buffer[start:stop]):
            return True
        start = stop
    return False


def decode(buffer: memoryview, head: Head) -> Record:
    """Read a whole record that :func:`check_record` found good."""
    position = head.position
    (size, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born) = _FIXED.unpack_from(
        buffer, position
    )
    at = position + _FIXED_SIZE
    born_end = at + (20 if sys_flag & BORN_HOST_V6 else 8)
    store_at = born_end + 8
    reconsume, prepared, _ = _BEFORE_BODY.unpack_from(buffer, head.body_at - 16)
    properties_end = head.properties_at + head.properties_size
    return Record(
        size, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born,
        bytes(buffer[at:born_end]), head.store_timestamp,
        bytes(buffer[store_at : head.body_at - 16]), reconsume, prepared,
        head.topic.decode("utf-8", "replace"),
        bytes(buffer[head.properties_at : properties_end]),
        buffer[head.body_at : head.body_at + head.body_size],
    )  # fmt: skip
