"""Reading Java's index files: physical offsets of the messages that have a key.

rmqha writes none; Java rebuilds a missing one forward. Offsets are hints: the record found there
must be compared with the key, since only hashes are kept and nothing is cut with the log.

Source: protocol fact (ha-store 5.7).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from rmqha.store.properties import java_hash

_HEADER = struct.Struct(">qqqqii")
_SLOT = struct.Struct(">i")
_UNIT = struct.Struct(">iqii")
HEADER_SIZE = _HEADER.size
UNIT_SIZE = _UNIT.size
INT_MIN = -(1 << 31)


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
