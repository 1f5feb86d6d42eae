"""The index files of a store, and the task that fills them behind the dispatcher.

Keys are for people who look for a message, so the index may trail; what it lacks after a crash is
read from the log again. It follows the dispatcher, so it knows confirmed messages only.

Source: IndexService of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from rmqha.base.errors import DiskFailed, DiskFull
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Disk, MappedFile
from rmqha.store.aio.cold_reads import AHEAD_BYTES, ColdReads, ReadAhead
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.mapped_files import file_sizes
from rmqha.store.aio.room import Room
from rmqha.store.index_file import (
    HEADER_SIZE,
    SLOT_SIZE,
    IndexFile,
    IndexWriter,
    KeyPlace,
    file_size,
    gather_keys,
    key_hashes,
)
from rmqha.store.record import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rmqha.store.settings import StoreSettings

SIZE_BYTES = 4
"""A record begins with its size."""

BATCH_MAX = 256
LIGHT_BYTES, LIGHT_BATCH_MAX = 65_536, 8
"""Where so little has come since the last look, who sends waits for each answer: a batch is some 50 us
then, for which a request may have to wait."""
GATHER_MS = 20
"""Between two looks: keys of what came meanwhile are put in one go."""

BEHIND_BYTES = 4 << 20
CLOSE_BYTES = 64 << 20
"""At most so much is indexed before a stop in order; Java would never index what is left."""

SPACE_PAUSE_MS = 1_000
"""Between two tries to make the next file while the disk is full."""

CATCH_UP_PAUSE_MS = 5
"""After each batch while far behind, so that a long rebuild leaves the time to others."""


class IndexFiles:
    """Index files, oldest first; all but the last are full.

    Args:
        room: of the store; keys go into pages all over a file.
        limit: records before it may be indexed: the dispatcher's offset.
        on_full: told the newest timestamp of a file that is full and durable.

    Attributes:
        position: records before it are indexed.
        skipped_bytes: of the log, which could not be read and are in no index.
    """

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        log: CommitLog,
        settings: StoreSettings,
        cold: ColdReads,
        room: Room,
        logger: Logger,
        *,
        limit: Callable[[], int],
        on_full: Callable[[int], None],
    ) -> None:
        self._clock = clock
        self._disk = disk
        self._log = log
        self._settings = settings
        self._cold = cold
        self._room = room
        self._ahead = ReadAhead(cold, log)
        self._limit = limit
        self._on_full = on_full
        self._logger = logger
        self._careful_to = self._cuts = 0
        self.skipped_bytes = 0
        self._directory = settings.path("index")
        self._size = file_size(settings.max_hash_slot_num, settings.max_index_num)
        self._files: list[MappedFile] = []
        self._writer: IndexWriter | None = None
        self._wake = asyncio.Event()
        self.position = 0

    async def load(self) -> None:
        """Map what is there and find where to go on.

        Raises:
            DiskFailed: a file cannot be mapped.
        """
        await self._disk.make_dirs(self._directory)
        names = filter(str.isdigit, await self._disk.list_dir(self._directory))
        sizes = await file_sizes(self._disk, self._directory, names, self._size)
        for name, size in sizes.items():
            if size >= HEADER_SIZE:
                path = f"{self._directory}/{name}"
                self._files.append(self._disk.map_file(path, size, create=False))
        self.position = max(0, self._log.min_offset)
        if self._files:
            last = self._files[-1]
            if last.size == self._size:
                self._writer = self._open(last)
            self.position = max(self.position, self._after(self._header_end(last)))

    def _open(self, file: MappedFile) -> IndexWriter:
        settings = self._settings
        return IndexWriter(file.buffer, settings.max_hash_slot_num, settings.max_index_num)

    def _header_end(self, file: MappedFile) -> int:
        return IndexFile(file.buffer, self._settings.max_hash_slot_num).header.end_physical_offset

    def _after(self, offset: int) -> int:
        """Where to go on after the record at ``offset``, the last that was indexed.

        No record begins there after a cut: then the whole file of the log is read once more.
        """
        log = self._log
        if not log.min_offset <= offset < log.max_offset:
            return min(offset, log.max_offset)
        head = log.check(offset)[1]
        return offset + head.size if head.size > 0 else log.file_end(offset) - log.file_size

    def wake(self) -> None:
        """The limit may have moved."""
        self._wake.set()

    async def run(self) -> None:
        """Index until cancelled; raises DiskFailed."""
        await self._fetch_slots()
        while True:
            await self._wake.wait()
            self._wake.clear()
            is_light = self._limit() - self.position < LIGHT_BYTES
            while self.position < self._limit():
                before = self.position
                try:
                    await self.step(LIGHT_BATCH_MAX if is_light else BATCH_MAX)
                except DiskFull:
                    # The log has the keys still. The dispatcher says that there is no space.
                    await self._clock.sleep(SPACE_PAUSE_MS)
                    continue
                if self.position == before:
                    break
                behind = self._limit() - self.position > BEHIND_BYTES
                await self._clock.sleep(CATCH_UP_PAUSE_MS if behind else 0)
            await self._clock.sleep(GATHER_MS)

    async def _fetch_slots(self) -> None:
        """Keys go into slots anywhere in the file: none of them is to wait for the disk."""
        if self._writer is not None:
            file, end = self._files[-1], HEADER_SIZE + SLOT_SIZE * self._settings.max_hash_slot_num
            if not file.is_cached(0, end):
                await file.fetch(0, end)

    async def finish(self) -> None:
        """Index what is left, unless that is a lot; raises DiskFailed."""
        while 0 < self._limit() - self.position <= CLOSE_BYTES:
            before = self.position
            with contextlib.suppress(DiskFull):  # the next start goes on here
                await self.step(BATCH_MAX)
            if self.position == before:
                break

    async def step(self, count_max: int) -> None:
        """Index up to so many records.

        Raises:
            DiskFailed: no room for the next file.
        """
        is_alone = self.position < self._careful_to or not await self._reach()
        if is_alone:
            count_max = 1
            if not await self._reach_record():
                return
        limit, done = self._limit(), 0
        while done < count_max and self.position < limit:
            if self.position < self._log.min_offset:
                self.position = self._log.min_offset
            before = self.position
            usual = None if is_alone else self._usual(limit, count_max - done)
            following, keys = usual or self._any()
            if not await self._put(keys) or following == before:
                break
            self.position = following
            done += len(keys) or 1
        if self._writer is not None:
            self._writer.publish()

    async def _reach(self) -> bool:
        """Have what comes next in memory; False near a place that cannot be read."""
        try:
            await self._ahead.reach(self.position)
        except DiskFailed:
            self._careful_to = self.position + AHEAD_BYTES
        return self.position >= self._careful_to

    async def _reach_record(self) -> bool:
        """Have the next record in memory; False if ``position`` has moved.

        One that cannot be read is passed with all that follows it in its file of the log: nobody
        knows where the next one begins. The index is for people who look for a message, and no
        reason to end the broker, whose consumers do without that record as long.
        """
        log, begin, limit = self._log, self.position, self._limit()
        file_end = log.file_end(begin)
        try:
            await self._cold.fetch([(begin, min(begin + SIZE_BYTES, file_end))])
            if not self._is_still_at(begin):
                return False
            buffer, start = log.file_of(begin)
            size = int.from_bytes(buffer[begin - start : begin - start + SIZE_BYTES])
            if size <= log.record_max:
                await self._cold.fetch([(begin, min(begin + size, file_end))])
        except DiskFailed as error:
            if self._is_still_at(begin):
                self.position = end = min(file_end, limit)
                self.skipped_bytes += end - begin
                self._logger.log(
                    "error", "index_skips_unreadable", offset=begin, to=end, error=str(error)
                )
        return self._is_still_at(begin)

    def _is_still_at(self, position: int) -> bool:
        """Whether it goes on there: no cut has come, and it has not expired."""
        self.position = max(self.position, self._log.min_offset)
        return self.position == position

    def _usual(self, limit: int, count_max: int) -> tuple[int, list[KeyPlace]] | None:
        """Where the records like nearly all end that come next, and their keys; None for others.

        The dispatcher has passed them, so they are known to be whole.
        """
        buffer, start = self._log.file_of(self.position)
        end = min(limit - start, len(buffer))
        stop, keys = gather_keys(buffer, self.position - start, end, start, count_max=count_max)
        return None if start + stop == self.position else (start + stop, keys)

    def _any(self) -> tuple[int, list[KeyPlace]]:
        """Where the record at ``position`` ends, and its keys; its start without a record."""
        buffer, head = self._log.check(self.position)
        if head.size < 0:
            return self.position, []
        if not head.size:
            return self._log.file_end(self.position), []
        hashes: list[int] = []
        if head.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            at = head.properties_at
            hashes = key_hashes(head.topic, bytes(buffer[at : at + head.properties_size]))
        keys = [(value, head.offset, head.store_timestamp) for value in hashes]
        return head.offset + head.size, keys

    async def _put(self, keys: list[KeyPlace]) -> bool:
        """Put keys; whether the log has not been cut meanwhile."""
        cuts = self._cuts
        while keys:
            writer = self._writer
            if writer is None or writer.is_full:
                writer = await self._next_file()
                if self._cuts != cuts:
                    return False
            if self._room.is_short:
                await self._room.make_in(self._files[-1], writer.places(keys))
                if self._cuts != cuts:
                    return False
            begun_ms = self._clock.now_ms()
            keys = keys[writer.put(keys) :]
            self._room.wrote(begun_ms)
        return True

    async def _next_file(self) -> IndexWriter:
        """Finish the file that is full, durably, and begin the next one."""
        full = self._writer
        if full is not None:
            full.publish()
            await self._files[-1].sync()
            self._on_full(full.end_timestamp)
        # Its blocks may take a while.
        await self._disk.prepare_file(self._directory, self._size)
        path = f"{self._directory}/{self._next_name()}"
        file = self._disk.map_file(path, self._size, create=True)
        self._files.append(file)
        writer = self._writer = self._open(file)
        if full is not None:
            writer.continue_from(full.end_timestamp, full.end_physical_offset)
        return writer

    def _next_name(self) -> str:
        """Java's: the time of making; never before the last one's, for files are read in order."""
        moment = datetime.fromtimestamp(self._clock.wall_ms() / 1000, tz=UTC).astimezone()
        name = f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"
        last = self._files[-1].path.rpartition("/")[2] if self._files else ""
        while name <= last:
            moment += timedelta(milliseconds=1)
            name = f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"
            if name <= last and len(name) <= len(last):
                name = f"{int(last) + 1:017d}"
        return name

    @property
    def newest(self) -> tuple[int, int]:
        """Timestamp and physical offset of what was indexed last."""
        writer = self._writer
        return (0, 0) if writer is None else (writer.end_timestamp, writer.end_physical_offset)

    def find(self, topic: str, key: str, *, begin_ms: int, end_ms: int, limit: int) -> list[int]:
        """Physical offsets, newest first.

        Raises:
            DiskFailed: a file is no index file.
            NotInMemory: for who looks by ``ColdReads``.
        """
        found: list[int] = []
        for file in reversed(self._files):
            try:
                need = functools.partial(self._cold.need_in, file)
                index = IndexFile(file.buffer, self._settings.max_hash_slot_num, need)
                found += index.find(
                    topic, key, begin_ms=begin_ms, end_ms=end_ms, limit=limit - len(found)
                )
                begin = index.header.begin_timestamp
            except struct.error as error:
                raise DiskFailed(f"{file.path} is no index file") from error
            if len(found) >= limit or 0 < begin < begin_ms:
                break
        return list(dict.fromkeys(found))

    # -- cuts, the disk

    def cut(self, offset: int) -> None:
        """The log was cut: records from ``offset`` on are others now. Old keys stay, as hints."""
        # Also of a record that is about to be put, though ``position`` is not there yet.
        self._cuts += 1
        self.position = min(self.position, offset)
        if self._writer is not None and self._writer.end_physical_offset >= offset:
            self._writer.end_physical_offset = max(0, offset - 1)
            self._writer.publish()

    def expire(self, log_min: int) -> list[str]:
        """Give up files of which the log has no record any more; the last one stays. Their paths."""
        gone = []
        while len(self._files) > 1 and self._header_end(self._files[0]) < log_min:
            file = self._files.pop(0)
            file.close()
            gone.append(file.path)
        return gone

    async def remove(self, paths: list[str]) -> None:
        """Delete files that were given up.

        Raises:
            DiskFailed: one cannot be removed.
        """
        for path in paths:
            await self._disk.remove(path)

    async def sync(self) -> int:
        """Make the last file durable; returns its newest timestamp, 0 without a file."""
        writer = self._writer
        if writer is None or not self._files:
            return 0
        writer.publish()
        await self._files[-1].sync()
        return writer.end_timestamp

    def close(self) -> None:
        """Unmap the index's files."""
        self._writer = None
        for file in self._files:
            file.close()
        self._files = []
