"""A simulated disk: what was not synced is lost with the power, whole or in part."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from msgspec import Struct

from rmqha.base.errors import DiskFailed, DiskFull


class DiskMood(Struct):
    """How the disk behaves; durations are milliseconds.

    Attributes:
        sync_min_ms, sync_max_ms: of one fdatasync.
        stall, stall_ms: share of syncs that take this much longer.
        failing: every write fails from now on.
        full: nothing can be appended beyond what is reserved, created or replaced; what is there
            can be read and deleted.
        bytes_free: new mapped files are refused once it is used up; None for no limit.
    """

    sync_min_ms: float = 0.2
    sync_max_ms: float = 2.0
    stall: float = 0.0
    stall_ms: float = 300.0
    failing: bool = False
    full: bool = False
    bytes_free: int | None = None


PAGE = 4096
SECTOR = 512
RESERVE_STEP_BYTES = 3000


class SimFile:
    """Bytes that are safe, and bytes that only the page cache has."""

    def __init__(self) -> None:
        self.durable = b""
        self.cached = b""
        self.reserved = 0

    @property
    def content(self) -> bytes:
        """What a reader sees while the power is on."""
        return (self.durable + self.cached).ljust(self.reserved, b"\0")


class SimPages:
    """A mapped file: what programs see, and what is on the platter, page by page."""

    def __init__(self, size: int) -> None:
        self.cached = bytearray(size)
        self.durable = bytes(size)
        self.entry_durable = False
        self.syncs_begun = 0
        self.sync_done = 0

    @property
    def content(self) -> bytes:
        """What a reader sees while the power is on."""
        return bytes(self.cached)

    def power_cut(self, rng: random.Random) -> bool:
        """Keep each page old or new at random; False when the file itself is gone.

        The old buffer stays with whoever still holds it: a dead process writes into nothing.
        """
        if not self.entry_durable and rng.random() < 0.5:
            return False
        pages = bytearray(self.durable)
        cached = bytes(self.cached)
        for at in range(0, len(pages), PAGE):
            new = cached[at : at + PAGE]
            if new != self.durable[at : at + PAGE] and rng.random() < 0.5:
                pages[at : at + PAGE] = new
        if not self.entry_durable and rng.random() < 0.3:
            # The name reached the disk, the blocks did not.
            pages = bytearray()
        self.cached = pages
        self.durable = bytes(pages)
        self.entry_durable = True
        return True


class SimMappedFile:
    """MappedFile port."""

    def __init__(self, disk: SimDisk, path: str, pages: SimPages) -> None:
        self._disk = disk
        self._path = path
        self._pages = pages
        self._buffer = memoryview(pages.cached)

    @property
    def path(self) -> str:
        """The absolute path."""
        return self._path

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self._buffer)

    @property
    def buffer(self) -> memoryview:
        """The whole file."""
        return self._buffer

    def write(self, position: int, data: memoryview) -> None:
        """As through ``buffer``."""
        self._buffer[position : position + len(data)] = data

    async def sync(self) -> None:
        """What was written before this call is durable once the time of a sync has passed."""
        pages = self._pages
        snapshot = bytes(self._buffer)
        life = self._disk.cuts
        pages.syncs_begun += 1
        number = pages.syncs_begun
        await self._disk.sync()
        # An older sync that takes longer takes nothing back.
        if life == self._disk.cuts and number > pages.sync_done:
            pages.sync_done = number
            pages.durable = snapshot
            pages.entry_durable = True

    def close(self) -> None:
        """Nothing to release: slices may live on."""


class SimDisk:
    """Disk port of one host; it outlives the host's processes."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.mood = DiskMood()
        self.files: dict[str, SimFile | SimPages] = {}
        self.cuts = 0
        self.room_bytes = 0  # on a full disk: what was deleted leaves room for appends

    def power_cut(self) -> None:
        """Of each unsynced tail or page a part survives, possibly followed by zeros."""
        self.cuts += 1
        for path in sorted(self.files):
            file = self.files[path]
            if isinstance(file, SimPages):
                if not file.power_cut(self.rng):
                    del self.files[path]
                continue
            if not file.cached:
                continue
            start, whole = len(file.durable), file.durable + file.cached
            kept = bytearray(whole)
            share = self.rng.choice((0.0, 0.5, 0.9, 1.0))
            for sector in range(start // SECTOR, -(-len(whole) // SECTOR)):
                if self.rng.random() >= share:
                    low, high = max(start, sector * SECTOR), min(len(whole), (sector + 1) * SECTOR)
                    kept[low:high] = bytes(high - low)
            if len(whole) > file.reserved and self.rng.random() < 0.5:
                # The new length did not reach the disk, or not all of it.
                del kept[self.rng.randint(max(start, file.reserved), len(whole)) :]
            file.durable = bytes(kept)
            file.cached = b""

    async def sync(self) -> None:
        """Take the time of one fdatasync."""
        mood = self.mood
        delay = self.rng.uniform(mood.sync_min_ms, mood.sync_max_ms)
        if mood.stall and self.rng.random() < mood.stall:
            delay += mood.stall_ms
        await asyncio.sleep(delay / 1000)
        if mood.failing:
            raise DiskFailed("simulated input/output error")

    def needs_space(self) -> None:
        """Raise DiskFull where a write needs room that is not there."""
        if self.mood.full:
            raise DiskFull("simulated: no space left on the disk")

    async def make_dirs(self, path: str) -> None:
        """Directories need no making here."""

    async def list_dir(self, path: str) -> list[str]:
        """Names in a directory."""
        prefix = path.rstrip("/") + "/"
        return sorted(
            {p[len(prefix) :].partition("/")[0] for p in self.files if p.startswith(prefix)}
        )

    async def read(self, path: str) -> bytes:
        """The whole file."""
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path].content

    async def open_append(self, path: str, reserve_bytes: int = 0) -> SimAppendFile:
        """Open or create."""
        if path not in self.files:
            if self.room_bytes == 0:
                self.needs_space()
            await self.sync()
            self.files[path] = SimFile()
        return SimAppendFile(self, self._plain(path), reserve_bytes)

    def _plain(self, path: str) -> SimFile:
        file = self.files[path]
        if isinstance(file, SimPages):
            raise DiskFailed(f"{path} is mapped")
        return file

    async def truncate(self, path: str, size: int) -> None:
        """Cut, durably."""
        await self.sync()
        file = self._plain(path)
        file.durable, file.cached = file.content[:size], b""
        file.reserved = 0

    async def write_atomic(self, path: str, data: bytes) -> None:
        """The old content until the rename, the new one from then on."""
        self.needs_space()
        await self.sync()
        file = SimFile()
        file.durable = data
        self.files[path] = file

    async def remove(self, path: str) -> None:
        """Delete."""
        await self.sync()
        gone = self.files.pop(path, None)
        if self.mood.full and isinstance(gone, SimFile):
            self.room_bytes += len(gone.content)
        if self.mood.bytes_free is not None and isinstance(gone, SimPages):
            self.mood.bytes_free += len(gone.cached)

    async def rename(self, path: str, new_path: str) -> None:
        """Give a file another name."""
        await self.sync()
        if path not in self.files:
            raise FileNotFoundError(path)
        self.files[new_path] = self.files.pop(path)

    def map_file(self, path: str, size: int, *, create: bool) -> SimMappedFile:
        """Map a file; a plain one of the right length becomes pages."""
        file = self.files.get(path)
        if file is None:
            if not create:
                raise FileNotFoundError(path)
            self._take(path, size)
            file = self.files[path] = SimPages(size)
        if isinstance(file, SimFile):
            pages = SimPages(len(file.content))
            pages.cached[:] = pages.durable = file.content
            pages.entry_durable = True
            file = self.files[path] = pages
        if len(file.cached) != size:
            raise DiskFailed(f"{path} has {len(file.cached)} bytes, not {size}")
        return SimMappedFile(self, path, file)

    async def prepare_file(self, directory: str, size: int) -> None:
        """Nothing: simulated blocks cost no time."""

    def drop_prepared(self, directory: str) -> None:
        """Nothing was prepared."""

    def _take(self, path: str, size: int) -> None:
        free = self.mood.bytes_free
        if self.mood.failing or (free is not None and free < size):
            raise DiskFailed(f"cannot map {path}: no space left on the simulated disk")
        if free is not None:
            self.mood.bytes_free = free - size

    async def file_size(self, path: str) -> int:
        """Length in bytes."""
        if path not in self.files:
            raise FileNotFoundError(path)
        return len(self.files[path].content)


