"""Mapped files that get their blocks in steps, of which only those in use are mapped.

A store has a file for every queue, and most of them hold next to nothing. One that were given all
its blocks would take 5.8 MB for its first message; one that is mapped takes a descriptor and one of
the 65,530 mappings that Linux allows a process. So blocks come before the bytes that need them, for
a page without one is a SIGBUS on a full disk, and whoever has not been looked at for longest is
unmapped: the page cache keeps what it wrote, and a sync needs no mapping.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import resource
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from rmqha.base.errors import DiskFailed, DiskFull
from rmqha.runtime.aio.append_file import FULL, write_at
from rmqha.runtime.aio.mapped_file import data_ranges, erase_range, sync_dir
from rmqha.runtime.aio.populate import populated
from rmqha.runtime.ports import Surveyed

T = TypeVar("T")
FIRST_BYTES = 4096
STEP_BYTES_MAX = 1 << 20
"""A file grows by as much as it has, between these two."""

MAPPED_MAX = 16_384
MAPPED_MIN = 64
DESCRIPTORS_SHARE = 4
"""Of the descriptors that the process may have, the mapped files may take one in so many."""

FOLDERS = 3
"""That a queue's file lies in below its store: those of its queue, its topic, and all queues."""

LOOKED_AT = 64
"""Files that are looked at for one that has rested; of these the first goes if none has."""


class MappedPool:
    """Knows which sparse files are mapped.

    Args:
        mapped_max: of them at once; None goes by the descriptors that the process may have.

    Attributes:
        unsynced: directories whose own entries may not be durable. Each goes after the sync that
            made it so: who finds it here does not wait for another's, but syncs as well.
        synced: those that are known to be durable.
    """

    def __init__(self, mapped_max: int | None = None) -> None:
        self._max = mapped_max
        self.unsynced: set[str] = set()
        self.synced: set[str] = set()
        self._mapped: OrderedDict[SparseMappedFile, None] = OrderedDict()

    @property
    def count(self) -> int:
        """Files that are mapped."""
        return len(self._mapped)

    def admit(self, file: SparseMappedFile) -> None:
        """A file is mapped now; another may have to go."""
        if self._max is None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            share = MAPPED_MAX if soft == resource.RLIM_INFINITY else soft // DESCRIPTORS_SHARE
            self._max = max(MAPPED_MIN, min(MAPPED_MAX, share))
        self._mapped[file] = None
        if len(self._mapped) > self._max:
            self._let_go(file)

    def forget(self, file: SparseMappedFile) -> None:
        """A file is closed."""
        self._mapped.pop(file, None)

    def _let_go(self, new: SparseMappedFile) -> None:
        first = None
        for _ in range(min(LOOKED_AT, len(self._mapped) - 1)):
            file = next(iter(self._mapped))
            if not file.is_busy():
                break
            first = first or file
            self._mapped.move_to_end(file)
        else:
            file = first or next(iter(self._mapped))
        if file is not new:
            del self._mapped[file]
            file.unmap()


