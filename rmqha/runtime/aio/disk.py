"""Files of the machine: plain blocking calls in worker threads.

A failed fsync is final (the page cache may have dropped the dirty pages), so every error is a
DiskFailed and the callers stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
from collections.abc import Callable
from typing import TypeVar

import aiofiles

from rmqha.base.errors import DiskFailed, DiskFull, StoreInUse
from rmqha.runtime.aio.append_file import FULL, SystemAppendFile, write_at
from rmqha.runtime.aio.mapped_file import SystemMappedFile, open_mapped, sync_dir
from rmqha.runtime.aio.prepared_files import PreparedFiles
from rmqha.runtime.aio.sparse_file import MappedPool, SparseMappedFile, open_sparse, survey
from rmqha.runtime.ports import Surveyed

T = TypeVar("T")
LOCK_NAME = "LOCK"


def _make_dirs(path: str, unsynced: set[str] | None = None) -> None:
    """Make missing directories from the top on, each with its entry synced.

    With ``unsynced`` they are put there instead.
    """
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        # Somebody else may make it at the same time; its entry must be durable for us as well.
        if unsynced is not None:
            unsynced.add(directory)
        os.makedirs(directory, exist_ok=True)
        if unsynced is None:
            sync_dir(os.path.dirname(directory))


def lock_directory(path: str) -> int:
    """Keep every other process out of a directory until this one ends.

    Returns:
        The descriptor that holds the lock.

    Raises:
        StoreInUse: another process holds it.
        DiskFailed: the directory cannot be made or locked.
    """
    try:
        os.makedirs(path, exist_ok=True)
        fd = os.open(os.path.join(path, LOCK_NAME), os.O_WRONLY | os.O_CREAT, 0o644)
    except OSError as error:
        raise DiskFailed(f"{path}: {error}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if isinstance(error, BlockingIOError):
            raise StoreInUse(f"{path} is in use by another process") from error
        raise DiskFailed(f"{path}: {error}") from error
    return fd


def lock_first_byte(path: str) -> int:
    """Keep every other process, Java brokers included, out of a store by its ``lock`` file.

    Java locks the byte range [0, 1) of ``<storePathRootDir>/lock`` and writes the word "lock"
    into it (RocketMQ's protocol as observed).

    Returns:
        The descriptor that holds the lock until it is closed.

    Raises:
        StoreInUse: another process holds it.
        DiskFailed: the file cannot be made or locked.
    """
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise DiskFailed(f"{path}: {error}") from error
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        os.pwrite(fd, b"lock", 0)
    except OSError as error:
        os.close(fd)
        if isinstance(error, (BlockingIOError, PermissionError)):
            raise StoreInUse(f"{path} is locked by another process") from error
        raise DiskFailed(f"{path}: {error}") from error
    return fd


class SystemDiskUse:
    """DiskUse port: the file systems of a commit log, and of the rest of its store.

    The paths must exist when the first question comes.
    """

    def __init__(self, commit_log: str, root: str) -> None:
        self._commit_log = commit_log
        self._root = root

    def __call__(self) -> float:
        """Share of the commit log's that is in use, 0.0 to 1.0, as ``df`` counts it."""
        return _used_share(self._commit_log)

    def of_queues(self) -> float:
        """That of the queues' and all the rest."""
        return _used_share(self._root)

    def space(self) -> tuple[int, int]:
        """All bytes of the commit log's, and the free ones."""
        found = os.statvfs(self._commit_log)
        return found.f_blocks * found.f_frsize, found.f_bfree * found.f_frsize


def _used_share(path: str) -> float:
    found = os.statvfs(path)
    used = found.f_blocks - found.f_bfree
    return used / max(1, used + found.f_bavail)


def _failure(path: str, error: OSError) -> DiskFailed:
    kind = DiskFull if error.errno in FULL else DiskFailed
    return kind(f"{path}: {error}")


class SystemDisk:
    """Disk port on the machine's file system."""

    def __init__(self) -> None:
        self._prepared = PreparedFiles()
        self._pool = MappedPool()

    async def _run(self, path: str, call: Callable[[], T], *, looks: bool = False) -> T:
        """Call it in a worker thread.

        Args:
            looks: that there is no such file is an answer, and no failure.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(None, call)
        except OSError as error:
            if looks and isinstance(error, FileNotFoundError):
                raise
            raise _failure(path, error) from error

    async def make_dirs(self, path: str, *, later: bool = False) -> None:
        """Create a directory and its parents."""
        unsynced = self._pool.unsynced if later else None
        await self._run(path, lambda: _make_dirs(path, unsynced))

    async def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        try:
            return sorted(await self._run(path, lambda: os.listdir(path), looks=True))
        except FileNotFoundError:
            return []

    async def survey(self, path: str, head_bytes: int) -> dict[str, list[Surveyed]]:
        """All of it in one turn of a worker thread."""
        try:
            return await self._run(path, lambda: survey(path, head_bytes), looks=True)
        except FileNotFoundError:
            return {}

    async def read(self, path: str) -> bytes:
        """The whole file."""
        try:
            async with aiofiles.open(path, "rb") as file:
                return await file.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise DiskFailed(f"{path}: {error}") from error

    async def open_append(self, path: str, reserve_bytes: int = 0) -> SystemAppendFile:
        """Open for appending; a new file's directory entry is synced too."""

        def open_file() -> tuple[int, int]:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
            sync_dir(os.path.dirname(path))
            return fd, os.fstat(fd).st_size

        fd, size = await self._run(path, open_file)
        return SystemAppendFile(path, fd, size, reserve_bytes)

    async def write_again(self, path: str, data: bytes) -> None:
        """Write a file's first bytes in their places, cut what is behind, and sync it."""

        def write() -> None:
            fd = os.open(path, os.O_WRONLY)
            try:
                write_at(fd, data, 0)
                os.ftruncate(fd, len(data))
                os.fsync(fd)
            finally:
                os.close(fd)

        await self._run(path, write)

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Write a temporary file, sync it, rename it over the old one, sync the directory.

        All in one turn of a worker thread: a new master's first write waits for such files. Whose a
        file is stays so, and nobody may read it who could not read it before.
        """

        def replace() -> None:
            temporary = path + ".tmp"
            try:
                with open(temporary, "wb") as file:
                    _close_as_before(file.fileno(), path)
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
            os.replace(temporary, path)
            sync_dir(os.path.dirname(path))

        try:
            await asyncio.get_running_loop().run_in_executor(None, replace)
        except OSError as error:
            raise _failure(path, error) from error

    async def remove(self, path: str) -> None:
        """Delete a file and sync its directory."""

        def unlink() -> None:
            try:
                os.unlink(path)
            except FileNotFoundError:
                return
            sync_dir(os.path.dirname(path))

        await self._run(path, unlink)

    async def rename(self, path: str, new_path: str) -> None:
        """Rename a file and sync its directory."""

        def replace() -> None:
            os.replace(path, new_path)
            sync_dir(os.path.dirname(new_path))

        await self._run(path, replace, looks=True)

    def map_file(
        self, path: str, size: int, *, create: bool, sparse: bool = False
    ) -> SystemMappedFile | SparseMappedFile:
        """Map a file; a new one gets all its blocks at once, unless it is ``sparse``.

        Raises:
            FileNotFoundError: there is none and ``create`` is false.
            DiskFull: there is no room for a new one; nothing is left of it.
            DiskFailed: it has another size, or cannot be opened.
        """
        try:
            if sparse:
                return open_sparse(self._pool, path, size, create=create)
            return open_mapped(path, size, self._prepared, create=create)
        except OSError as error:
            if not create and isinstance(error, FileNotFoundError):
                raise
            raise _failure(f"cannot map {path}", error) from error

    def map_surveyed(self, path: str, found: Surveyed) -> SparseMappedFile:
        """Mapped when somebody looks at it."""
        reserved = found.size if found.has_blocks else 0
        return SparseMappedFile(self._pool, path, found.size, found.inode, reserved=reserved)

    async def prepare_file(self, directory: str, size: int) -> None:
        """Reserve the next file's blocks in a worker thread; see ``PreparedFiles``."""
        await self._run(directory, lambda: self._prepared.prepare(directory, size))

    def drop_prepared(self, directory: str) -> None:
        """Give back what was prepared and not used."""
        self._prepared.drop(directory)

    async def file_size(self, path: str) -> int:
        """Length in bytes."""
        return await self._run(path, lambda: os.stat(path).st_size, looks=True)


def _close_as_before(fd: int, path: str) -> None:
    """A new file is whose the one was that it replaces, and as closed at least; ``fileUmask`` counts too."""
    try:
        before, now = os.stat(path), os.fstat(fd)
    except FileNotFoundError:
        return
    if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid):
        with contextlib.suppress(PermissionError):  # who is not root gives nothing away
            os.fchown(fd, before.st_uid, before.st_gid)
    closed = before.st_mode & now.st_mode
    if closed != now.st_mode:
        os.fchmod(fd, stat.S_IMODE(closed))
