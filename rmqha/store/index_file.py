"""Index files as bytes: physical offsets of the messages that have a key, in Java's format.

Offsets are hints: the record found there must be compared with the key, since only hashes are kept
and nothing is cut with the log.

Source: RocketMQ's protocol as observed; IndexFile, IndexHeader and IndexService of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import mul
from typing import NamedTuple

from rmqha.store.properties import find, java_hash
from rmqha.store.record import (
    BORN_HOST_V6,
    MAGIC_V1,
    MIN_SIZE,
    STORE_HOST_V6,
    TRANSACTION_MASK,
)

_HEADER = struct.Struct(">qqqqii")
_SLOT = struct.Struct(">i")
_UNIT = struct.Struct(">iqii")
_pack_unit, _pack_slot, _unpack_slot = _UNIT.pack, _SLOT.pack_into, _SLOT.unpack_from
# total size, magic, physical offset, sys flag, store timestamp, body length
_RECORD_HEAD = struct.Struct(">iI20xqi16xq20xi")
_UNUSUAL = TRANSACTION_MASK | BORN_HOST_V6 | STORE_HOST_V6
_UNIQUE, _KEYS = b"UNIQ_KEY\x01", b"KEYS\x01"
_PAIR_END = 2
HEADER_SIZE = _HEADER.size
UNIT_SIZE = _UNIT.size
SLOT_SIZE = _SLOT.size
PAGE_SIZE = 4096
INT_MIN = -(1 << 31)
INT_MAX = (1 << 31) - 1


KeyPlace = tuple[int, int, int]
"""The hash of a key, and the physical offset and store timestamp of its message."""


class IndexHeader(NamedTuple):
    """The first 40 bytes; timestamps are ms."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    used_slot_count: int
    index_count: int


class IndexUnit(NamedTuple):
    """One key of one message; ``previous`` is the unit before it in its slot, 0 for none."""

    key_hash: int
    physical_offset: int
    seconds: int
    previous: int


def key_hash(topic: str, key: str) -> int:
    """The hash of ``topic#key`` without its sign."""
    value = java_hash(f"{topic}#{key}")
    return 0 if value == INT_MIN else abs(value)


class IndexFile:
    """A reader of one file's bytes; wrong bytes give wrong hints, never an endless walk.

    Args:
        buffer: the whole file.
        slots: maxHashSlotNum that it was written with.
        need: told from where to where it looks, before it does; may raise.
    """

    def __init__(
        self,
        buffer: memoryview | bytes,
        slots: int,
        need: Callable[[int, int], object] = lambda low, high: None,
    ) -> None:
        self._buffer = buffer
        self._slots = slots
        self._need = need
        self._units_at = HEADER_SIZE + _SLOT.size * slots

    @property
    def header(self) -> IndexHeader:
        """The file's header as it stands now."""
        return IndexHeader._make(_HEADER.unpack_from(self._buffer, 0))

    def unit(self, number: int) -> IndexUnit | None:
        """Unit 1 and up; None outside of the file."""
        at = self._units_at + UNIT_SIZE * number
        if number < 1 or at + UNIT_SIZE > len(self._buffer):
            return None
        self._need(at, at + UNIT_SIZE)
        return IndexUnit._make(_UNIT.unpack_from(self._buffer, at))

    def find(self, topic: str, key: str, *, begin_ms: int, end_ms: int, limit: int) -> list[int]:
        """Physical offsets, newest first, stored within [begin_ms, end_ms], at most ``limit``."""
        wanted = key_hash(topic, key)
        self._need(0, HEADER_SIZE)
        header = self.header
        slot_at = HEADER_SIZE + _SLOT.size * (wanted % self._slots)
        self._need(slot_at, slot_at + _SLOT.size)
        (number,) = _SLOT.unpack_from(self._buffer, slot_at)
        found: list[int] = []
        while len(found) < limit and 0 < number < header.index_count:
            unit = self.unit(number)
            if unit is None:
                break
            stored = header.begin_timestamp + unit.seconds * 1_000
            # Seconds are rounded down.
            fits = unit.key_hash == wanted and begin_ms < stored + 1_000 and stored <= end_ms
            # A message whose UNIQ_KEY is also one of its KEYS has two units.
            if fits and unit.physical_offset not in found:
                found.append(unit.physical_offset)
            # Chains lead to older units; anything else is damage.
            if unit.previous >= number:
                break
            number = unit.previous
        return found


