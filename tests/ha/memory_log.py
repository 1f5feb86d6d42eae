"""A commit log in memory that forgets what was not flushed when its machine loses power.

Records are real enough to be walked: size, V1 magic, body; a file ends in a real blank. A body's last
byte is not zero, so that one of which a part arrived is told from a whole one, as the store tells.
"""

from __future__ import annotations

import asyncio
import struct

from rmqha.base.errors import InvariantBroken

MAGIC = -626843481
BLANK = -875286124
HEAD = struct.Struct(">ii")


class Room:
    """Of a log in memory: what is made is noted."""

    def __init__(self) -> None:
        self.is_short = False
        self.made: list[int] = []
        self.ahead: list[int] = []
        self.may_go = asyncio.Event()
        self.told = 0

    def now_ms(self) -> int:
        return 0

    def wrote(self, begun_ms: int) -> None:
        self.told += 1

    async def make(self, length: int, *, ahead: int = 0) -> int:
        self.made.append(length)
        self.ahead.append(ahead)
        await self.may_go.wait()
        return length


class MemoryLog:
    """Implements ``rmqha.ha.ports.ReplicatedLog``."""

    def __init__(self, file_size: int = 1 << 20) -> None:
        self._file_size = file_size
        self._room = Room()
        self.files: dict[int, bytearray] = {}
        self.durable: dict[int, bytearray] = {}
        self._min = -1
        self._max = 0
        self._flushed = 0
        self._confirm = 0
        self._durable_confirm = 0
        self.dispatched: list[int] = []
        self._dispatched_offset = 0
        self.rebuilt = 0
        self.erase_cuts = True
        self.dispatching = True

    # -- ReplicatedLog -----------------------------------------------------------------------

    @property
    def file_size(self) -> int:
        return self._file_size

    @property
    def min_offset(self) -> int:
        return self._min

    @property
    def max_offset(self) -> int:
        return self._max

    @property
    def room(self) -> Room:
        return self._room

    @property
    def flushed_offset(self) -> int:
        return self._flushed

    @property
    def damaged_at(self) -> int | None:
        end = self.valid_end(max(self._dispatched_offset, self._min, 0), self._max)
        if self.readable(end, HEAD.size) < HEAD.size:
            return None
        _, magic = HEAD.unpack(self.view(end, HEAD.size))
        return None if magic in {MAGIC, BLANK} else end

    @property
    def confirm_offset(self) -> int:
        return self._confirm

    def set_confirm_offset(self, offset: int) -> None:
        assert offset <= self._max
        self._confirm = offset
        self._dispatch()

    def readable(self, offset: int, limit: int) -> int:
        end = min(self._max, offset - offset % self._file_size + self._file_size)
        return max(0, min(limit, end - offset))

    def view(self, offset: int, length: int) -> memoryview:
        assert self._min <= offset
        assert offset + length <= self._max
        at = offset % self._file_size
        return memoryview(self.files[offset - at])[at : at + length]

    def is_cold(self, offset: int, length: int) -> bool:
        return False

    async def fetch(self, offset: int, length: int) -> None:
        pass

    def is_proven(self, offset: int, length: int) -> bool:
        return True

    async def prove(self, offset: int, length: int) -> bool:
        return True

    def reserve(self, offset: int, length: int) -> memoryview:
        at = offset % self._file_size
        if at + length > self._file_size or (self._max and offset < self._max):
            raise ValueError(f"{offset}+{length} does not fit a log that ends at {self._max}")
        start = offset - at
        if start not in self.files:
            self.files[start] = bytearray(self._file_size)
            self.durable[start] = bytearray(self._file_size)
        return memoryview(self.files[start])[at : at + length]

    def write(self, offset: int, data: memoryview) -> None:
        at = offset % self._file_size
        self.files[offset - at][at : at + len(data)] = data

    def received(self, offset: int, length: int) -> None:
        if self._max == 0:
            self._min = offset - offset % self._file_size
            self._flushed = self._dispatched_offset = offset
        elif offset != self._max:
            raise ValueError(f"gap: {offset} after {self._max}")
        self._max = offset + length
        self._dispatch()

    async def flush(self, offset: int) -> int:
        return self.flush_now()

    def flush_now(self) -> int:
        at = self._flushed
        while at < self._max:
            start = at - at % self._file_size
            end = min(self._max, start + self._file_size)
            self.durable[start][at - start : end - start] = self.files[start][
                at - start : end - start
            ]
            at = end
        self._flushed = self._max
        self._durable_confirm = self._confirm
        return self._flushed

    def valid_end(self, start: int, end: int) -> int:
        at = start
        while at < end:
            file = at - at % self._file_size
            left = file + self._file_size - at
            if left < HEAD.size or end - at < HEAD.size:
                break
            size, magic = HEAD.unpack_from(self.files[file], at - file)
            if magic == BLANK and size == left and at + left <= end:
                at += left
            elif magic == MAGIC and HEAD.size < size <= left and at + size <= end:
                if not self.files[file][at - file + size - 1]:
                    break
                at += size
            else:
                break
        return at

    async def truncate(self, offset: int) -> None:
        self.truncate_now(offset)

    def truncate_now(self, offset: int) -> None:
        if offset >= self._max:
            return
        for start in [start for start in self.files if start >= offset]:
            del self.files[start], self.durable[start]
        start = offset - offset % self._file_size
        if start in self.files and self.erase_cuts:
            for copy in (self.files[start], self.durable[start]):
                copy[offset - start :] = bytes(self._file_size - (offset - start))
        self._max = offset
        self._flushed = min(self._flushed, offset)
        self._confirm = min(self._confirm, offset)
        self._durable_confirm = min(self._durable_confirm, offset)
        self.dispatched = [one for one in self.dispatched if one < offset]
        self._dispatched_offset = min(self._dispatched_offset, offset)
        if not self.files:
            self._min, self._dispatched_offset = -1, 0
            self._max = 0

    @property
    def dispatched_offset(self) -> int:
        return self._dispatched_offset

    async def wait_dispatched(self, offset: int) -> None:
        self._dispatch()

    async def rebuild_queue_offsets(self) -> None:
        self.rebuild_now()

    def rebuild_now(self) -> None:
        """Count it; there are no queues."""
        self.rebuilt += 1

    # -- for tests -----------------------------------------------------------------------------

    def append(self, body: bytes) -> tuple[int, bytes]:
        """Write a record; returns its offset and bytes."""
        assert body[-1], "a record that ends in zero is taken for a part of one"
        size = HEAD.size + len(body)
        at = self._max % self._file_size
        left = self._file_size - at
        if self._max and left != self._file_size and size + HEAD.size > left:
            self._write(HEAD.pack(left, BLANK) + bytes(left - HEAD.size))
        offset, record = self._max, HEAD.pack(size, MAGIC) + body
        self._write(record)
        return offset, record

    def _write(self, data: bytes) -> None:
        offset = self._max
        self.reserve(offset, len(data))[:] = data
        self.received(offset, len(data))

    def read(self, offset: int, length: int) -> bytes:
        """Bytes that may span files."""
        out = b""
        while length:
            size = self.readable(offset, length)
            assert size > 0
            out += bytes(self.view(offset, size))
            offset, length = offset + size, length - size
        return out

    def records(self, end: int | None = None) -> list[bytes]:
        """Bodies of the whole records."""
        found, at = [], max(self._min, 0)
        limit = self._max if end is None else end
        while at < limit:
            file = at - at % self._file_size
            size, magic = HEAD.unpack_from(self.files[file], at - file)
            if magic == MAGIC and at + size <= limit:
                found.append(bytes(self.files[file][at - file + HEAD.size : at - file + size]))
            elif magic != BLANK:
                break
            at += size
        return found

    def expire_first_file(self) -> int:
        """Delete the oldest file; returns the new min."""
        first = min(self.files)
        del self.files[first], self.durable[first]
        self._min = min(self.files)
        return self._min

    def _dispatch(self) -> None:
        if not self.dispatching:
            return
        end = self.valid_end(max(self._dispatched_offset, self._min, 0), self._confirm)
        at = max(self._dispatched_offset, self._min, 0)
        while at < end:
            file = at - at % self._file_size
            size, magic = HEAD.unpack_from(self.files[file], at - file)
            if magic == MAGIC:
                self.dispatched.append(at)
            at += size
        self._dispatched_offset = max(self._dispatched_offset, end)

    def crash(self, *, power: bool) -> None:
        """Start again with what the disk holds; a killed process loses only its reservations."""
        if power:
            self.files = {start: bytearray(data) for start, data in self.durable.items()}
        confirm = self._durable_confirm
        first = min(self.files, default=-1)
        self._min = first
        end = (
            self.valid_end(max(first, 0), max(self.files, default=0) + self._file_size)
            if self.files
            else 0
        )
        self._max = end
        self._dispatched_offset = max(first, 0)
        self.dispatched = []
        self._confirm = min(confirm, end)
        self._flushed = end
        for start in list(self.files):
            if start > end or (start == end and start != first):
                del self.files[start], self.durable[start]
            elif end < start + self._file_size:
                self.files[start][end - start :] = bytes(self._file_size - (end - start))
        self.durable = {start: bytearray(data) for start, data in self.files.items()}
        if end == 0:
            self.files, self.durable, self._min = {}, {}, -1
        self._dispatch()
        if self._flushed > self._max:
            raise InvariantBroken("flushed beyond the log")
