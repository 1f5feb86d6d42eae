"""Whether records are what was written, before anybody is shown them: their CRC, and their form.

The CRC covers a record's body; all of it where the record carries one of its own
(``enabledAppendPropCRC``). What flips elsewhere is found by comparing replicas only.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqha.store.record import check_record
from rmqha.store.scan import scan

COUNT_MAX = 1 << 30


class Whole(NamedTuple):
    """How far whole records go.

    Attributes:
        records: whole ones that were passed.
        position: where the first that is not whole stands, or the end.
        reason: what is wrong there; empty for nothing.
    """

    records: int
    position: int
    reason: str


def pass_whole(buffer: memoryview, position: int, end: int, base: int) -> Whole:
    """Pass whole records of one file; ``end`` is the end of one, or a blank stands before it.

    Args:
        base: physical offset of the buffer's first byte.
    """
    records = 0
    while position < end:
        run = scan(
            buffer, position, end, base, check_crc=True, property_crc=True, count_max=COUNT_MAX
        )
        records, position = records + run.records, run.position
        if position >= end:
            break
        head = check_record(
            buffer, position, end, base + position, check_crc=True, verify_property_crc=True
        )
        if head.size < 0:
            return Whole(records, position, head.reason)
        if not head.size:
            return Whole(records, end, "")
        records, position = records + 1, position + head.size
    return Whole(records, position, "")
