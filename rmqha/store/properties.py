"""The property string at a record's end: encode, decode, search, and the property CRC.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.base.errors import MessageIllegal
from rmqha.store.crc import crc32

NAME_END = "\x01"
PAIR_END = "\x02"
TAGS = "TAGS"
KEYS = "KEYS"
UNIQ_KEY = "UNIQ_KEY"
DELAY = "DELAY"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"

CRC_NAME = b"__CRC32#\x01"
_CRC_DIGITS = 10
CRC_SIZE = len(CRC_NAME) + _CRC_DIGITS + 1
_CRC_MASK = 0x7FFFFFFF
_PAIR_SIZE_MIN = 3


def encode(pairs: Mapping[str, str]) -> bytes:
    """Encode properties in their order.

    Raises:
        MessageIllegal: a name or value holds a separator, or is no text that UTF-8 can carry.
    """
    for name, value in pairs.items():
        for text in (name, value):
            if NAME_END in text or PAIR_END in text:
                raise MessageIllegal(f"property {name!r} holds a separator")
    text = "".join(f"{name}{NAME_END}{value}{PAIR_END}" for name, value in pairs.items())
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise MessageIllegal(f"properties are not text: {error}") from error


def decode(data: bytes) -> dict[str, str]:
    """Decode properties as Java does: the last separator may miss, broken pairs are left out."""
    found: dict[str, str] = {}
    for pair in data.decode("utf-8", "replace").split(PAIR_END):
        if len(pair) < _PAIR_SIZE_MIN:
            continue
        name, separator, value = pair.partition(NAME_END)
        if separator and name and value:
            found[name] = value
    return found


def find(data: bytes, name: bytes) -> bytes | None:
    """The value of one property, without decoding the others; the last one wins."""
    needle = name + b"\x01"
    at = data.rfind(needle)
    while at > 0 and data[at - 1] != 2:
        at = data.rfind(needle, 0, at)
    if at < 0:
        return None
    start = at + len(needle)
    end = data.find(b"\x02", start)
    value = data[start:] if end < 0 else data[start:end]
    return value or None


def by_name(data: bytes) -> dict[bytes, bytes]:
    """All values by their names, each as :func:`find` gives it; those without a value are not there.

    For whoever asks for several of them: the bytes are read once.
    """
    values: dict[bytes, bytes] = {}
    for pair in data.split(b"\x02"):
        name, separator, value = pair.partition(b"\x01")
        if value:
            values[name] = value
        elif separator:
            values.pop(name, None)
    return values


def find_integer(data: bytes, name: bytes) -> int | None:
    """The value of a property that is a number; None when it is missing or none."""
    value = find(data, name)
    if value is None or not value.isdigit() or len(value) > 18:
        return None
    return int(value)


def drop(data: bytes, name: bytes) -> bytes:
    """The properties without one of them, however often it is there."""
    needle = name + b"\x01"
    kept: list[bytes] = []
    begin, at = 0, data.find(needle)
    while at >= 0:
        if at and data[at - 1] != 2:
            at = data.find(needle, at + 1)
            continue
        kept.append(data[begin:at])
        end = data.find(b"\x02", at)
        begin = len(data) if end < 0 else end + 1
        at = data.find(needle, begin)
    return b"".join((*kept, data[begin:])) if kept else data


def put(data: bytes, name: bytes, value: bytes) -> bytes:
    """The properties with one of them set; it comes last."""
    return joined(drop(data, name), name + b"\x01" + value + b"\x02")


def put_all(data: bytes, pairs: Mapping[bytes, bytes]) -> bytes:
    """The properties with several of them set; they come last, in their order."""
    for name in pairs:
        data = drop(data, name)
    return joined(data, b"".join(b"%b\x01%b\x02" % pair for pair in pairs.items()))


def joined(data: bytes, more: bytes) -> bytes:
    """Two property strings as one; where both name a property, the second counts."""
    if not data or not more or data[-1] == 2:
        return data + more
    return data + b"\x02" + more


def without_crc(data: bytes) -> bytes:
    """The properties of a stored record as they were before the store put its CRC behind them."""
    at = len(data) - CRC_SIZE
    if at >= 0 and data[at : at + len(CRC_NAME)] == CRC_NAME:
        return data[:at]
    return data


def java_hash(text: str) -> int:
    """Java's ``String.hashCode``: 31 h + UTF-16 unit, wrapping at 32 bits, signed."""
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def crc_growth(properties: bytes) -> int:
    """Bytes that the property CRC adds."""
    return CRC_SIZE + (1 if properties and properties[-1] != 2 else 0)


def with_crc_room(properties: bytes) -> bytes:
    """The properties with a place for the CRC, its digits zero."""
    joint = b"\x02" if properties and properties[-1] != 2 else b""
    return properties + joint + CRC_NAME + b"0" * _CRC_DIGITS + b"\x02"


def _digits(data: memoryview | bytes | bytearray, position: int, size: int) -> bytes:
    value = crc32(data[position : position + size - CRC_SIZE]) & _CRC_MASK
    # Least significant digit first.
    return f"{value:0{_CRC_DIGITS}d}".encode()[::-1]


def fill_crc(buffer: memoryview | bytearray, position: int, size: int) -> None:
    """Write the CRC of a record that is otherwise complete."""
    stop = position + size - 1
    buffer[stop - _CRC_DIGITS : stop] = _digits(buffer, position, size)


def has_crc(buffer: memoryview | bytes | bytearray, stop: int) -> bool:
    """Whether the record that ends at ``stop`` carries a property CRC."""
    at = stop - CRC_SIZE
    return at >= 0 and buffer[at : at + len(CRC_NAME)] == CRC_NAME


def crc_matches(buffer: memoryview | bytes | bytearray, position: int, size: int) -> bool:
    """Whether a record that carries a property CRC is as it was written."""
    stop = position + size - 1
    return bytes(buffer[stop - _CRC_DIGITS : stop]) == _digits(buffer, position, size)
