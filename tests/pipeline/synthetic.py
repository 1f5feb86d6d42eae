"""Stores written record by record, as fast as Python can: the log and its consume queues, no more."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from rmqha.store import record
from rmqha.store.consume_queue import UNIT, tags_code
from tests.store.harness import BORN, BORN_MS, HOST

PROPERTIES = b"TAGS\x01TAG1\x02KEYS\x01k0000012345\x02UNIQ_KEY\x017F0000010BAD18B4AAC2123456780000"
TAGS_CODE = tags_code(b"TAG1")
WRITE_BYTES = 8 << 20


class Written(NamedTuple):
    """Where a record stands."""

    at: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int


class SyntheticStore:
    """Writes a store; nothing of it is kept in memory but what a write takes.

    Args:
        root: the store's directory.
        file_bytes: size of a commit log file.
        queue_units: units of a consume queue's file.
    """

    def __init__(self, root: Path, file_bytes: int, queue_units: int = 300_000) -> None:
        self._log = root / "commitlog"
        self._log.mkdir(parents=True)
        self._queues = root / "consumequeue"
        self._file_bytes = file_bytes
        self._queue_bytes = queue_units * UNIT.size
        self._base = 0
        self._position = 0
        self._waiting = bytearray()
        self._next_offsets: dict[tuple[bytes, int], int] = defaultdict(int)
        self._units: dict[tuple[str, int], bytearray] = {}

    def add(self, topic: str, queue_id: int, body: bytes, *, dispatched: bool = True) -> Written:
        """Append a record, and its unit when it is dispatched."""
        magic, encoded, topic_bytes = record.topic_field(topic)
        at = self._base + self._position
        message = record.Plain(
            (encoded, queue_id), magic, 0, BORN_MS + at, body, topic_bytes, PROPERTIES
        )
        size = record.plain_size(message)
        if self._position + size + record.BLANK_SIZE > self._file_bytes:
            self._next_file()
            at = self._base + self._position
            message.born_timestamp = BORN_MS + at
        data, ((_, _, offset),) = record.plain_records(
            [message], self._next_offsets, offset=at, end=at + size, timestamp=BORN_MS + at,
            born_host=BORN, store_host=HOST,
        )  # fmt: skip
        self._waiting += data
        self._position += size
        if dispatched:
            self._units.setdefault((topic, queue_id), bytearray()).extend(
                UNIT.pack(at, size, TAGS_CODE)
            )
        if len(self._waiting) >= WRITE_BYTES:
            self._write()
        return Written(at, size, topic, queue_id, offset)

    def close(self, *, grown: bool = False) -> int:
        """Write what waits; the log's end. ``grown``: the last file has its whole size."""
        self._write()
        if grown:
            with (self._log / f"{self._base:020d}").open("ab") as file:
                file.truncate(self._file_bytes)
        for (topic, queue_id), units in self._units.items():
            folder = self._queues / topic / str(queue_id)
            folder.mkdir(parents=True)
            for begin in range(0, len(units), self._queue_bytes):
                data = units[begin : begin + self._queue_bytes]
                (folder / f"{begin:020d}").write_bytes(data.ljust(self._queue_bytes, b"\0"))
        return self._base + self._position

    def _next_file(self) -> None:
        left = self._file_bytes - self._position
        blank = bytearray(left)
        record.write_blank(blank, 0, left)
        self._waiting += blank
        self._write()
        self._base += self._file_bytes
        self._position = 0

    def _write(self) -> None:
        with (self._log / f"{self._base:020d}").open("ab") as file:
            file.write(self._waiting)
        self._waiting = bytearray()
