"""Finding records in a part of a commit-log file: from header to header, and back into step.

A *run* is a row of records that stand one behind the other. Where no record can begin, a *gap*
begins; it ends where a record is found again that cannot be a body's invention (``splits``).

Source: RocketMQ's protocol as observed: size, magic, ..., the record's own physical offset at 28.
"""

from __future__ import annotations

import struct
from enum import Enum
from itertools import repeat

from msgspec import Struct

from rmqha.pipeline.commitlog.pages import forget
from rmqha.store.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_SIZE

_HEAD = struct.Struct(">iI20xq")
_PLACE = struct.Struct(">iI")
ZEROS = bytes(1 << 20)


class End(Enum):
    """Why a run ended."""

    LIMIT = "limit"
    """At the first record that begins at or behind the limit."""
    BLANK = "blank"
    """At the blank that fills the rest of a file."""
    ZEROS = "zeros"
    """Nothing but zeros follows: the log ends here."""
    DAMAGED = "damaged"
    """No record begins here, but something else does."""


class Run(Struct, frozen=True):
    """Records one behind the other.

    Attributes:
        positions: where each begins in the buffer.
        position: where the run ended.
        end: why.
        reason: what is wrong there, when ``DAMAGED``.
    """

    positions: list[int]
    position: int
    end: End
    reason: str = ""


def walk_headers(buffer: memoryview, position: int, limit: int, base: int, count_max: int) -> Run:
    """Walk from header to header.

    Args:
        buffer: a whole file.
        position: where a record should begin.
        limit: records that begin before it belong to the run.
        base: the file's physical offset.
        count_max: end the run (as by ``LIMIT``) after so many.
    """
    positions: list[int] = []
    add = positions.append
    size = len(buffer)
    last = size - MIN_SIZE
    stop = min(limit, last + 1)
    unpack = _HEAD.unpack_from
    for _ in repeat(None, count_max):
        if position >= stop:
            break
        length, magic, offset = unpack(buffer, position)
        if (
            offset - position != base
            or length < MIN_SIZE
            or (magic != MAGIC_V1 and magic != MAGIC_V2)
        ):
            return _ended(buffer, positions, position, base)
        add(position)
        position += length
    if position > size:
        # The last one says that it goes on behind the file's end.
        return _ended(buffer, positions, positions.pop(), base)
    if last < position < limit and len(positions) < count_max:
        return _short_end(buffer, positions, position)
    return Run(positions, position, End.LIMIT)


def _short_end(buffer: memoryview, positions: list[int], position: int) -> Run:
    """Fewer bytes are left than any record has."""
    if len(buffer) - position >= _PLACE.size:
        length, magic = _PLACE.unpack_from(buffer, position)
        if magic == MAGIC_BLANK and length == len(buffer) - position:
            return Run(positions, position, End.BLANK)
    if is_zeros(buffer, position):
        return Run(positions, position, End.ZEROS)
    return Run(positions, position, End.DAMAGED, "bytes behind the last record")


def _ended(buffer: memoryview, positions: list[int], position: int, base: int) -> Run:
    length, magic, offset = _HEAD.unpack_from(buffer, position)
    left = len(buffer) - position
    if magic == MAGIC_BLANK and length == left:
        return Run(positions, position, End.BLANK)
    if length == 0 and is_zeros(buffer, position):
        return Run(positions, position, End.ZEROS)
    if magic not in (MAGIC_V1, MAGIC_V2):
        reason = f"magic {magic:#010x}"
    elif not MIN_SIZE <= length <= left:
        reason = f"size {length} with {left} bytes left"
    else:
        reason = f"a record that says it stands at {offset}"
    return Run(positions, position, End.DAMAGED, f"{reason} at {base + position}")


def is_zeros(buffer: memoryview, position: int) -> bool:
    """Whether only zeros follow."""
    for start in range(position, len(buffer), len(ZEROS)):
        part = buffer[start : start + len(ZEROS)]
        if part != ZEROS[: len(part)]:
            return False
        forget(buffer, start, start + len(part))
    return True


def candidates(buffer: memoryview, position: int, limit: int, base: int) -> int | None:
    """The first place from ``position`` on, and before ``limit``, that looks like a record.

    Looks only: a body may hold anything, a record for this very place too.
    """
    size = len(buffer)
    while position < limit:
        found = _next_magic(buffer, position + 4, min(limit + 4, size))
        if found is None:
            return None
        start = found - 4
        if start <= size - MIN_SIZE:
            length, _, offset = _HEAD.unpack_from(buffer, start)
            if MIN_SIZE <= length <= size - start and offset == base + start:
                return start
        position = start + 1
    return None


_MAGICS = (MAGIC_V1.to_bytes(4), MAGIC_V2.to_bytes(4))
_COMMON = _MAGICS[0][:3]
_STEP_MIN, _STEP_MAX = 4096, 1 << 20


def _next_magic(buffer: memoryview, start: int, stop: int) -> int | None:
    """Where the next of both magics stands from ``start`` on; it begins before ``stop``."""
    step = _STEP_MIN
    while start < stop:
        part = bytes(buffer[start : min(start + step, stop) + 3])
        at = part.find(_COMMON)
        while at >= 0:
            if part[at : at + 4] in _MAGICS and start + at < stop:
                return start + at
            at = part.find(_COMMON, at + 1)
        forget(buffer, start, start + step)
        start += step
        step = min(2 * step, _STEP_MAX)
    return None
