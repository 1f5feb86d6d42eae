"""A simulated disk: what was not synced is lost with the power, whole or in part."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from rmqha.base.errors import DiskFailed


@dataclass(slots=True)
class DiskMood:
    """How the disk behaves; durations are milliseconds.

    Attributes:
        sync_min_ms, sync_max_ms: of one fdatasync.
        stall, stall_ms: share of syncs that take this much longer.
        failing: every write fails from now on.
    """

    sync_min_ms: float = 0.2
    sync_max_ms: float = 2.0
    stall: float = 0.0
    stall_ms: float = 300.0
    failing: bool = False


class SimFile:
    """Bytes that are safe, and bytes that only the page cache has."""

    def __init__(self) -> None:
        self.durable = b""
        self.cached = b""

    @property
    def content(self) -> bytes:
        """What a reader sees while the power is on."""
        return self.durable + self.cached


class SimDisk:
    """Disk port of one host; it outlives the host's processes."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.mood = DiskMood()
        self.files: dict[str, SimFile] = {}

    def power_cut(self) -> None:
        """Of each unsynced tail a part survives, possibly followed by zeros."""
        for path in sorted(self.files):
            file = self.files[path]
            if not file.cached:
                continue
            kept = self.rng.randint(0, len(file.cached))
            tail = file.cached[:kept]
            if self.rng.random() < 0.3:
                # The file's length reached the disk, its last pages did not.
                tail += bytes(len(file.cached) - kept)
            file.durable += tail
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

    async def make_dirs(self, path: str) -> None:
        """Directories need no making here."""

    async def list_dir(self, path: str) -> list[str]:
        """Names in a directory."""
        prefix = path.rstrip("/") + "/"
        return sorted(p[len(prefix) :] for p in self.files if p.startswith(prefix))

    async def read(self, path: str) -> bytes:
        """The whole file."""
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path].content

    async def open_append(self, path: str) -> SimAppendFile:
        """Open or create."""
        if path not in self.files:
            await self.sync()
            self.files[path] = SimFile()
        return SimAppendFile(self, self.files[path])

    async def truncate(self, path: str, size: int) -> None:
        """Cut, durably."""
        await self.sync()
        file = self.files[path]
        file.durable, file.cached = file.content[:size], b""

    async def write_atomic(self, path: str, data: bytes) -> None:
        """The old content until the rename, the new one from then on."""
        await self.sync()
        file = SimFile()
        file.durable = data
        self.files[path] = file

    async def remove(self, path: str) -> None:
        """Delete."""
        await self.sync()
        self.files.pop(path, None)


class SimAppendFile:
    """AppendFile port."""

    def __init__(self, disk: SimDisk, file: SimFile) -> None:
        self._disk = disk
        self._file = file

    @property
    def size(self) -> int:
        """Bytes written."""
        return len(self._file.content)

    async def append_sync(self, data: bytes) -> None:
        """Cached at once, durable after the sync."""
        self._file.cached += data
        await self._disk.sync()
        self._file.durable += self._file.cached
        self._file.cached = b""

    async def close(self) -> None:
        """Nothing to release."""
