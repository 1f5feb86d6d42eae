"""Where the records of the internal topic are: those that the dispatcher has passed, and the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.consume_queues import ConsumeQueues
from rmqha.store.metadata_records import METADATA_KEY, ended_topics
from rmqha.store.record import Head, decode


class MetadataRecord(NamedTuple):
    """One record: its place in the commit log, and what the broker wrote.

    Attributes:
        ends: whether it ends topics.
    """

    offset: int
    end: int
    body: bytes
    ends: bool = False


def metadata_record(head: Head, buffer: memoryview) -> MetadataRecord:
    """The record that begins with ``head``."""
    record = decode(buffer, head)
    return MetadataRecord(
        head.offset, head.offset + head.size, bytes(record.body),
        bool(ended_topics(bytes(record.properties))),
    )  # fmt: skip


def dispatched_since(
    log: CommitLog, queues: ConsumeQueues, offset: int
) -> Iterator[MetadataRecord]:
    """The records that begin at or after ``offset`` and are in their queue, in order."""
    queue = queues.queues.get((METADATA_KEY, 0))
    if queue is None or queue.batch:
        return
    low, high = queue.min_offset(log.min_offset), queue.max_offset
    while low < high:
        middle = (low + high) // 2
        if queue.unit(middle).physical_offset < offset:
            low = middle + 1
        else:
            high = middle
    for index in range(low, queue.max_offset):
        unit = queue.unit(index)
        if unit.physical_offset < max(offset, log.min_offset):
            continue  # a filler
        buffer, head = log.check(unit.physical_offset)
        if head.size > 0 and head.topic == METADATA_KEY:
            yield metadata_record(head, buffer)


def waiting_from(log: CommitLog, offset: int) -> Iterator[MetadataRecord]:
    """The records from ``offset``, the start of a record, to the log's end, in order."""
    while offset < log.max_offset:
        buffer, head = log.check(offset)
        if head.size < 0:
            return
        if head.size and head.topic == METADATA_KEY:
            yield metadata_record(head, buffer)
        offset = head.offset + head.size if head.size else log.file_end(offset)
