"""The commit log in its mapped files: append, receive, read, cut. Waits for nothing but a cut.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from rmqha.base.errors import LocalProtocolError, MessageIllegal
from rmqha.base.invariants import invariant
from rmqha.runtime.ports import Clock, Disk
from rmqha.store import segments
from rmqha.store.aio.mapped_files import MappedFiles
from rmqha.store.checkpoint import SLACK_MS
from rmqha.store.metadata_records import METADATA_TOPIC
from rmqha.store.record import (
    BLANK_SIZE,
    HEADROOM,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_SIZE,
    Head,
    Message,
    Place,
    Plain,
    check_record,
    encode_into,
    encoded_size,
    message_id,
    plain_records,
    plain_size,
    write_blank,
)
from rmqha.store.recovery import Segment
from rmqha.store.scan import OpenQueueRun, Run, scan
from rmqha.store.settings import StoreSettings

_PREFIX = struct.Struct(">iI")

WALKED_MAX = 10_000
"""Records that a cut walks over before others get their turn: some five milliseconds."""

WHOLE_RECORDS_MAX = 5_000
"""Records that one call of ``whole_end`` walks over: some three milliseconds. What a flood leaves
behind, the dispatcher passes (``dispatched``)."""


class AppendResult(NamedTuple):
    """Where a message was written; not yet durable, not yet in its queue."""

    offset: int
    size: int
    queue_offset: int
    store_timestamp: int
    store_host: bytes

    @property
    def end(self) -> int:
        """The offset after it: what to flush up to."""
        return self.offset + self.size

    @property
    def msg_id(self) -> str:
        """The offset message id."""
        return message_id(self.store_host, self.offset)


class CommitLog:
    """One writer's commit log.

    Attributes:
        max_offset: the next byte to be written.
        record_max: bytes; no record is longer.
        received_to: what lies behind it this process has written itself.
        last_timestamp: store timestamp, ms, of the newest record. It goes back only where the clock
            was ahead by more than a checkpoint forgives: recovery chooses its first file by it.
    """

    def __init__(self, disk: Disk, clock: Clock, settings: StoreSettings) -> None:
        self._clock = clock
        self._body_max = settings.max_message_size
        self.record_max = self._size_max = settings.max_message_size + HEADROOM
        self._property_crc = settings.enabled_append_prop_crc
        self.file_size = settings.mapped_file_size_commit_log
        self.files = MappedFiles(disk, settings.store_path_commit_log, self.file_size)
        self.max_offset = self.received_to = 0
        self.last_timestamp = 0
        self._reserved_end = 0
        self._whole_end = 0
        self._cutting = False
        self._tail = memoryview(b"")
        self._tail_start = 0
        self._room_end = 0
        self._disk = disk

    @property
    def min_offset(self) -> int:
        """First byte of the first file; -1 without one."""
        return self.files.first if self.files.files else -1

    @property
    def empty(self) -> bool:
        """Whether nothing was ever written, or everything was cut."""
        return self.max_offset <= max(0, self.min_offset)

    def segments(self) -> list[Segment]:
        """All files for the pure functions of recovery."""
        size, first = self.file_size, self.files.first
        return [
            Segment(first + number * size, file.buffer, file.path)
            for number, file in enumerate(self.files.files)
        ]

    def start_at(self, offset: int) -> None:
        """Go on writing at ``offset``, as recovery found it, once the cut there has erased the rest
        of its file: nobody knows how far a torn tail goes."""
        self.max_offset = self._whole_end = offset
        self._reserved_end = self.file_end(offset) if self.files.holds(offset) else offset
        self._use_tail()

    def _use_tail(self) -> None:
        """Point the hot path at the file that holds ``max_offset``, or at none."""
        if self.files.holds(self.max_offset):
            file, within = self.files.at(self.max_offset)
            self._tail, self._tail_start = file.buffer, self.max_offset - within
        else:
            self._tail, self._tail_start = memoryview(b""), self.max_offset
        self._room_end = self._tail_start + len(self._tail) - BLANK_SIZE

    # -- a master's writes

    def append(self, message: Message, queue_offset: int, *, own: bool = False) -> AppendResult:
        """Write one record.

        Args:
            own: the broker moves it on, and has acknowledged it: whatever the limit is today, it fits
                where a file has room for it.

        Raises:
            MessageIllegal: it fits no file, or no field; nothing was written.
            DiskFailed: the next file cannot be made; nothing was written.
            LocalProtocolError: a cut is under way.
        """
        size = encoded_size(message, property_crc=self._property_crc)
        if self._cutting or (not own and self._is_long(message, size)):
            self._refuse(len(message.body))
        if self.max_offset + size > self._room_end:
            self._roll(size)
        return self._write(message, size, queue_offset)

    def _is_long(self, message: Message, size: int) -> bool:
        # The broker's own tables have the room that a message's head and properties have besides.
        long = len(message.body) > self._body_max and message.topic != METADATA_TOPIC
        return long or size > self._size_max

    def append_plains(
        self, messages: Sequence[Plain], next_offsets: dict[tuple[bytes, int], int],
        born_host: bytes, store_host: bytes,
    ) -> list[Place]:  # fmt: skip
        """Write messages like most: as many as this file has room for, one at least.

        Raises:
            MessageIllegal, DiskFailed, LocalProtocolError: as :meth:`append`.
        """
        if self._cutting:
            self._refuse(0)
        if self.max_offset + plain_size(messages[0]) > self._room_end:
            self._roll(plain_size(messages[0]))
        timestamp = self._clock.wall_ms()
        if timestamp < self.last_timestamp:
            timestamp = self._earlier(timestamp)
        data, places = plain_records(
            messages, next_offsets, offset=self.max_offset, end=self._room_end,
            timestamp=timestamp, born_host=born_host, store_host=store_host,
        )  # fmt: skip
        at = self.max_offset - self._tail_start
        self._tail[at : at + len(data)] = data
        self.last_timestamp = timestamp
        self.max_offset = self._whole_end = places[-1][1]
        return places

    def append_batch(self, messages: Sequence[Message], queue_offset: int) -> list[AppendResult]:
        """Write the records of one client batch, all into one file.

        Raises:
            MessageIllegal, DiskFailed, LocalProtocolError: as :meth:`append`, for all or none.
        """
        sizes = [encoded_size(message, property_crc=self._property_crc) for message in messages]
        for message, size in zip(messages, sizes, strict=True):
            if self._cutting or len(message.body) > self._body_max or size > self._size_max:
                self._refuse(len(message.body))
        total = sum(sizes)
        if self.max_offset + total > self._room_end:
            self._roll(total)
        return [
            self._write(message, size, queue_offset + number)
            for number, (message, size) in enumerate(zip(messages, sizes, strict=True))
        ]

    def _refuse(self, body_size: int) -> NoReturn:
        if self._cutting:
            raise LocalProtocolError("append while the log is being cut")
        raise MessageIllegal(f"message of {body_size} bytes, at most {self._body_max}")

    def _write(self, message: Message, size: int, queue_offset: int) -> AppendResult:
        offset = self.max_offset
        timestamp = self._clock.wall_ms()
        if timestamp < self.last_timestamp:
            timestamp = self._earlier(timestamp)
        encode_into(
            self._tail,
            offset - self._tail_start,
            message,
            size=size,
            queue_offset=queue_offset,
            physical_offset=offset,
            store_timestamp=timestamp,
            property_crc=self._property_crc,
        )
        self.last_timestamp = timestamp
        self.max_offset = self._whole_end = offset + size
        return AppendResult(offset, size, queue_offset, timestamp, message.store_host)

    def _earlier(self, wall_ms: int) -> int:
        """The timestamp of a record that is stored at an earlier time than the one before it.

        Java takes the time as it is. A delay that begins in a future from which the clock has come
        back would be over at once, or, as a check of a transaction, not for as long.
        """
        is_small = self.last_timestamp - wall_ms <= SLACK_MS
        return self.last_timestamp if is_small else wall_ms

    def _roll(self, size: int) -> None:
        """Begin the next file for ``size`` bytes; the blank is written once that file exists."""
        if size + BLANK_SIZE > self.file_size:
            raise MessageIllegal(
                f"record of {size} bytes does not fit into a file of {self.file_size}"
            )
        left = self._tail_start + len(self._tail) - self.max_offset
        next_start = self.max_offset + left
        self.files.make_for(next_start)
        if left:
            invariant(left >= BLANK_SIZE, "a file keeps room for its blank", left=left)
            write_blank(self._tail, self.max_offset - self._tail_start, left)
        self.max_offset = next_start
        self._use_tail()

    # -- a slave's writes

    def reserve(self, offset: int, length: int) -> memoryview:
        """See ``ReplicatedLog.reserve``."""
        if self._cutting:
            raise LocalProtocolError("reserve while the log is being cut")
        start = segments.floor(offset, self.file_size)
        if length < 0 or offset + length > start + self.file_size:
            raise ValueError(f"[{offset}, +{length}) crosses a file of {self.file_size} bytes")
        if not self.empty:
            follows = self.max_offset <= offset <= max(self.max_offset, self._reserved_end)
        elif offset == start:
            # Recovery reads the first file from its first byte, so a log begins with a file.
            self.files.leave_all_but(start)
            self._reserved_end = start
            follows = True
        else:
            follows = start == self.min_offset and offset <= self._reserved_end
        if not follows:
            raise ValueError(f"offset {offset} is not the next after {self.max_offset}")
        self.files.make_for(offset)
        file, within = self.files.at(offset)
        self._reserved_end = max(self._reserved_end, offset + length)
        return file.buffer[within : within + length]

    def write(self, offset: int, data: memoryview) -> None:
        """See ``ReplicatedLog.write``."""
        file, within = self.files.at(offset)
        file.write(within, data)

    def received(self, offset: int, length: int) -> None:
        """See ``ReplicatedLog.received``."""
        invariant(
            self.empty or offset == self.max_offset,
            "received bytes follow each other", offset=offset, max_offset=self.max_offset,
        )  # fmt: skip
        if self.empty:
            self._whole_end = offset
        self.max_offset = self.received_to = offset + length
        self._use_tail()

    # -- reads

    def whole_end(self) -> int:
        """Where the last record or blank that is written to its end ends.

        On a slave the newest record may be half there. Each record is looked at once, and only
        its size is read; so many a call that nobody has to wait for it, so the answer may be
        short of the end after a flood.
        """
        position = self._whole_end
        for _ in range(WHOLE_RECORDS_MAX):
            if self.max_offset - position < BLANK_SIZE:
                break
            file, within = self.files.at(position)
            size, magic = _PREFIX.unpack_from(file.buffer, within)
            if magic == MAGIC_BLANK:
                size = self.file_size - within
            elif size < MIN_SIZE or magic not in (MAGIC_V1, MAGIC_V2):
                break
            if position + size > self.max_offset:
                break
            position += size
        self._whole_end = position
        return position

    def dispatched(self, offset: int) -> None:
        """Whole records end at ``offset``: :meth:`whole_end` need not look at them again."""
        self._whole_end = max(self._whole_end, offset)

    def readable(self, offset: int, limit: int) -> int:
        """Contiguous written bytes from ``offset`` within its file, at most ``limit``."""
        if not self.files.holds(offset):
            return 0
        left = self.file_size - offset % self.file_size
        return max(0, min(limit, left, self.max_offset - offset))

    def view(self, offset: int, length: int) -> memoryview:
        """The bytes themselves.

        Raises:
            ValueError: they are not all written, or lie in two files.
        """
        if length > self.readable(offset, length):
            raise ValueError(f"[{offset}, +{length}) is not in one file of the log")
        if not length:
            return memoryview(b"")
        file, within = self.files.at(offset)
        return file.buffer[within : within + length]

    def is_cached(self, begin: int, end: int) -> bool:
        """Whether bytes of one file are in memory, or gone."""
        if not self.files.holds(begin):
            return True
        file, within = self.files.at(begin)
        return file.is_cached(within, min(file.size, within + end - begin))

    async def fetch(self, begin: int, end: int) -> None:
        """Bring bytes of one file into memory, as ``MappedFile.fetch``."""
        if self.files.holds(begin):
            file, within = self.files.at(begin)
            await file.fetch(within, min(file.size, within + end - begin))

    async def make_writable(self, length: int, ahead: int = 0) -> int:
        """Have the next bytes of the last file take writes without waiting; how many there are."""
        if not self.files.holds(self.max_offset + ahead):
            return 0
        file, within = self.files.at(self.max_offset + ahead)
        end = min(file.size, within + length)
        await file.make_writable((within, end))
        return end - within

    async def sync_again(self, low: int, high: int) -> None:
        """Make [low, high) durable, whatever became of an earlier sync; raises DiskFailed.

        Of pages of which a sync has failed Linux says later that all is well. A byte is enough to have
        the whole page written.
        """
        at = low
        while at < high:
            file, within = self.files.at(at)
            end = min(file.size, within + high - at)
            await file.make_writable(
                (within, end)
            )  # a thread waits for the disk, if anybody has to
            for place in range(within - within % mmap.PAGESIZE, end, mmap.PAGESIZE):
                file.write(place, file.buffer[place : place + 1])
            at += end - within
            await asyncio.sleep(0)
        await self.sync(low, high)

    def file_of(self, offset: int) -> tuple[memoryview, int]:
        """The bytes of the file that holds ``offset``, and its start; raises IndexError."""
        file, within = self.files.at(offset)
        return file.buffer, offset - within

    def check(self, offset: int, *, check_crc: bool = False) -> tuple[memoryview, Head]:
        """The file's bytes and the record at ``offset`` among the written ones."""
        if not self.files.holds(offset):
            return memoryview(b""), Head(-1, offset, "no file holds it")
        file, within = self.files.at(offset)
        written = min(self.file_size, within + self.max_offset - offset)
        head = check_record(
            file.buffer, within, written, offset, check_crc=check_crc, verify_property_crc=check_crc
        )
        return file.buffer, head

    def scan(
        self, offset: int, limit: int, *, count_max: int, open_queue_run: OpenQueueRun | None = None,
        check_crc: bool = False,
    ) -> Run | None:  # fmt: skip
        """Pass ordinary records among the written ones below ``limit``; with all their CRCs, if asked."""
        if not self.files.holds(offset):
            return None
        file, within = self.files.at(offset)
        end = min(self.file_size, within + min(limit, self.max_offset) - offset)
        return scan(
            file.buffer, within, end, offset - within,
            check_crc=check_crc, property_crc=check_crc, count_max=count_max,
            open_queue_run=open_queue_run,
        )  # fmt: skip

    def file_end(self, offset: int) -> int:
        """Where the file that holds ``offset`` ends."""
        return segments.floor(offset, self.file_size) + self.file_size

    def valid_end(self, start: int, end: int, *, count_max: int = 1 << 62) -> int:
        """See ``ReplicatedLog.valid_end``; of at most about ``count_max`` records."""
        position, turns = start, 0
        while position < end and turns < count_max:
            turns += 1
            run = self.scan(position, end, count_max=count_max - turns + 1)
            if run is not None and run.records:
                turns += run.records
                position = run.end
                continue
            _, head = self.check(position)
            if head.size < 0:
                break
            following = position + head.size if head.size else self.file_end(position)
            if following > end:
                break
            position = following
        return position

    async def record_start(self, offset: int, known: int) -> int:
        """``offset`` itself, or the start of the record that it lies within.

        Args:
            known: where some record starts.
        """
        if offset >= self.max_offset or offset <= max(0, self.min_offset):
            return offset
        if offset == known or self.check(offset)[1].size >= 0:
            return offset
        start = self.file_end(offset) - self.file_size
        if start < known < offset:
            start = known
        while (end := self.valid_end(start, offset, count_max=WALKED_MAX)) > start:
            start = end
            await asyncio.sleep(0)
        return start

    # -- the disk

    async def prepare(self) -> None:
        """Get the next file's blocks ready before they are needed: that may take a while."""
        used = self.max_offset - self._tail_start
        # Late: whoever fills a file fast needs the processor more than the next file yet, and
        # what is ready only in part serves as well.
        if not self._tail or used * 4 >= len(self._tail) * 3:
            await self._disk.prepare_file(self.files.directory, self.file_size)

    async def sync(self, low: int, high: int) -> None:
        """Make [low, high) durable; raises DiskFailed."""
        await self.files.sync(low, high)

    async def cut(self, offset: int, record_start: int) -> int:
        """Cut to ``offset``, which lies at or in the record at ``record_start``.

        What was written behind it is erased, and what was received of no whole frame as well.

        Returns:
            Bytes that were erased, in pieces; files that went are not counted.

        Raises:
            DiskFailed: the cut may be incomplete.
        """
        self._cutting = True
        try:
            written = max(self.max_offset, self._reserved_end)
            self.max_offset = min(self.max_offset, offset)
            self.received_to = min(self.received_to, offset)
            self._whole_end = min(self._whole_end, record_start)
            self._use_tail()
            await self.files.remove_after(self.max_offset)
            erased = await self.files.erase(self.max_offset, written)
            self._reserved_end = self.max_offset
            self._use_tail()
            return erased
        finally:
            self._cutting = False

    @property
    def has_leftovers(self) -> bool:
        """Whether bytes were received behind ``max_offset`` that were never counted."""
        return self._reserved_end > self.max_offset

    def close(self) -> None:
        """Unmap the log's files."""
        self._tail = memoryview(b"")
        self._tail_start = self._room_end = self.max_offset
        self.files.close()
        self._disk.drop_prepared(self.files.directory)
