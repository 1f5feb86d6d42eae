"""Files of the machine: plain blocking calls in one worker thread each.

A failed fsync is final (the page cache may have dropped the dirty pages), so every error is a
DiskFailed and the callers stop.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import aiofiles

from rmqha.base.errors import DiskFailed, StoreInUse

T = TypeVar("T")
LOCK_NAME = "LOCK"


def _sync_dir(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


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


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class SystemAppendFile:
    """AppendFile port: write and fdatasync in a thread of its own."""

    def __init__(self, path: str, fd: int, size: int) -> None:
        self._path = path
        self._fd = fd
        self._size = size
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="wal")

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._size

    def _append(self, data: bytes) -> None:
        _write_all(self._fd, data)
        os.fdatasync(self._fd)

    async def append_sync(self, data: bytes) -> None:
        """Append and fdatasync.

        Raises:
            DiskFailed: on any error of the disk.
        """
        self._size += len(data)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._executor, self._append, data)
        except OSError as error:
            raise DiskFailed(f"cannot append to {self._path}: {error}") from error

    async def close(self) -> None:
        """Close the descriptor after what is under way."""
        self._executor.shutdown(wait=True)
        os.close(self._fd)


class SystemDisk:
    """Disk port on the machine's file system."""

    async def _run(self, path: str, call: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(None, call)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise DiskFailed(f"{path}: {error}") from error

    async def make_dirs(self, path: str) -> None:
        """Create a directory and its parents."""
        await self._run(path, lambda: os.makedirs(path, exist_ok=True))

    async def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        try:
            return sorted(await self._run(path, lambda: os.listdir(path)))
        except FileNotFoundError:
            return []

    async def read(self, path: str) -> bytes:
        """The whole file."""
        try:
            async with aiofiles.open(path, "rb") as file:
                return await file.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise DiskFailed(f"{path}: {error}") from error

    async def open_append(self, path: str) -> SystemAppendFile:
        """Open for appending; a new file's directory entry is synced too."""

        def open_file() -> SystemAppendFile:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            _sync_dir(os.path.dirname(path))
            return SystemAppendFile(path, fd, os.fstat(fd).st_size)

        return await self._run(path, open_file)

    async def truncate(self, path: str, size: int) -> None:
        """Cut a file and sync it."""

        def cut() -> None:
            fd = os.open(path, os.O_WRONLY)
            try:
                os.ftruncate(fd, size)
                os.fsync(fd)
            finally:
                os.close(fd)

        await self._run(path, cut)

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Write a temporary file, sync it, rename it over the old one, sync the directory."""
        temporary = path + ".tmp"

        def replace() -> None:
            os.replace(temporary, path)
            _sync_dir(os.path.dirname(path))

        try:
            async with aiofiles.open(temporary, "wb") as file:
                await file.write(data)
                await file.flush()
                await self._run(path, lambda: os.fsync(file.fileno()))
        except OSError as error:
            raise DiskFailed(f"{path}: {error}") from error
        await self._run(path, replace)

    async def remove(self, path: str) -> None:
        """Delete a file and sync its directory."""

        def unlink() -> None:
            try:
                os.unlink(path)
            except FileNotFoundError:
                return
            _sync_dir(os.path.dirname(path))

        await self._run(path, unlink)
