"""One mapped file of the machine, synced through a descriptor of the same file."""

from __future__ import annotations

import asyncio
import mmap
import os
import threading

from rmqha.base.errors import DiskFailed
from rmqha.runtime.aio.append_file import write_at
from rmqha.runtime.aio.prepared_files import PreparedFiles


def sync_dir(path: str) -> None:
    """Make a directory's entries durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class SystemMappedFile:
    """MappedFile port: a shared mapping, synced through a descriptor of the same file."""

    def __init__(self, path: str, fd: int, size: int, *, fresh: bool) -> None:
        self._path = path
        self._fd = fd
        self._size = size
        self._fresh = fresh
        self._map = mmap.mmap(fd, size)
        self._buffer: memoryview | None = memoryview(self._map)
        # close() may come while a worker thread still syncs: the descriptor outlives the sync.
        self._guard = threading.Lock()
        self._syncing = 0
        self._closed = False

    @property
    def path(self) -> str:
        """The absolute path."""
        return self._path

    @property
    def size(self) -> int:
        """Bytes."""
        return self._size

    @property
    def buffer(self) -> memoryview:
        """The whole file."""
        if self._buffer is None:
            raise ValueError(f"{self._path} is closed")
        return self._buffer

    def write(self, position: int, data: memoryview) -> None:
        """Copy bytes into the page cache by a system call."""
        try:
            write_at(self._fd, data, position)
        except OSError as error:
            raise DiskFailed(f"cannot write {self._path}: {error}") from error

    def _sync(self) -> None:
        # fdatasync writes the dirty pages of the inode, however they became dirty.
        os.fdatasync(self._fd)
        if self._fresh:
            sync_dir(os.path.dirname(self._path))
            self._fresh = False

    async def sync(self) -> None:
        """Sync the file, and the first time its directory entry too, in a worker thread.

        Raises:
            DiskFailed: what the file holds on disk is unknown from now on.
        """
        with self._guard:
            if self._closed:
                raise DiskFailed(f"{self._path}: sync after close")
            self._syncing += 1

        def work() -> None:
            try:
                self._sync()
            finally:
                with self._guard:
                    self._syncing -= 1
                    self._release()

        try:
            await asyncio.get_running_loop().run_in_executor(None, work)
        except OSError as error:
            raise DiskFailed(f"cannot sync {self._path}: {error}") from error

    def _release(self) -> None:
        if self._closed and self._syncing == 0 and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Release descriptor and mapping; slices that are still held keep the mapping alive."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            self._release()
        self._buffer = None
        try:
            self._map.close()
        except BufferError:
            # Somebody still sends a slice: the last of them unmaps by its reference.
            del self._map


def open_mapped(path: str, size: int, prepared: PreparedFiles, *, create: bool) -> SystemMappedFile:
    """Map a file; a new one gets all its blocks at once.

    Raises:
        FileNotFoundError: there is none and ``create`` is false.
        OSError: the disk is full, or it cannot be opened.
        DiskFailed: it has another size.
    """
    fresh = has_blocks = False
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        if not create:
            raise
        fresh = True
        ready = prepared.take(path, size)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644) if ready is None else ready
        has_blocks = ready is not None
    try:
        if fresh and not has_blocks:
            # Without blocks of its own a full disk would be a SIGBUS at some later write.
            os.posix_fallocate(fd, 0, size)
        found = os.fstat(fd).st_size
        if found != size:
            raise DiskFailed(f"{path} has {found} bytes, not {size}")
        return SystemMappedFile(path, fd, size, fresh=fresh)
    except BaseException:
        os.close(fd)
        if fresh:
            os.unlink(path)
        raise
