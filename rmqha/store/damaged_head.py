"""Heads of records that can never become whole, told from those whose rest is still on its way."""

from __future__ import annotations

import struct

from rmqha.store.record import (
    BLANK_SIZE,
    BORN_HOST_V6,
    HEADROOM,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_SIZE,
    STORE_HOST_V6,
)

_PREFIX = struct.Struct(">iI")
_INT = struct.Struct(">i")
_SYS_FLAG_AT, _BODY_SIZE_AT, _V6_LONGER = 36, 84, 12
_FIXED_SIZE = _BODY_SIZE_AT + 2 * _V6_LONGER + _INT.size
"""Bytes of the longest head up to and with the size of the body."""


def head_damage(buffer: memoryview, position: int, written: int, left: int) -> str:
    """Why what begins at ``position`` can never be a record; empty while it may be one, or a blank.

    What may still grow into one is no damage: of a record that is on its way to a slave nobody knows
    more than its first bytes.

    Args:
        written: bytes that are there from ``position`` on.
        left: bytes of the file from there on.
    """
    if written < BLANK_SIZE:
        return ""
    size, magic = _PREFIX.unpack_from(buffer, position)
    if magic == MAGIC_BLANK:
        return ""
    if magic not in (MAGIC_V1, MAGIC_V2):
        return f"unknown magic {magic:#010x}"
    # A master may take longer messages than this broker does, but leaves room for a blank.
    most = left - BLANK_SIZE
    has_all = min(written, most) >= _FIXED_SIZE
    body_size = _body_size(buffer, position) if has_all else size
    if not MIN_SIZE <= size <= most or not 0 <= size - body_size <= 2 * HEADROOM:
        return f"record of {size} bytes with a body of {body_size}, {most} left in the file"
    return ""


def _body_size(buffer: memoryview, position: int) -> int:
    """What the head of a record at ``position`` says of its body."""
    (sys_flag,) = _INT.unpack_from(buffer, position + _SYS_FLAG_AT)
    longer = bool(sys_flag & BORN_HOST_V6) + bool(sys_flag & STORE_HOST_V6)
    (size,) = _INT.unpack_from(buffer, position + _BODY_SIZE_AT + longer * _V6_LONGER)
    return int(size)
