"""What a file of a message store holds, a row at a time.

A row is what one record says: names and values in their order, moments in milliseconds since 1970
under names that end in ``timestamp``. A row with ``damage`` says what is wrong there; one with
``end`` says where nothing more is written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from rmqha.store import checkpoint, consume_queue, index_file, record

Row = dict[str, Any]
BODY_SHOWN_MAX = 64
"""Bytes of a body; the rest is told by its length."""


def commit_log(data: memoryview, base: int, begin: int) -> Iterator[Row]:
    """The records of one file of a commit log, from one of them on.

    Behind a damaged one nobody knows where the next one begins: it is the last row.

    Args:
        base: offset of the file's first byte in the log: its name.
        begin: offset in the log where a record begins.
    """
    at = begin - base
    while at < len(data):
        head = record.check_record(data, at, len(data), base + at, check_crc=True)
        if head.size == 0:
            yield {"end": base + at, "why": "a blank fills the rest of the file"}
            return
        if head.size < 0:
            written = any(data[at : at + record.BLANK_SIZE])
            yield {"damage" if written else "end": base + at, "why": head.reason}
            return
        yield _record(record.decode(data, head))
        at += head.size


def _record(one: record.Record) -> Row:
    host, port = record.unpack_host(one.store_host)
    row: Row = {
        "offset": one.physical_offset, "size": one.size, "topic": one.topic,
        "queue": one.queue_id, "queue_offset": one.queue_offset, "message_id": one.message_id,
        "store_timestamp": one.store_timestamp, "born_timestamp": one.born_timestamp,
        "store_host": f"{host}:{port}", "sys_flag": one.sys_flag, "flag": one.flag,
    }  # fmt: skip
    if one.reconsume_times:
        row["reconsume_times"] = one.reconsume_times
    if one.prepared_transaction_offset:
        row["prepared_transaction_offset"] = one.prepared_transaction_offset
    row["properties"] = one.property_map()
    row["body_size"] = len(one.view)
    row["body"] = bytes(one.view[:BODY_SHOWN_MAX]).decode("utf-8", "backslashreplace")
    return row


def consume_queue_units(data: memoryview, base: int, begin: int) -> Iterator[Row]:
    """The units of one file of a consume queue; a damaged one is the last row.

    Args:
        base: byte of the file's first one in the queue: its name.
        begin: number of the first unit that is wanted.
    """
    for number, unit in _units(data, base, begin, consume_queue.UNIT):
        if isinstance(unit, str):
            yield {"damage": number * consume_queue.UNIT.size, "why": unit}
            return
        offset, size, tags_code = unit
        if size == consume_queue.FILLER_SIZE:
            yield {"unit": number, "filler": "the queue began behind it"}
        else:
            yield {"unit": number, "offset": offset, "size": size, "tags_code": tags_code}


def batch_consume_queue_units(data: memoryview, base: int, begin: int) -> Iterator[Row]:
    """The units of one file of a batch consume queue; see :func:`consume_queue_units`."""
    for number, unit in _units(data, base, begin, consume_queue.BATCH_UNIT):
        if isinstance(unit, str):
            yield {"damage": number * consume_queue.BATCH_UNIT.size, "why": unit}
            return
        yield {"unit": number, **consume_queue.BatchUnit._make(unit)._asdict()}


def _units(
    data: memoryview, base: int, begin: int, shape: struct.Struct
) -> Iterator[tuple[int, tuple[int, ...] | str]]:
    """Units by their numbers until the first that was not written; why, of one that is none."""
    first, size = base // shape.size, shape.size
    for at in range(max(0, begin - first) * size, len(data), size):
        number = first + at // size
        if len(data) - at < size:
            yield number, f"{len(data) - at} bytes are no unit, which has {size}"
        elif (unit := shape.unpack_from(data, at))[0] < 0 or unit[1] <= 0:
            if not any(data[at : at + size]):
                return
            yield number, f"no record has {unit[1]} bytes at {unit[0]}"
        else:
            yield number, unit


def index(data: memoryview, slots: int, begin: int) -> Iterator[Row]:
    """The header of an index file, then its units.

    Args:
        slots: ``maxHashSlotNum`` that it was written with.
        begin: number of the first unit that is wanted, from 1.
    """
    if len(data) < index_file.file_size(slots, 0):
        yield {"damage": 0, "why": f"{len(data)} bytes are no index of {slots} slots (--slots)"}
        return
    file = index_file.IndexFile(data, slots)
    header = file.header
    yield header._asdict()
    # The count is that of the next unit: a file that was not written has 0 or 1.
    if header.index_count < 0:
        yield {"damage": 0, "why": f"the header counts {header.index_count} units"}
    for number in range(max(begin, 1), header.index_count):
        unit = file.unit(number)
        if unit is None:
            why = (
                f"the header counts units up to {header.index_count - 1}, and this one is not there"
            )
            yield {"damage": index_file.file_size(slots, number), "why": why}
            return
        row = {"unit": number, **unit._asdict()}
        row["store_timestamp"] = header.begin_timestamp + 1_000 * row.pop("seconds")
        yield row


def checkpoint_row(data: bytes) -> Row:
    """The stamps and offsets of a ``checkpoint``; what Java does not write is left out."""
    if len(data) != checkpoint.SIZE:
        return {
            "damage": 0,
            "why": f"{len(data)} bytes are no checkpoint, which has {checkpoint.SIZE}",
        }
    found = checkpoint.read(data)
    row: Row = {name: getattr(found, name) for name in found.__struct_fields__}
    wrong = next((name for name, value in row.items() if value is not None and value < -1), None)
    if wrong is not None:
        return {"damage": 0, "why": f"{wrong} is {row[wrong]}"}
    return {name: value for name, value in row.items() if value is not None}