class IndexWriter:
    """A writer of one file's bytes; readers see a key once :meth:`publish` was called.

    After a crash of the process the file may hold units that its header does not count. Writing the
    same records again puts the same units into the same places, so nothing needs repair.

    Args:
        buffer: the whole file; a new one is all zeros.
        slots, units: maxHashSlotNum and maxIndexNum.
    """

    def __init__(self, buffer: memoryview | bytearray, slots: int, units: int) -> None:
        self._buffer = buffer
        self._slots = slots
        self._units = units
        self._units_at = HEADER_SIZE + _SLOT.size * slots
        header = IndexHeader._make(_HEADER.unpack_from(buffer, 0))
        self.begin_timestamp, self.end_timestamp = header.begin_timestamp, header.end_timestamp
        self.begin_physical_offset = header.begin_physical_offset
        self.end_physical_offset = header.end_physical_offset
        self._used, self._count = header.used_slot_count, header.index_count
        self._count = min(max(self._count, 1), units)

    @property
    def is_full(self) -> bool:
        """Whether no further key fits."""
        return self._count >= self._units

    @property
    def is_empty(self) -> bool:
        """Whether no key was ever put."""
        return self._count <= 1

    def continue_from(self, timestamp: int, physical_offset: int) -> None:
        """Begin a file where the one before it ended, as Java does."""
        self.begin_timestamp = self.end_timestamp = timestamp
        self.begin_physical_offset = self.end_physical_offset = physical_offset

    def put(self, keys: Sequence[KeyPlace]) -> int:
        """Put keys of messages, in the order of the log; returns how many fitted."""
        buffer, slots, number = self._buffer, self._slots, self._count
        keys = keys[: self._units - number]
        if not keys:
            return 0
        if number == 1:
            _, self.begin_physical_offset, self.begin_timestamp = keys[0]
        begin = self.begin_timestamp
        units: list[bytes] = []
        newest: dict[int, int] = {}
        for value, physical_offset, timestamp in keys:
            slot_at = HEADER_SIZE + _SLOT.size * (value % slots)
            previous = newest.get(slot_at)
            if previous is None:
                (previous,) = _unpack_slot(buffer, slot_at)
                if not 0 <= previous < number:
                    previous = self._counted(previous, number)
                if not previous:
                    self._used += 1
            newest[slot_at] = number
            seconds = (timestamp - begin) // 1_000
            if not 0 <= seconds <= INT_MAX:
                seconds = min(max(seconds, 0), INT_MAX)
            units.append(_pack_unit(value, physical_offset, seconds, previous))
            number += 1
        at = self._units_at + UNIT_SIZE * self._count
        buffer[at : at + UNIT_SIZE * len(units)] = b"".join(units)
        # A slot never names a unit that is not there, whenever the process is killed.
        for slot_at, newest_number in newest.items():
            _pack_slot(buffer, slot_at, newest_number)
        self._count = number
        _, self.end_physical_offset, self.end_timestamp = keys[-1]
        return len(keys)

    def places(self, keys: Sequence[KeyPlace]) -> list[tuple[int, int]]:
        """Which bytes :meth:`put` would change for these keys, page by page, and those of the header."""
        at = self._units_at + UNIT_SIZE * self._count
        pages = {(HEADER_SIZE + _SLOT.size * (key[0] % self._slots)) // PAGE_SIZE for key in keys}
        low, high = at // PAGE_SIZE, (at + UNIT_SIZE * len(keys)) // PAGE_SIZE
        pages.update((0, *range(low, high + 1)))
        size = len(self._buffer)
        return [
            (page * PAGE_SIZE, min(size, (page + 1) * PAGE_SIZE))
            for page in sorted(pages)
            if page * PAGE_SIZE < size
        ]

    def _counted(self, number: int, limit: int) -> int:
        """The newest unit of a chain below ``limit``; the ones above were never published."""
        while number >= limit:
            at = self._units_at + UNIT_SIZE * number
            if at + UNIT_SIZE > len(self._buffer):
                return 0
            previous = _UNIT.unpack_from(self._buffer, at)[3]
            if previous >= number:
                return 0
            number = previous
        return max(number, 0)

    def publish(self) -> None:
        """Write the header."""
        _HEADER.pack_into(
            self._buffer, 0, self.begin_timestamp, self.end_timestamp, self.begin_physical_offset,
            self.end_physical_offset, self._used, self._count,
        )  # fmt: skip


KEY_LENGTH_QUICK = 64
UNIQUE_KEY_SIZE, _PRODUCER_SIZE, _MOMENT_SIZE = 32, 20, 28
"""Of the keys that clients on IPv4 hosts make: address, process and class loader, then the time in
ms, then a number of four digits."""

_FACTORS = tuple(pow(31, count, 1 << 32) for count in range(KEY_LENGTH_QUICK + 1))
_POWERS = tuple((factor, _FACTORS[:size][::-1]) for size, factor in enumerate(_FACTORS))
"""By the length of a key: what all before it is multiplied by, and each of its characters."""


def file_size(slots: int, units: int) -> int:
    """Bytes of a file."""
    return HEADER_SIZE + _SLOT.size * slots + UNIT_SIZE * units


def gather_keys(
    buffer: memoryview, position: int, end: int, base: int, *, count_max: int
) -> tuple[int, list[KeyPlace]]:
    """The keys of the records from ``position`` on, as far as these are like nearly all.

    They are known to be whole. :func:`key_hashes` is for any other record; a test holds the two
    equal.

    Args:
        end: where the last whole record ends.
        base: physical offset of the buffer's first byte.
        count_max: records to pass at most.

    Returns:
        Where the first record stands that was not passed, and the keys.
    """
    found: list[KeyPlace] = []
    for _ in range(count_max):
        if end - position < MIN_SIZE:
            break
        size, magic, offset, sys_flag, timestamp, body_size = _RECORD_HEAD.unpack_from(
            buffer, position
        )
        if magic != MAGIC_V1 or offset != base + position or sys_flag & _UNUSUAL:
            break
        tail = bytes(buffer[position + _RECORD_HEAD.size + body_size : position + size])
        position += size
        topic_end = 1 + tail[0]
        properties_at = topic_end + 2
        at = tail.rfind(_UNIQUE, properties_at)
        stop = tail.find(b"\x02", at)
        usual = at == properties_at or (at > 0 and tail[at - 1] == _PAIR_END)
        if not usual or stop < 0 or _KEYS in tail:
            hashes = key_hashes(tail[1:topic_end], tail[properties_at:])
            found += [(value, offset, timestamp) for value in hashes]
        elif stop > at + len(_UNIQUE):
            prefix = _prefix(tail[1:topic_end])
            found.append((_hash(prefix, tail[at + len(_UNIQUE) : stop]), offset, timestamp))
    return position, found


def key_hashes(topic: bytes, properties: bytes) -> list[int]:
    """Hashes of a message's keys: its UNIQ_KEY, then each of its KEYS."""
    found: list[int] = []
    prefix = _prefix(topic)
    unique = find(properties, b"UNIQ_KEY")
    if unique is not None:
        found.append(_hash(prefix, unique))
    if b"KEYS\x01" in properties:
        keys = find(properties, b"KEYS")
        if keys is not None:
            found += [_hash(prefix, key) for key in keys.split(b" ") if key]
    return found


@lru_cache(maxsize=4_096)
def _prefix(topic: bytes) -> int:
    return java_hash(topic.decode("utf-8", "replace") + "#") & 0xFFFFFFFF


def _hash(prefix: int, key: bytes) -> int:
    """The hash of ``topic#key`` without its sign, from that of ``topic#``."""
    size = len(key)
    if not key.isascii() or size > KEY_LENGTH_QUICK:
        value = prefix
        units = key.decode("utf-8", "replace").encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    elif size == UNIQUE_KEY_SIZE:
        # Every message has such a key. A busy producer makes many in one millisecond.
        start = _hash_of_moment(prefix, key[:_MOMENT_SIZE])
        a, b, c, d = key[_MOMENT_SIZE:]
        value = (start * 923_521 + a * 29_791 + b * 961 + c * 31 + d) & 0xFFFFFFFF
    else:
        value = _polynomial(prefix, key)
    if value & 0x80000000:
        value = (1 << 32) - value
        return 0 if value > INT_MAX else value
    return value


def _polynomial(start: int, key: bytes) -> int:
    """Java's hash of a text that begins with one whose hash is ``start``, all at once: a turn of a
    loop for each of 32 characters was the largest part of a send."""
    factor, powers = _POWERS[len(key)]
    value: int = (start * factor + sum(map(mul, key, powers))) & 0xFFFFFFFF
    return value


_hash_of_start = lru_cache(maxsize=1_024)(_polynomial)


@lru_cache(maxsize=256)
def _hash_of_moment(prefix: int, key: bytes) -> int:
    return _polynomial(_hash_of_start(prefix, key[:_PRODUCER_SIZE]), key[_PRODUCER_SIZE:])
