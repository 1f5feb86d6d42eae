"""The log of a broker in DLedger mode: its entries, and its messages as records of RocketMQ's own log.

Each message is an entry of Raft, 48 bytes before the record. The record knows itself at the place
behind those bytes, so in a log without them every record has another physical offset; queues and
their offsets stay as they are.

Source: DLedger 0.3 as observed in the files of brokers of 5.3.3 (`enableDLegerCommitLog=true`).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid, StoreDamaged
from rmqha.store import properties as props
from rmqha.store.record import BLANK_SIZE, check_record, write_blank

HEAD = struct.Struct(">iiqqqiiii")
"""Magic, size with this head, index, term, position, channel, two CRCs that stay 0, size of the body."""
MAGIC = 1
MAGIC_BLANK = -1
BEGIN = 0
"""Where the converted log begins."""
NO_PLACE = -1
"""A physical offset below every log's begin."""

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_PHYSICAL_AT = 28
_PREPARED_BEFORE_BODY = 12
SAMPLE_BYTES = 4 << 20
"""Of so much of the old log one place is remembered for good; what lies between is walked again."""
PARTS_KEPT = 32
"""So many such parts are known with all places, which takes some 100 bytes a message."""


class Entry(Struct, frozen=True):
    """An entry of the log.

    Attributes:
        index, term: of Raft.
        position: of its head, in the whole log.
        size: of its body, in bytes.
    """

    index: int
    term: int
    position: int
    size: int

    @property
    def body(self) -> int:
        """Where its body begins, which the record in it takes for its physical offset."""
        return self.position + HEAD.size


class EntryWalk:
    """Goes through the files of a log, the oldest first.

    Attributes:
        last: the newest entry that was passed; None before the first one.
        end: why the log ends where it does; empty as long as it goes on.
    """

    def __init__(self) -> None:
        self.last: Entry | None = None
        self.end = ""

    def entries(self, view: memoryview, start: int, at: int = 0) -> Iterator[Entry]:
        """The entries of a file from ``at`` on; it is the log's last file when ``end`` is set then.

        An entry that does not follow the one before ends the log: DLedger writes over what it has
        cut off, and bytes of that may be left behind.
        """
        while len(view) - at >= HEAD.size:
            magic, size, index, term, position, _, _, _, body = HEAD.unpack_from(view, at)
            if magic == MAGIC_BLANK:
                return
            self.end = self._why_not(magic, size, index, term, position, body, start + at)
            if not self.end and size > len(view) - at:
                self.end = f"entry {index} has {size} bytes, {len(view) - at} are left in the file"
            if self.end:
                return
            self.last = Entry(index, term, position, body)
            yield self.last
            at += size

    def _why_not(
        self, magic: int, size: int, index: int, term: int, position: int, body: int, here: int
    ) -> str:
        if magic != MAGIC:
            return "nothing was written there" if not magic else f"unknown magic {magic}"
        if position != here:
            return f"the entry says that its position is {position}"
        if body < 0 or size != HEAD.size + body:
            return f"an entry of {size} bytes with a body of {body}"
        if self.last is not None and (index != self.last.index + 1 or term < self.last.term):
            return f"entry {index} of term {term} behind {self.last.index} of {self.last.term}"
        return ""


class Place(NamedTuple):
    """Where a record goes.

    Attributes:
        offset: its physical offset.
        blank: bytes of the file before that stay free, because it does not fit there.
    """

    offset: int
    blank: int


def place(end: int, size: int, file_size: int) -> Place:
    """Where a record of ``size`` bytes goes behind ``end``, in files of ``file_size`` bytes.

    Raises:
        ConfigInvalid: it fits into no file.
    """
    left = file_size - end % file_size
    if size + BLANK_SIZE <= left:
        return Place(end, 0)
    if size + BLANK_SIZE > file_size:
        raise ConfigInvalid(f"a record of {size} bytes does not fit into files of {file_size}")
    return Place(end + left, left)


Walked = Callable[[int], Iterator[Entry]]
"""The entries of the old log again, from one whose position is given."""