class SimAppendFile:
    """AppendFile port."""

    def __init__(self, disk: SimDisk, file: SimFile, reserve_bytes: int) -> None:
        self._disk = disk
        self._file = file
        self._reserve_bytes = reserve_bytes
        # Whatever zeros stood there count as content from here on.
        file.durable = file.durable.ljust(file.reserved - len(file.cached), b"\0")
        file.reserved = 0
        self._queue: list[tuple[bytes, Callable[[DiskFailed | None], object]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._failed: DiskFailed | None = None

    @property
    def size(self) -> int:
        """Bytes written, without what is reserved."""
        waiting = sum(len(data) for data, _ in self._queue)
        return len(self._file.durable) + len(self._file.cached) + waiting

    def append(
        self,
        data: bytes,
        on_done: Callable[[DiskFailed | None], object],
        *,
        may_block: bool = False,
    ) -> None:
        """Cached at its turn, durable after the sync."""
        self._queue.append((data, on_done))
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write(), name="append")

    async def append_sync(self, data: bytes) -> None:
        """Append and wait.

        Raises:
            DiskFailed: the disk's mood.
        """
        done: asyncio.Future[DiskFailed | None] = asyncio.get_running_loop().create_future()
        self.append(data, done.set_result)
        error = await done
        if error is not None:
            raise error

    async def close(self) -> None:
        """Take back what is reserved, once everything is written."""
        if self._writer is not None:
            await self._writer
        if self._file.reserved:
            await self._disk.sync()
            self._file.reserved = 0

    async def _write(self) -> None:
        while self._queue:
            data, on_done = self._queue[0]
            error = self._failed or self._lacks_space(data)
            if error is None:
                await self._append_one(data)
                error = self._failed
            del self._queue[0]
            on_done(error)
        self._writer = None

    def _lacks_space(self, data: bytes) -> DiskFull | None:
        """Why a full disk cannot take this; what was reserved ahead it can."""
        end = len(self._file.durable) + len(self._file.cached) + len(data)
        if not self._disk.mood.full or end <= self._file.reserved:
            return None
        if self._disk.room_bytes >= len(data):
            self._disk.room_bytes -= len(data)
            return None
        return DiskFull("simulated: no space left on the disk")

    async def _append_one(self, data: bytes) -> None:
        file = self._file
        waiting = self._queue[0]
        self._queue[0] = (b"", waiting[1])
        file.cached += data
        end = len(file.durable) + len(file.cached)
        if end > file.reserved and end < self._reserve_bytes:
            file.reserved = min(self._reserve_bytes, end + RESERVE_STEP_BYTES)
        try:
            await self._disk.sync()
        except DiskFailed as error:
            self._failed = error
            return
        file.durable += file.cached
        file.cached = b""
