"""Popped messages as they are collected and go out: slices of the log, or, of a retry topic, under another name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqha.base.errors import MessageIllegal
from rmqha.broker.pop.check_points import CheckPoint
from rmqha.broker.pop.request import Handed, PopKey, encode_key, retry_mark
from rmqha.store import properties as props
from rmqha.store.aio.pulling import FETCHES_MAX, Pulled
from rmqha.store.aio.reader import Reader
from rmqha.store.record import encode_into, encoded_size

_SIZE, _QUEUE_OFFSET_AT, _PLACE_AT, _PLACE_END = 4, 20, 28, 36


class Cold(NamedTuple):
    """What a queue has that is in no memory."""

    topic: str
    queue_id: int
    found: Pulled


class Fetched(NamedTuple):
    """What was brought into memory for a pop.

    Attributes:
        times: how often.
        topic, queue_id: of which queue at last.
        end: where that ends in the log.
    """

    times: int
    topic: str
    queue_id: int
    end: int

    def and_then(self, cold: Cold) -> Fetched:
        """What it is when this was fetched."""
        found = cold.found
        end = (found.missing or found.runs)[-1][-1]
        return Fetched(self.times + 1, cold.topic, cold.queue_id, end)

    def end_in(self, topic: str, queue_id: int) -> int:
        """What a queue has before this place in the log is there."""
        return self.end if (topic, queue_id) == (self.topic, self.queue_id) else 0

    def has(self, cold: Cold) -> bool:
        """Whether it has been fetched already, or so much that nobody waits any longer."""
        runs = cold.found.missing or cold.found.runs
        return self.times >= FETCHES_MAX or runs[-1][-1] <= self.end_in(cold.topic, cold.queue_id)


NOTHING_FETCHED = Fetched(0, "", 0, 0)


class Taken:
    """What one pop has collected so far."""

    def __init__(self, pop_ms: int, revive_queue: int) -> None:
        self.pop_ms = pop_ms
        self.revive_queue = revive_queue
        self.handed: list[Handed] = []
        self.parts: list[memoryview] = []
        self.order_counts: list[str] = []
        self.count = 0
        self.size = 0
        self.rest = 0
        self.passed = False
        """Some were passed over, and more are to be looked at."""
        self.cold: Cold | None = None
        """What has to be fetched into memory first; no queue behind it was looked at."""


def records_of(parts: list[memoryview]) -> Iterator[tuple[int, int, memoryview]]:
    """Queue offset, physical offset and bytes of each record in slices of the log."""
    for part in parts:
        at = 0
        while at < len(part):
            size = int.from_bytes(part[at : at + _SIZE])
            yield (
                int.from_bytes(part[at + _QUEUE_OFFSET_AT : at + _PLACE_AT]),
                int.from_bytes(part[at + _PLACE_AT : at + _PLACE_END]),
                part[at : at + size],
            )
            at += size


def shown_as(
    reader: Reader, parts: list[memoryview], point: CheckPoint, revive_queue: int, topic: str
) -> Iterator[memoryview]:
    """Messages of a retry topic, under the topic that the consumer knows.

    Their key says where they really are; clients cannot tell from the topic.
    """
    for at, physical, stored in records_of(parts):
        record = reader.look(physical)
        if record is None:
            continue
        key = PopKey(
            point.start_offset, point.pop_ms, point.invisible_ms, revive_queue,
            retry_mark(point.topic), point.broker_name, point.queue_id, at,
        )  # fmt: skip
        message = record.message()
        properties = props.put(message.properties, b"POP_CK", encode_key(key).encode())
        shown = message._replace(topic=topic, properties=properties)
        try:
            body = bytearray(encoded_size(shown, property_crc=False))
        except MessageIllegal:
            # No room for another property; clients understand the retry topic as well.
            yield stored
            continue
        encode_into(
            body, 0, shown, size=len(body), queue_offset=at, physical_offset=physical,
            store_timestamp=record.store_timestamp,
        )  # fmt: skip
        yield memoryview(body)
