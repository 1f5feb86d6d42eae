"""Names and floors of files that are cut from one long row of bytes.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r"[0-9]{20}")


def file_name(start: int) -> str:
    """Twenty digits: the offset of the file's first byte."""
    return f"{start:020d}"


def starts_of(names: Iterable[str]) -> list[int]:
    """The start offsets of the names that are such files, ascending."""
    return sorted(int(name) for name in names if _NAME.fullmatch(name))


def floor(offset: int, size: int) -> int:
    """The start of the file of ``size`` bytes that holds ``offset``."""
    return offset - offset % size


def joined(starts: list[int], size: int) -> int:
    """How many of the ascending ``starts`` follow each other without a gap."""
    count = 0
    while count < len(starts) and starts[count] == starts[0] + count * size:
        count += 1
    return count
