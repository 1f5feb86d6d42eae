"""The next queue offsets, from what the dispatcher has not come to yet.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.store import properties as props
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.metadata_records import METADATA_KEY, ended_topics
from rmqha.store.record import INNER_BATCH, TRANSACTION_MASK, Head
from rmqha.store.scan import QueueRun

SLICE_RECORDS = 5_000
"""Walked over before others get their turn: some five milliseconds."""


def raised(log: CommitLog, table: dict[tuple[bytes, int], int], start: int) -> Iterator[None]:
    """Raise ``table`` by the records from ``start`` to the log's end, some at a time.

    What is appended meanwhile is walked over as well. Nothing may be awaited between the iterator's
    end and the use of the table.
    """

    def open_queue_run(topic: bytes, queue_id: int) -> QueueRun | None:
        # A record of the internal topic may end others.
        following = None if topic == METADATA_KEY else table.get((topic, queue_id))
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


def _raise_by(table: dict[tuple[bytes, int], int], head: Head, buffer: memoryview) -> None:
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
    table[key] = max(table.get(key, 0), head.queue_offset + count)
    ended = ended_topics(properties) if head.topic == METADATA_KEY else ()
    for key in [key for key in table if key[0] in ended] if ended else ():
        del table[key]