class NewOffsets:
    """Where the records of the old log are in the new one.

    Records name others by physical offset: a message that was committed names its half message,
    and Java's log of timers the messages that wait.

    Args:
        file_size: of the new log's files.
        again: walks the old log once more.
    """

    def __init__(self, file_size: int, again: Walked) -> None:
        self._file_size = file_size
        self._again = again
        self._positions: list[int] = []
        self._ends: list[int] = []
        self._parts: OrderedDict[int, dict[int, int]] = OrderedDict()
        self._old_end = self._end = BEGIN

    def passed(self, entry: Entry, end: int) -> None:
        """An entry is converted; the new log ended at ``end`` before it."""
        if not self._positions or entry.position >= self._positions[-1] + SAMPLE_BYTES:
            self._positions.append(entry.position)
            self._ends.append(end)
            self._keep(len(self._positions) - 1, {})
        offset = place(end, entry.size, self._file_size).offset
        self._parts[len(self._positions) - 1][entry.body] = offset
        self._old_end, self._end = entry.body + entry.size, offset + entry.size

    def find(self, old: int) -> int | None:
        """The new physical offset of the record that was at ``old``; None where there is none.

        What was converted last is known, as most half messages are when their transaction ends; an
        older part of the log is walked again.
        """
        at = bisect_right(self._positions, old) - 1
        if at < 0:
            return None
        if at not in self._parts:
            self._keep(at, self._walk(at))
        return self._parts[at].get(old)

    def nowhere(self, old: int) -> int:
        """What names no record, for one that was at ``old`` and was not taken; in the order of the log.

        Raises:
            StoreDamaged: it would be between the first and the last one that were.
        """
        if not self._positions or old < self._positions[0]:
            return NO_PLACE
        if old < self._old_end:
            raise StoreDamaged(f"a message is named at {old}, where none is")
        return self._end

    def _keep(self, at: int, part: dict[int, int]) -> None:
        self._parts[at] = part
        if len(self._parts) > PARTS_KEPT:
            # Never the newest part, which still grows.
            newest = len(self._positions) - 1
            del self._parts[next(one for one in self._parts if one not in (at, newest))]

    def _walk(self, at: int) -> dict[int, int]:
        """The new offsets of a part's records, by the old ones."""
        found: dict[int, int] = {}
        end, position = self._ends[at], self._positions[at]
        for entry in self._again(position):
            if entry.position >= self._positions[at + 1]:
                break
            offset = place(end, entry.size, self._file_size).offset
            found[entry.body] = offset
            end = offset + entry.size
        return found


def converted(body: memoryview, entry: Entry, offset: int, offsets: NewOffsets) -> bytearray:
    """The record of an entry, for the place ``offset`` of a log of RocketMQ's own form.

    Raises:
        StoreDamaged: the entry is no whole record.
    """
    head = check_record(
        body, 0, len(body), entry.body, check_crc=True, verify_property_crc=True
    )  # fmt: skip
    if head.size != len(body):
        reason = head.reason or f"its record has {head.size} bytes of {len(body)}"
        raise StoreDamaged(f"entry {entry.index} at {entry.position}: {reason}")
    record = bytearray(body)
    _LONG.pack_into(record, _PHYSICAL_AT, offset)
    at = head.body_at - _PREPARED_BEFORE_BODY
    (prepared,) = _LONG.unpack_from(record, at)
    if prepared:
        # A half message that retention took is nowhere any more.
        _LONG.pack_into(record, at, offsets.find(prepared) or 0)
    if props.has_crc(record, len(record)):
        props.fill_crc(record, 0, len(record))
    return record


def blank(left: int) -> bytes:
    """What stands at the end of a file of which ``left`` bytes stay free."""
    buffer = bytearray(BLANK_SIZE)
    write_blank(buffer, 0, left)
    return bytes(buffer)


TIMER_UNIT = struct.Struct(">iqiqiqiiq")
"""A message that waits, in Java's ``timerlog``: its third is a magic number, the sixth and seventh say
where it is and how long, as observed."""
_TIMER_OFFSET_AT = 28
_TIMER_SIZE_AT = 36
_TIMER_FLAGS = 0xF
"""Bits that a unit's magic number can have; what fills a file up has others."""


def converted_timers(units: bytearray, offsets: NewOffsets) -> int:
    """Give the units of a file of Java's ``timerlog`` their new physical offsets, in place.

    Units stay when their time has come: a whole file goes once retention has taken the message that
    its last unit names, so a healthy log names messages which are gone. Slots of the wheel lead through
    such units to others, so they keep their places; a message of no bytes is one that Java passes over.
    The last unit of a file keeps its rank among offsets, by which Java deletes the file.

    Returns:
        How many name a message that the new log does not have.

    Raises:
        StoreDamaged: a unit names no message, though the new log has those around it.
    """
    nowhere, at = 0, 0
    while at + TIMER_UNIT.size <= len(units):
        size, _, magic, _, _, old, *_ = TIMER_UNIT.unpack_from(units, at)
        if size != TIMER_UNIT.size or magic & ~_TIMER_FLAGS:
            break
        new = offsets.find(old)
        if new is None:
            new = offsets.nowhere(old)
            _INT.pack_into(units, at + _TIMER_SIZE_AT, 0)
            nowhere += 1
        _LONG.pack_into(units, at + _TIMER_OFFSET_AT, new)
        at += size
    return nowhere
