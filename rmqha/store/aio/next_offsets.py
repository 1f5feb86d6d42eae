"""The next queue offsets, from what the dispatcher has not come to yet.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from rmqha.store import properties as props
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.metadata_records import METADATA_KEY, ended_topics
from rmqha.store.record import INNER_BATCH, TRANSACTION_MASK, Head
from rmqha.store.scan import QueueRun

SLICE_RECORDS = 5_000
"""Walked over before others get their turn: some five milliseconds."""


class Ending(Protocol):
    """What a queue is asked for."""

    @property
    def max_offset(self) -> int:
        """The queue offset behind its last unit."""
        ...


class NextOffsets(dict[tuple[bytes, int], int]):
    """The queue offset of the next message, by queue.

    It holds the queues that have records which the dispatcher had not come to when it was made, or
    that were written to since. All others end where their units do, and are asked when they are
    wanted: to ask a hundred thousand of them at an election would hold up everything else.
    """

    __slots__ = ("_queues",)

    def __init__(self, queues: Mapping[tuple[bytes, int], Ending]) -> None:
        super().__init__()
        self._queues = queues

    def __missing__(self, key: tuple[bytes, int]) -> int:
        queue = self._queues.get(key)
        return 0 if queue is None else queue.max_offset

    def find(self, key: tuple[bytes, int]) -> int | None:
        """The same; None for a queue that there is not."""
        return self[key] if key in self or key in self._queues else None

    def end(self, topic: bytes) -> None:
        """What comes next begins at 0, though the queues may not have gone yet."""
        keys = [key for known in (self._queues, self) for key in known if key[0] == topic]
        self.update(dict.fromkeys(keys, 0))


def raised(log: CommitLog, table: NextOffsets, start: int) -> Iterator[None]:
    """Raise ``table`` by the records from ``start`` to the log's end, some at a time.

    What is appended meanwhile is walked over as well. Nothing may be awaited between the iterator's
    end and the use of the table.
    """

    def open_queue_run(topic: bytes, queue_id: int) -> QueueRun | None:
        # A record of the internal topic may end others.
        following = None if topic == METADATA_KEY else table.find((topic, queue_id))
        return None if following is None else QueueRun(following, 0)

    position, left = start, SLICE_RECORDS
    while position < log.max_offset:
        run = log.scan(position, log.max_offset, count_max=left, open_queue_run=open_queue_run)
        if run is not None and run.records:
            for (topic, queue_id), queue_run in run.queue_runs.items():
                table[topic[1:], queue_id] = queue_run.next_offset
            position, left = run.end, left - run.records
        else:
            buffer, head = log.check(position)
            if head.size < 0:
                return
            _raise_by(table, head, buffer)
            position = position + head.size if head.size else log.file_end(position)
            left -= 1
        if left <= 0:
            left = SLICE_RECORDS
            yield


def _raise_by(table: NextOffsets, head: Head, buffer: memoryview) -> None:
    if not head.size or head.sys_flag & TRANSACTION_MASK in (0x4, 0xC):
        return
    properties = b""
    if head.sys_flag & INNER_BATCH or head.topic == METADATA_KEY:
        at = head.properties_at
        properties = bytes(buffer[at : at + head.properties_size])
    count = 1
    if head.sys_flag & INNER_BATCH:
        count = props.find_integer(properties, b"INNER_NUM") or 1
    key = (head.topic, head.queue_id)
    # At 0 a topic begins anew whose master told nobody that it had ended.
    known = table[key] if head.queue_offset else 0
    table[key] = max(known, head.queue_offset + count)
    for topic in ended_topics(properties) if head.topic == METADATA_KEY else ():
        table.end(topic)
