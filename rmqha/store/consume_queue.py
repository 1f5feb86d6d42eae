"""Consume queues as bytes: units, fillers, and the rules of recovery, cut and minimum.

Both kinds of queue begin each unit with the record's physical offset and size, so the rules are
shared; only the unit's length differs.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from rmqha.base.errors import MessageIllegal
from rmqha.store import properties as props

UNIT = struct.Struct(">qiq")
BATCH_UNIT = struct.Struct(">qiqqqhii")
FILLER_SIZE = 0x7FFFFFFF
FILLER = UNIT.pack(0, FILLER_SIZE, 0)
SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"
UNKNOWN_LEVEL_MS = 1_000
NOT_COMPACTED = -1
EXT_ADDRESSES_END = -(1 << 31)
"""A code below is none, but where a file of Java's has it (``enableConsumeQueueExt``): see the record."""
BATCH_SIZE_MAX = 32_767
"""Messages of one unit of a batch consume queue: its field has 16 bits."""
FOLDER_NAME_MAX = 255
"""Bytes; file systems take no longer names."""
FIRST_PRINTABLE = 0x20
NOT_IN_NAMES = b"/\\\x7f"

_PLACE = struct.Struct(">qi")
_PADDED = {UNIT.size: struct.Struct(">qi8x"), BATCH_UNIT.size: struct.Struct(">qi34x")}


class Unit(NamedTuple):
    """One consume-queue unit."""

    physical_offset: int
    size: int
    tags_code: int


class BatchUnit(NamedTuple):
    """One unit of a batch consume queue: a record that holds ``batch_size`` messages."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_offset: int
    batch_size: int
    compacted_offset: int = NOT_COMPACTED
    reserved: int = 0


def name_error(topic: bytes) -> str | None:
    """Why no folder of queues can have this topic's name; None when one can.

    Wider than what a topic may be called: those that brokers make of cluster names hold dots and
    blanks.
    """
    if not 0 < len(topic) <= FOLDER_NAME_MAX:
        return f"a topic of {len(topic)} bytes, not 1 to {FOLDER_NAME_MAX}"
    if topic in (b".", b".."):
        return f"topic {topic!r} would be another folder"
    if any(unit < FIRST_PRINTABLE or unit in NOT_IN_NAMES for unit in topic):
        return f"topic {topic!r} holds a separator or a control character"
    try:
        topic.decode()
    except UnicodeDecodeError:
        return f"topic {topic!r} is no text"
    return None


@lru_cache(maxsize=4096)
def topic_key(topic: str) -> bytes:
    """A topic as records and queues hold it.

    Raises:
        MessageIllegal: no folder of queues can have its name.
    """
    try:
        raw = topic.encode()
    except UnicodeEncodeError as error:
        raise MessageIllegal(f"topic {topic!r} is no text") from error
    error_text = name_error(raw)
    if error_text is not None:
        raise MessageIllegal(error_text)
    return raw


def valid_units(buffer: memoryview, unit_size: int, previous_end: int) -> tuple[int, int]:
    """Count the units from the file's start that are whole.

    A unit is whole while its offset is not negative and its size positive; further, units of one
    queue lie in the log one behind the other, so one that begins before the end of the last is
    what a torn page left.

    Returns:
        The count, and the end in the log of the last one (``previous_end`` when there is none).
    """
    count = 0
    usable = len(buffer) - len(buffer) % unit_size
    for offset, size in _PADDED[unit_size].iter_unpack(buffer[:usable]):
        if size <= 0 or offset < 0:
            break
        if size != FILLER_SIZE:
            if offset < previous_end:
                break
            previous_end = offset + size
        elif offset:
            break
        count += 1
    return count, previous_end


def count_below(buffer: memoryview, unit_size: int, count: int, offset: int) -> int:
    """How many of the first ``count`` units point below ``offset``.

    A filler counts as the unit before it, so that units stay in order around a gap; fillers that
    no unit is before point below everything.
    """
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        unit = last_real(buffer, unit_size, middle + 1, low)
        if unit < low or _PLACE.unpack_from(buffer, unit * unit_size)[0] < offset:
            low = middle + 1
        else:
            high = unit
    return low


def first_live(buffer: memoryview, unit_size: int, count: int, min_offset: int) -> int:
    """Index of the first unit whose record the log still has; ``count`` when there is none."""
    return count_below(buffer, unit_size, count, min_offset)


def last_real(buffer: memoryview, unit_size: int, count: int, low: int = 0) -> int:
    """Index of the last of the first ``count`` units, from ``low`` on, that is no filler.

    Returns:
        An index below ``low`` when there is none.
    """
    index = count - 1
    while index >= low and _PLACE.unpack_from(buffer, index * unit_size)[1] == FILLER_SIZE:
        index -= 1
    return index


def place_of(buffer: memoryview, position: int) -> tuple[int, int]:
    """Physical offset and size of the unit at ``position``."""
    offset, size = _PLACE.unpack_from(buffer, position)
    return offset, size


def places(units: memoryview) -> Iterator[tuple[int, int]]:
    """Physical offset and size of each plain unit."""
    return _PADDED[UNIT.size].iter_unpack(units)


@lru_cache(maxsize=16_384)
def tags_code(tags: bytes) -> int:
    """The tag's Java hash code, sign-extended."""
    return props.java_hash(tags.decode("utf-8", "replace"))


def unit_tags_code(
    topic: bytes, properties: bytes, store_timestamp: int, delays_ms: tuple[int, ...]
) -> int:
    """The third field of a unit: tag hash, or for a delayed message when it is due.

    Args:
        delays_ms: messageDelayLevel as durations; level 1 is the first.
    """
    if topic == SCHEDULE_TOPIC:
        level = props.find_integer(properties, b"DELAY")
        if level is not None and level > 0:
            return store_timestamp + _delay(level, delays_ms)
    tags = props.find(properties, b"TAGS")
    return 0 if tags is None else tags_code(tags)


def _delay(level: int, delays_ms: tuple[int, ...]) -> int:
    if not delays_ms:
        return UNKNOWN_LEVEL_MS
    return delays_ms[min(level, len(delays_ms)) - 1]