class SparseMappedFile:
    """MappedFile port. Whoever writes through ``buffer`` calls ``reserve`` before.

    Args:
        inode: of the file, so that another one that has taken its name is told from it.
        reserved: bytes from the start on that are known to have blocks.
    """

    def __init__(
        self, pool: MappedPool, path: str, size: int, inode: int, *, reserved: int
    ) -> None:
        self._pool = pool
        self._path = path
        self._size = size
        self._inode = inode
        self._reserved = reserved
        # Whoever made it, or its folders, may have been killed before he synced them.
        self._is_entry_synced = False
        self._map: mmap.mmap | None = None
        self._buffer: memoryview | None = None
        self._looked_at = False
        self._unsynced = False
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
        """The whole file; mapped again if it was not.

        Raises:
            DiskFailed: it cannot be mapped.
        """
        self._looked_at = True
        return self._map_again() if self._buffer is None else self._buffer

    @property
    def is_mapped(self) -> bool:
        """Whether it takes a mapping now."""
        return self._map is not None

    def is_busy(self) -> bool:
        """Whether it was looked at since this was last asked, or holds what was never synced.

        The system tells of a write that failed only as long as it remembers the file, which it
        does while that is mapped.
        """
        looked_at, self._looked_at = self._looked_at, False
        return looked_at or self._unsynced

    def unmap(self) -> None:
        """Release the mapping until somebody looks again; slices that are held stay good."""
        mapped, self._map, self._buffer = self._map, None, None
        if mapped is not None:
            # While slices are held it stays; the last of them unmaps by its reference.
            with contextlib.suppress(BufferError):
                mapped.close()

    def _map_again(self) -> memoryview:
        if self._closed:
            raise ValueError(f"{self._path} is closed")
        try:
            fd = self._open()
            if fd is None:
                raise DiskFailed(f"{self._path} has gone, or is another file now")
            try:
                self._map = _map(fd, self._size)
            finally:
                os.close(fd)
        except (OSError, ValueError) as error:  # the latter of a file that has become shorter
            raise DiskFailed(f"cannot map {self._path}: {error}") from error
        self._buffer = memoryview(self._map)
        self._pool.admit(self)
        return self._buffer

    def _open(self) -> int | None:
        """A descriptor; None when the file has gone, whatever has its name now."""
        try:
            fd = os.open(self._path, os.O_RDWR)
        except FileNotFoundError:
            return None
        if os.fstat(fd).st_ino != self._inode:
            os.close(fd)
            return None
        return fd

    def reserve(self, end: int) -> None:
        """Get blocks for what lies before ``end``, and for some more.

        Raises:
            DiskFull: there are none; nothing was changed.
            DiskFailed: another error.
        """
        self._unsynced = True
        if end <= self._reserved:
            return
        step = min(max(self._reserved, FIRST_BYTES), STEP_BYTES_MAX)
        wanted = min(self._size, max(end, self._reserved + step))
        try:
            self._allocate(wanted)
        except OSError as error:
            if error.errno not in FULL:
                raise DiskFailed(f"cannot reserve blocks of {self._path}: {error}") from error
            try:
                self._allocate(end)
            except OSError as last:
                raise DiskFull(f"cannot reserve blocks of {self._path}: {last}") from last

    def _allocate(self, end: int) -> None:
        fd = self._open()
        if fd is None:
            raise DiskFailed(f"{self._path} has gone, or is another file now")
        try:
            os.posix_fallocate(fd, self._reserved, end - self._reserved)
        finally:
            os.close(fd)
        self._reserved = end

    def write(self, position: int, data: memoryview) -> None:
        """Copy bytes into the page cache by a system call."""
        try:
            fd = self._open()
            if fd is None:
                raise DiskFailed(f"{self._path} has gone, or is another file now")
            self._unsynced = True
            try:
                write_at(fd, data, position)
            finally:
                os.close(fd)
        except OSError as error:
            raise DiskFailed(f"cannot write {self._path}: {error}") from error

    def is_cached(self, low: int, high: int) -> bool:
        """Not looked at: a reader of a queue needs one page of it or two."""
        return True

    async def fetch(self, low: int, high: int) -> None:
        """There is nothing to fetch here."""

    async def make_writable(self, *ranges: tuple[int, int]) -> None:
        """Have blocks reserved, and pages made dirty, by a thread that waits for it.

        Nothing while it is not mapped. A disk that is behind lets who reserves blocks wait for its
        journal, for seconds.
        """
        if self._buffer is not None and ranges:
            end = max(high for _, high in ranges)
            await populated(self._buffer, ranges, lambda: self._reserve_if_possible(end))

    def _reserve_if_possible(self, end: int) -> None:
        with contextlib.suppress(DiskFailed):  # whoever writes learns why
            self.reserve(end)

    async def sync(self) -> None:
        """Sync the file, and the first time its directory entry too, in a worker thread.

        Raises:
            DiskFailed: what the file holds on disk is unknown from now on.
        """
        await self._in_thread("sync", lambda fd: None)

    async def erase(self, low: int, high: int) -> int:
        """Write zeros over what is not zero, in pieces, and sync, in a worker thread.

        Raises:
            DiskFailed: what the file holds on disk is unknown from now on.
        """
        return await self._in_thread("erase", lambda fd: erase_range(fd, low, high)) or 0

    async def _in_thread(self, name: str, work: Callable[[int], T]) -> T | None:
        """Work on the file and sync it; None when there is no such file any more."""
        if self._closed:
            raise DiskFailed(f"{self._path}: {name} after close")
        self._unsynced = False

        def run() -> T | None:
            fd = self._open()
            if fd is None:
                return None
            try:
                done = work(fd)
                os.fdatasync(fd)
            finally:
                os.close(fd)
            if not self._is_entry_synced:
                self._sync_above()
                self._is_entry_synced = True
            return done

        try:
            return await asyncio.get_running_loop().run_in_executor(None, run)
        except OSError as error:
            raise DiskFailed(f"cannot {name} {self._path}: {error}") from error

    def _sync_above(self) -> None:
        directory, pool, left = os.path.dirname(self._path), self._pool, FOLDERS
        sync_dir(directory)
        while directory in pool.unsynced or (left > 0 and directory not in pool.synced):
            above = os.path.dirname(directory)
            sync_dir(above)
            pool.unsynced.discard(directory)
            pool.synced.add(directory)
            directory, left = above, left - 1

    def close(self) -> None:
        """Release the mapping for good."""
        self._closed = True
        self._pool.forget(self)
        self.unmap()


