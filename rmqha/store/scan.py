"""Many ordinary records in one loop: check them, and collect their queue units. The hot path.

Ordinary is what nearly every record is: V1, IPv4 hosts, of no transaction, no inner batch. Anything
else, and anything that looks wrong in whatever way, ends the run, and ``record.check_record`` judges
that one record. So this file needs to be strict only, never to explain; a property test holds
what it accepts equal to what the slow path accepts.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from rmqha.store.consume_queue import UNIT, tags_code
from rmqha.store.crc import crc32
from rmqha.store.properties import CRC_NAME, CRC_SIZE, crc_matches, find
from rmqha.store.record import CRC_MASK, MAGIC_V1, MIN_SIZE, PAGE_BITS, PROPERTIES_MAX, page_missing

# total size, magic, body CRC, queue id, queue offset, physical offset, sys flag, store timestamp,
# body length
_HEAD = struct.Struct(">iIii4xqqi16xq20xi")
_BODY_AT = _HEAD.size
# Transactions, IPv6 hosts and inner batches take the slow path; a commit does, too.
_UNUSUAL = 0x4 | 0x8 | 0x10 | 0x20 | 0x80
_TAGS = b"TAGS\x01"
_TAGS_SIZE = len(_TAGS)
_PAIR_END = b"\x02"
_PAIR_END_BYTE = 2
_TAIL_MIN = 4


class QueueRun:
    """Where one queue stands while a run collects its units.

    Attributes:
        next_offset: queue offset of the next unit.
        indexed_end: where the run found it: records that end before it have their unit.
        units: encoded units that are not in the queue's file yet.
    """

    __slots__ = ("indexed_end", "next_offset", "units")

    def __init__(self, next_offset: int, indexed_end: int) -> None:
        self.next_offset = next_offset
        self.indexed_end = indexed_end
        self.units: list[bytes] = []


QueueRunKey = tuple[bytes, int]
"""The topic with the byte of its length before it, and the queue id."""
OpenQueueRun = Callable[[bytes, int], QueueRun | None]


class Run(NamedTuple):
    """What one call of :func:`scan` passed.

    Attributes:
        position: where the first record stands that was not passed.
        end: the same as a physical offset.
        records: how many were.
        timestamp: store timestamp of the last one; 0 for none.
        queue_runs: the queues that were met, some without new units.
    """

    position: int
    end: int
    records: int
    timestamp: int
    queue_runs: dict[QueueRunKey, QueueRun]


def scan(  # noqa: C901 - a call for each record would cost as much as the work
    buffer: memoryview,
    position: int,
    end: int,
    base: int,
    *,
    check_crc: bool,
    count_max: int,
    open_queue_run: OpenQueueRun | None = None,
    property_crc: bool = False,
    check_pages: bool = False,
) -> Run:
    """Pass ordinary whole records of ``buffer`` from ``position`` on, up to ``end``.

    Args:
        base: physical offset of the buffer's first byte.
        check_crc: check the body.
        count_max: records to pass at most.
        open_queue_run: gives the run of (topic, queue id), or None for a queue that needs the slow
            path. Without it records are checked and no units are made.
        property_crc: check that of a record that carries one of its own, too.
        check_pages: with ``check_crc``, also that no page behind the body is missing.
    """
    unpack, pack, code_of = _HEAD.unpack_from, UNIT.pack, tags_code
    queue_runs: dict[QueueRunKey, QueueRun] = {}
    records = timestamp = 0
    last = end - MIN_SIZE
    while position <= last and records < count_max:
        size, magic, crc, queue_id, queue_offset, offset, sys_flag, stored, body_size = unpack(
            buffer, position
        )
        stop = position + size
        body_end = position + _BODY_AT + body_size
        if (
            magic != MAGIC_V1 or offset != base + position or sys_flag & _UNUSUAL
            or body_size < 0 or stop > end or body_end + _TAIL_MIN > stop
        ):  # fmt: skip
            break
        tail = bytes(buffer[body_end:stop])
        topic_end = tail[0] + 1
        if topic_end + 2 > len(tail):
            break
        properties_size = tail[topic_end] << 8 | tail[topic_end + 1]
        if topic_end + 2 + properties_size != len(tail) or properties_size > PROPERTIES_MAX:
            break
        if check_crc and (
            crc32(buffer[body_end - body_size : body_end]) & CRC_MASK != crc
            or (
                property_crc
                and tail.startswith(CRC_NAME, -CRC_SIZE)
                and not crc_matches(buffer, position, size)
            )
            or (
                check_pages
                and (
                    not tail[-1]
                    or (
                        body_end >> PAGE_BITS != (stop - 1) >> PAGE_BITS
                        and page_missing(buffer, body_end, stop)
                    )
                )
            )
        ):
            break
        if open_queue_run is not None:
            key = (tail[:topic_end], queue_id)
            queue_run = queue_runs.get(key)
            if queue_run is None:
                queue_run = open_queue_run(key[0][1:], queue_id)
                if queue_run is None:
                    break
                queue_runs[key] = queue_run
            if offset + size > queue_run.indexed_end:
                if queue_offset != queue_run.next_offset:
                    break
                queue_run.next_offset = queue_offset + 1
                code = 0
                if (at := tail.rfind(_TAGS, topic_end + 2)) >= 0:
                    value_end = tail.find(_PAIR_END, at)
                    within = at > topic_end + 2 and tail[at - 1] != _PAIR_END_BYTE
                    if within or value_end < 0:
                        code = _tags_code(tail[topic_end + 2 :])
                    elif value_end > at + _TAGS_SIZE:
                        code = code_of(tail[at + _TAGS_SIZE : value_end])
                queue_run.units.append(pack(offset, size, code))
        timestamp = stored
        records += 1
        position = stop
    return Run(position, base + position, records, timestamp, queue_runs)


def _tags_code(properties: bytes) -> int:
    """The same by the long way: TAGS is within another word, or the last separator is missing."""
    tags = find(properties, b"TAGS")
    return 0 if tags is None else tags_code(tags)
