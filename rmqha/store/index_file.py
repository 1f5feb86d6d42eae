"""Index files as bytes: physical offsets of the messages that have a key, in Java's format.

Offsets are hints: the record found there must be compared with the key, since only hashes are kept
and nothing is cut with the log.

Source: protocol fact (ha-store 5.7); IndexFile, IndexHeader and IndexService of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from operator import mul
from typing import NamedTuple

from rmqha.store.properties import find, java_hash

_HEADER = struct.Struct(">qqqqii")
_SLOT = struct.Struct(">i")
_UNIT = struct.Struct(">iqii")
HEADER_SIZE = _HEADER.size
UNIT_SIZE = _UNIT.size
INT_MIN = -(1 << 31)
INT_MAX = (1 << 31) - 1


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
    """

    def __init__(self, buffer: memoryview | bytes, slots: int) -> None:
        self._buffer = buffer
        self._slots = slots
        self._units_at = HEADER_SIZE + _SLOT.size * slots

    @property
    def header(self) -> IndexHeader:
        """The header."""
        return IndexHeader._make(_HEADER.unpack_from(self._buffer, 0))

    def unit(self, number: int) -> IndexUnit | None:
        """Unit 1 and up; None outside of the file."""
        at = self._units_at + UNIT_SIZE * number
        if number < 1 or at + UNIT_SIZE > len(self._buffer):
            return None
        return IndexUnit._make(_UNIT.unpack_from(self._buffer, at))

    def find(self, topic: str, key: str, *, begin_ms: int, end_ms: int, limit: int) -> list[int]:
        """Physical offsets, newest first, stored within [begin_ms, end_ms], at most ``limit``."""
        wanted = key_hash(topic, key)
        header = self.header
        (number,) = _SLOT.unpack_from(
            self._buffer, HEADER_SIZE + _SLOT.size * (wanted % self._slots)
        )
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

    def put(self, hashes: Iterable[int], physical_offset: int, timestamp: int) -> int:
        """Put keys of one message; returns how many fitted."""
        buffer, done = self._buffer, 0
        for value in hashes:
            number = self._count
            if number >= self._units:
                break
            if number == 1:
                self.begin_timestamp, self.begin_physical_offset = timestamp, physical_offset
            slot_at = HEADER_SIZE + _SLOT.size * (value % self._slots)
            (previous,) = _SLOT.unpack_from(buffer, slot_at)
            if not 0 <= previous < number:
                previous = self._counted(previous, number)
            seconds = min(max((timestamp - self.begin_timestamp) // 1_000, 0), INT_MAX)
            at = self._units_at + UNIT_SIZE * number
            _UNIT.pack_into(buffer, at, value, physical_offset, seconds, previous)
            _SLOT.pack_into(buffer, slot_at, number)
            if not previous:
                self._used += 1
            self._count = number + 1
            done += 1
        self.end_physical_offset, self.end_timestamp = physical_offset, timestamp
        return done

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

_POWERS: tuple[tuple[int, ...], ...] = tuple(
    tuple(pow(31, size - 1 - place, 1 << 32) for place in range(size))
    for size in range(KEY_LENGTH_QUICK + 1)
)
"""By the length of a key: what each of its characters is multiplied by."""


def file_size(slots: int, units: int) -> int:
    """Bytes of a file."""
    return HEADER_SIZE + _SLOT.size * slots + UNIT_SIZE * units


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
    if key.isascii() and size <= KEY_LENGTH_QUICK:
        # The polynomial at once: every message has a key of about 32 characters, and a turn of a
        # loop for each of them was the largest part of a send.
        powers = _POWERS[size]
        value = (prefix * powers[0] * 31 + sum(map(mul, key, powers))) if size else prefix
        value &= 0xFFFFFFFF
    else:
        value = prefix
        units = key.decode("utf-8", "replace").encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    if value & 0x80000000:
        value = (1 << 32) - value
        return 0 if value > INT_MAX else value
    return value
