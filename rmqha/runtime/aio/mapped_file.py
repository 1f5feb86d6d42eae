"""One mapped file of the machine, synced through a descriptor of the same file."""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from rmqha.base.errors import DiskFailed
from rmqha.runtime.aio.append_file import write_at
from rmqha.runtime.aio.populate import populated
from rmqha.runtime.aio.prepared_files import PreparedFiles, made

T = TypeVar("T")
ERASE_BYTES = 1 << 20
"""Looked at and erased at a time."""

_ZEROS = bytes(ERASE_BYTES)
_SCRATCH = memoryview(bytearray(65_536))
"""Where the loop puts what it reads only to see whether it is in memory."""


def sync_dir(path: str) -> None:
    """Make a directory's entries durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class SystemMappedFile:
    """MappedFile port: a shared mapping, synced through a descriptor of the same file."""

    def __init__(self, path: str, fd: int, size: int) -> None:
        self._path = path
        self._fd = fd
        self._size = size
        # Who had it before may have been killed between making it and syncing its folder.
        self._is_entry_synced = False
        self._map = mmap.mmap(fd, size)
        self._buffer: memoryview | None = memoryview(self._map)
        # close() may come while a worker thread is at work: the descriptor outlives its work.
        self._guard = threading.Lock()
        self._users = 0
        self._closed = False

    @property
    def path(self) -> str:
        """The absolute path."""
        return self._path

    @property
    def size(self) -> int:
        """The file's length in bytes."""
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

    def reserve(self, end: int) -> None:
        """Nothing: it has all its blocks."""

    def _sync(self) -> None:
        # fdatasync writes the dirty pages of the inode, however they became dirty.
        os.fdatasync(self._fd)
        if not self._is_entry_synced:
            sync_dir(os.path.dirname(self._path))
            self._is_entry_synced = True

    async def sync(self) -> None:
        """Sync the file, and the first time its directory entry too, in a worker thread.

        Raises:
            DiskFailed: what the file holds on disk is unknown from now on.
        """
        await self._in_thread("sync", self._sync)

    def is_cached(self, low: int, high: int) -> bool:
        """Whether the page cache has all of them; True where the system cannot tell."""
        return self._closed or is_cached(self._fd, low, high)

    async def fetch(self, low: int, high: int) -> None:
        """Read bytes in a worker thread.

        Raises:
            DiskFailed: they cannot be read.
        """
        await self._in_thread("read", lambda: read_through(self._fd, low, high))

    async def make_writable(self, *ranges: tuple[int, int]) -> None:
        """Have pages made dirty by a worker thread, which waits for the disk if anybody has to.

        Raises:
            DiskFailed: the file is closed.
        """
        if self._buffer is None:
            raise DiskFailed(f"{self._path} is closed")
        await populated(self._buffer, ranges)

    async def erase(self, low: int, high: int) -> int:
        """Write zeros over what is not zero, in pieces, and sync, in a worker thread.

        Raises:
            DiskFailed: what the file holds on disk is unknown from now on.
        """

        def work() -> int:
            erased = erase_range(self._fd, low, high)
            self._sync()
            return erased

        return await self._in_thread("erase", work)

    async def _in_thread(self, name: str, work: Callable[[], T]) -> T:
        with self._guard:
            if self._closed:
                raise DiskFailed(f"{self._path}: {name} after close")
            self._users += 1

        def run() -> T:
            try:
                return work()
            finally:
                with self._guard:
                    self._users -= 1
                    self._release()

        try:
            return await asyncio.get_running_loop().run_in_executor(None, run)
        except OSError as error:
            raise DiskFailed(f"cannot {name} {self._path}: {error}") from error

    def _release(self) -> None:
        if self._closed and self._users == 0 and self._fd >= 0:
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


def is_cached(fd: int, low: int, high: int) -> bool:
    """Whether bytes can be read without waiting; True where the system cannot tell."""
    while low < high:
        try:
            got = os.preadv(fd, [_SCRATCH[: high - low]], low, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except (AttributeError, OSError):
            return True
        if not got:
            return True  # the file's end
        low += got
    return True


def read_through(fd: int, low: int, high: int) -> None:
    """Read bytes for the page cache's sake."""
    while low < high and (got := len(os.pread(fd, min(ERASE_BYTES, high - low), low))):
        low += got


def erase_range(fd: int, low: int, high: int) -> int:
    """Write zeros where there is anything else; the bytes of the pieces that were written."""
    erased = 0
    for start, end in data_ranges(fd, low, high):
        for at in range(start, end, ERASE_BYTES):
            piece = os.pread(fd, min(ERASE_BYTES, end - at), at)
            if piece != _ZEROS[: len(piece)]:
                write_at(fd, _ZEROS[: len(piece)], at)
                erased += len(piece)
    return erased


def data_ranges(fd: int, low: int, high: int) -> Iterator[tuple[int, int]]:
    """What of [low, high) was ever written; a file system that does not know says all of it."""
    while low < high:
        try:
            start = os.lseek(fd, low, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # nothing but a hole up to the end
            raise
        if start >= high:
            return
        low = min(high, os.lseek(fd, start, os.SEEK_HOLE))
        yield start, low


def open_mapped(path: str, size: int, prepared: PreparedFiles, *, create: bool) -> SystemMappedFile:
    """Map a file; a new one gets all its blocks at once, and its name after them if that can be.

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
        if ready is None:
            # A crash before it has its blocks must leave no file of another length.
            ready = made(path, size)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644) if ready is None else ready
        has_blocks = ready is not None
    try:
        if fresh and not has_blocks:
            # Without blocks of its own a full disk would be a SIGBUS at some later write.
            os.posix_fallocate(fd, 0, size)
        found = os.fstat(fd).st_size
        if found != size:
            raise DiskFailed(f"{path} has {found} bytes, not {size}")
        return SystemMappedFile(path, fd, size)
    except BaseException:
        os.close(fd)
        if fresh:
            os.unlink(path)
        raise
