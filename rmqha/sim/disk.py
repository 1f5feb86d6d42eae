"""A simulated disk: what was not synced is lost with the power, whole or in part."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from msgspec import Struct

from rmqha.base.errors import DiskFailed, DiskFull
from rmqha.controller.raft.wal_layout import SECTOR
from rmqha.runtime.ports import Surveyed
from rmqha.sim.huge_pages import pages_of
from rmqha.sim.pages import Outcome, SimMappedFile, SimPages


class DiskMood(Struct):
    """How the disk behaves; durations are milliseconds.

    Attributes:
        sync_min_ms, sync_max_ms: of one fdatasync.
        stall, stall_ms: share of syncs that take this much longer.
        failing: every write fails from now on.
        full: nothing can be appended beyond what is reserved, created or replaced; what is there
            can be read and deleted, and what was deleted leaves room for appends.
        unreadable: every read fails.
        hung_until_s: by the loop's clock; no sync ends before.
        hang_fails: a sync that has hung fails in the end.
        read_ms: bytes of mapped files that are fetched take so long, and until a hung disk goes on.
        atomic_ms: replacing a whole file takes this much longer.
        bytes_free: new mapped files are refused once it is used up; None for no limit.
    """

    sync_min_ms: float = 0.2
    sync_max_ms: float = 2.0
    stall: float = 0.0
    stall_ms: float = 300.0
    failing: bool = False
    full: bool = False
    unreadable: bool = False
    hung_until_s: float = 0.0
    hang_fails: bool = False
    read_ms: float = 0.0
    atomic_ms: float = 0.0
    bytes_free: int | None = None

    def is_calm(self, now_s: float) -> bool:
        """Whether syncs end soon and well."""
        broken = self.failing or self.full or self.unreadable
        slow = self.stall > 0 or self.atomic_ms > 0 or now_s < self.hung_until_s
        return not broken and not slow


NO_SPACE = "simulated: no space left on the disk"
RESERVE_STEP_BYTES = 3000


class SimFile:
    """Bytes that are safe, and bytes that only the page cache has.

    Attributes:
        clean: which of the safe ones are none: a sync of them has failed. Linux takes such pages for
            written, shows them while it has them, and says of every later sync that all is well.
    """

    def __init__(self) -> None:
        self.durable = b""
        self.cached = b""
        self.reserved = 0
        self.clean: list[tuple[int, int]] = []

    @property
    def platter(self) -> bytes:
        """What a reader sees after the power was off, if nothing unsynced was written."""
        if not self.clean:
            return self.durable
        found = bytearray(self.durable)
        for low, high in self.clean:
            found[low:high] = bytes(high - low)
        return bytes(found)

    def sync_failed(self) -> None:
        """What was written since the last one is in no disk, and no sync will bring it there."""
        end = len(self.durable) + len(self.cached)
        self.clean.append((len(self.durable), end))
        self.durable, self.cached = self.durable + self.cached, b""

    @property
    def content(self) -> bytes:
        """What a reader sees while the power is on."""
        return (self.durable + self.cached).ljust(self.reserved, b"\0")

    def power_cut(self, rng: random.Random) -> None:
        """Of the unsynced tail each sector reaches the platter or not, in any order.

        A sector is written whole or not at all. Where one is missing there are zeros; the file's
        length is a thing of its own and may be behind.
        """
        self.durable, self.clean = self.platter, []
        if not self.cached:
            return
        start, whole = len(self.durable), self.durable + self.cached
        kept = bytearray(whole)
        share = rng.choice((0.0, 0.5, 0.9, 1.0))
        for sector in range(start // SECTOR, -(-len(whole) // SECTOR)):
            if rng.random() >= share:
                low, high = max(start, sector * SECTOR), min(len(whole), (sector + 1) * SECTOR)
                kept[low:high] = bytes(high - low)
        if len(whole) > self.reserved and rng.random() < 0.5:
            # The new length did not reach the disk, or not all of it.
            del kept[rng.randint(max(start, self.reserved), len(whole)) :]
        self.durable = bytes(kept)
        self.cached = b""


class SimDisk:
    """Disk port of one host; it outlives the host's processes."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._torn = random.Random()
        self._torn.setstate(rng.getstate())
        self.mood = DiskMood()
        self.files: dict[str, SimFile | SimPages] = {}
        self.cuts = 0
        self.version = 0
        self.room_bytes = 0

    def survivors(self) -> dict[str, bytes]:
        """What is on the platter: the files as they are if nothing unsynced is ever written."""
        found: dict[str, bytes] = {}
        for path in sorted(self.files):
            file = self.files[path]
            if isinstance(file, SimFile):
                found[path] = file.platter.ljust(file.reserved, b"\0")
        return found

    def flip(self, path: str, bit: int) -> None:
        """Turn one bit of what a plain file holds durably."""
        file = self._plain(path)
        content = bytearray(file.durable)
        content[bit // 8] ^= 1 << bit % 8
        file.durable = bytes(content)
        self.version += 1

    def wipe(self) -> None:
        """Lose everything, as when an operator puts a new disk in."""
        self.files.clear()
        self.version += 1

    def lose(self, is_gone: Callable[[str], bool]) -> None:
        """Lose some files, as when an operator removes them."""
        for path in [path for path in self.files if is_gone(path)]:
            del self.files[path]
        self.version += 1

    def mend(self) -> None:
        """Work as a good disk does from now on; what is missing or damaged stays so."""
        self.mood = DiskMood(bytes_free=self.mood.bytes_free)

    def hang(self, duration_ms: float, *, fails: bool) -> None:
        """Let no sync end for so long."""
        now_s = asyncio.get_event_loop().time()
        self.mood.hung_until_s = now_s + duration_ms / 1000
        self.mood.hang_fails = fails

    def power_cut(self) -> int:
        """Of each unsynced tail or page a part survives; how many pages were torn."""
        self.cuts += 1
        self.version += 1
        outcome = Outcome(self.rng, self._torn)
        for path in sorted(self.files):
            file = self.files[path]
            if isinstance(file, SimPages):
                if not file.power_cut(outcome):
                    del self.files[path]
                continue
            file.power_cut(self.rng)
        return outcome.torn

    async def sync(self) -> None:
        """Take the time of one fdatasync."""
        mood = self.mood
        delay = self.rng.uniform(mood.sync_min_ms, mood.sync_max_ms)
        if mood.stall and self.rng.random() < mood.stall:
            delay += mood.stall_ms
        await asyncio.sleep(delay / 1000)
        left_s = mood.hung_until_s - asyncio.get_running_loop().time()
        if left_s > 0:
            await asyncio.sleep(left_s)
            if mood.hang_fails:
                raise DiskFailed("simulated: the sync hung and failed")
        if mood.failing:
            raise DiskFailed("simulated input/output error")

    async def read_slowly(self) -> None:
        """Take the time of one read of what is in no memory."""
        loop = asyncio.get_running_loop()
        left_s = max(0.0, self.mood.hung_until_s - loop.time())
        await asyncio.sleep(left_s + self.mood.read_ms / 1000)
        if self.mood.unreadable:
            raise DiskFailed("simulated: it cannot be read")

    def _needs_space(self) -> None:
        if self.mood.full:
            raise DiskFull(NO_SPACE)

    def lacks_space(self, data: bytes, end: int, reserved: int) -> DiskFull | None:
        """Why a full disk cannot take this append; what was reserved ahead it can."""
        if not self.mood.full or end <= reserved:
            return None
        if self.room_bytes >= len(data):
            self.room_bytes -= len(data)
            return None
        return DiskFull(NO_SPACE)

    async def make_dirs(self, path: str, *, later: bool = False) -> None:
        """Directories need no making here."""

    async def list_dir(self, path: str) -> list[str]:
        """Names in a directory."""
        prefix = path.rstrip("/") + "/"
        return sorted(
            {p[len(prefix) :].partition("/")[0] for p in self.files if p.startswith(prefix)}
        )

    async def survey(self, path: str, head_bytes: int) -> dict[str, list[Surveyed]]:
        """The files of each directory in a directory."""
        found: dict[str, list[Surveyed]] = {}
        if self.mood.unreadable:
            raise DiskFailed(f"simulated: {path} cannot be read")
        for file_path in sorted(self.files):
            folder, _, name = file_path.removeprefix(path.rstrip("/") + "/").partition("/")
            if file_path.startswith(path.rstrip("/") + "/") and name and "/" not in name:
                content = self.files[file_path].content
                head = content.rstrip(b"\0")
                known = head if len(head) <= head_bytes else None
                found.setdefault(folder, []).append(Surveyed(name, len(content), known))
        return found

    async def read(self, path: str) -> bytes:
        """The whole file."""
        if path not in self.files:
            raise FileNotFoundError(path)
        if self.mood.unreadable:
            raise DiskFailed(f"simulated: {path} cannot be read")
        return self.files[path].content

    async def open_append(self, path: str, reserve_bytes: int = 0) -> SimAppendFile:
        """Open or create."""
        if path not in self.files:
            if self.room_bytes == 0:
                self._needs_space()
            await self.sync()
            self.files[path] = SimFile()
            self.version += 1
        return SimAppendFile(self, self._plain(path), reserve_bytes)

    def _plain(self, path: str) -> SimFile:
        file = self.files[path]
        if isinstance(file, SimPages):
            raise DiskFailed(f"{path} is mapped")
        return file

    async def write_again(self, path: str, data: bytes) -> None:
        """The same bytes, durably."""
        file = self._plain(path)
        assert file.content.startswith(data)
        await self.sync()
        file.durable, file.cached, file.clean = data, b"", []
        file.reserved = 0
        self.version += 1

    async def write_atomic(self, path: str, data: bytes) -> None:
        """The old content until the rename, the new one from then on."""
        self._needs_space()
        if self.mood.atomic_ms:
            await asyncio.sleep(self.mood.atomic_ms / 1000)
        await self.sync()
        file = SimFile()
        file.durable = data
        self.files[path] = file
        self.version += 1

    async def remove(self, path: str) -> None:
        """Delete the file, durably."""
        await self.sync()
        gone = self.files.pop(path, None)
        if self.mood.full and isinstance(gone, SimFile):
            self.room_bytes += len(gone.content)
        self.version += 1
        if self.mood.bytes_free is not None and isinstance(gone, SimPages):
            self.mood.bytes_free += gone.reserved

    async def rename(self, path: str, new_path: str) -> None:
        """Give a file another name."""
        await self.sync()
        if path not in self.files:
            raise FileNotFoundError(path)
        self.files[new_path] = self.files.pop(path)

    def map_file(
        self, path: str, size: int, *, create: bool, sparse: bool = False
    ) -> SimMappedFile:
        """Map a file; a plain one of the right length becomes pages."""
        file = self.files.get(path)
        if file is None:
            if not create:
                raise FileNotFoundError(path)
            self.take(path, 0 if sparse else size)
            file = self.files[path] = pages_of(size)
            if sparse:
                file.reserved = 0
        if isinstance(file, SimFile):
            pages = SimPages(len(file.content))
            pages.cached[:] = pages.durable = file.content
            pages.entry_durable = True
            file = self.files[path] = pages
        if len(file.cached) != size:
            raise DiskFailed(f"{path} has {len(file.cached)} bytes, not {size}")
        return SimMappedFile(self, path, file)

    def place(self, path: str, size: int, head: bytes = b"") -> None:
        """Put a file there, with zeros behind its head, as if it had always been there."""
        file = self.files[path] = pages_of(size)
        file.cached[: len(head)] = head
        file.snapshot()()
        file.entry_durable = True

    def map_surveyed(self, path: str, found: Surveyed) -> SimMappedFile:
        """Map a file that is there."""
        return self.map_file(path, found.size, create=False, sparse=True)

    async def prepare_file(self, directory: str, size: int) -> None:
        """Nothing: simulated blocks cost no time."""

    def drop_prepared(self, directory: str) -> None:
        """Nothing was prepared."""

    def take(self, path: str, size: int) -> None:
        """Use up space for blocks of a mapped file; raises DiskFull, or DiskFailed of a broken disk."""
        free = self.mood.bytes_free
        if self.mood.failing:
            raise DiskFailed(f"cannot map {path}: the simulated disk fails")
        if free is not None and free < size:
            raise DiskFull(f"cannot map {path}: no space left on the simulated disk")
        if free is not None:
            self.mood.bytes_free = free - size

    async def file_size(self, path: str) -> int:
        """Length in bytes."""
        if path not in self.files:
            raise FileNotFoundError(path)
        file = self.files[path]
        return len(file.cached if isinstance(file, SimPages) else file.content)


class SimAppendFile:
    """The simulated AppendFile port."""

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
            self._writer.add_done_callback(_tell_loop)

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
            self._disk.version += 1

    async def _write(self) -> None:
        while self._queue:
            data, on_done = self._queue[0]
            end = len(self._file.durable) + len(self._file.cached) + len(data)
            error = self._failed or self._disk.lacks_space(data, end, self._file.reserved)
            if error is None:
                await self._append_one(data)
                error = self._failed
            del self._queue[0]
            on_done(error)
        self._writer = None

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
            file.sync_failed()
            self._disk.version += 1
            return
        file.durable += file.cached
        file.cached = b""
        self._disk.version += 1


def _tell_loop(task: asyncio.Task[None]) -> None:
    """What a caller's ``on_done`` raises must end the run, not just this file's writing."""
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": "append", "exception": error})