def _map(fd: int, size: int) -> mmap.mmap:
    if sys.version_info >= (3, 13):
        mapped = mmap.mmap(fd, size, trackfd=False)
    else:
        mapped = mmap.mmap(fd, size)  # keeps a descriptor of its own
    if hasattr(mmap, "MADV_RANDOM"):
        # Else the first byte brings as much of the hole into memory as the device reads ahead: with
        # 8 MiB a whole file of zeros, 9 ms for each new queue.
        mapped.madvise(mmap.MADV_RANDOM)
    return mapped


def open_sparse(pool: MappedPool, path: str, size: int, *, create: bool) -> SparseMappedFile:
    """Open a file without mapping it yet; a new one is a hole.

    Raises:
        FileNotFoundError: there is none and ``create`` is false.
        OSError: it cannot be opened or made.
        DiskFailed: it has another size.
    """
    fresh = False
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        if not create:
            raise
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        fresh = True
    try:
        if fresh:
            os.ftruncate(fd, size)
        found = os.fstat(fd)
        if found.st_size != size:
            raise DiskFailed(f"{path} has {found.st_size} bytes, not {size}")
    except BaseException:
        if fresh:
            os.unlink(path)
        raise
    finally:
        os.close(fd)
    # Where a file of another program or release has holes is not known.
    reserved = size if found.st_blocks * 512 >= size else 0
    return SparseMappedFile(pool, path, size, found.st_ino, reserved=reserved)


def survey(path: str, head_bytes: int) -> dict[str, list[Surveyed]]:
    """The files of each directory in ``path``; see ``Disk.survey``.

    Raises:
        OSError: it cannot be read.
    """
    if not os.path.isdir(path):
        return {}
    with os.scandir(path) as entries:
        folders = sorted(entry.name for entry in entries if entry.is_dir())
    if not head_bytes:
        return {folder: [] for folder in folders}  # not all of them may be looked into
    return {folder: _files_of(f"{path}/{folder}", head_bytes) for folder in folders}


def _files_of(folder: str, head_bytes: int) -> list[Surveyed]:
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_file())
    found = []
    for name in names:
        fd = os.open(f"{folder}/{name}", os.O_RDONLY)
        try:
            stat = os.fstat(fd)
            size, end = stat.st_size, 0
            for _, end in data_ranges(fd, 0, size):
                if end > head_bytes:
                    break
            head = None if end > head_bytes else os.pread(fd, end, 0)
        finally:
            os.close(fd)
        has_blocks = stat.st_blocks * 512 >= size
        found.append(Surveyed(name, size, head, stat.st_ino, has_blocks))
    return found
