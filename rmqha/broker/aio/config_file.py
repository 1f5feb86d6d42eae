"""One ``config/*.json`` that is written after changes, at most so often, and at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from rmqha.base.errors import RemoteProtocolError, StoreCorrupted
from rmqha.broker.live_config import edited
from rmqha.runtime.ports import Clock, Disk
from rmqha.store.aio.small_files import read_config, write_config


class ConfigText:
    """The properties file that a broker was started with.

    Args:
        path: empty without one; then changes last for as long as the process.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._writing = asyncio.Lock()

    async def change(self, changed: Mapping[str, str]) -> None:
        """Write other values; raises DiskFailed, and then the file is as it was."""
        if not self._path:
            return
        async with self._writing:
            try:
                before = (await self._disk.read(self._path)).decode("utf-8", "surrogateescape")
            except FileNotFoundError:
                before = ""
            text = edited(before, changed).encode("utf-8", "surrogateescape")
            await self._disk.write_atomic(self._path, text)


class ConfigFile:
    """A table and its file.

    Args:
        path: of the file.
        members: the table's present content.
        period_ms: shortest pause between two writes; 0 writes after every change.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        path: str,
        members: Callable[[], dict[str, Any]],
        *,
        period_ms: int = 0,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._path = path
        self._members = members
        self._period_ms = period_ms
        self._dirty = asyncio.Event()
        self._writing = asyncio.Lock()

    async def read(self, take: Callable[[dict[str, Any]], None]) -> bool:
        """Give the file's content to ``take``; False when there is no file yet.

        Raises:
            StoreCorrupted: neither the file nor its backup can be read, or ``take`` refused it.
            DiskFailed: the disk cannot be read.
        """
        value = await read_config(self._disk, self._path)
        if value is None:
            return False
        try:
            take(value)
        except RemoteProtocolError as error:
            raise StoreCorrupted(f"{self._path}: {error}") from error
        return True

    def changed(self) -> None:
        """Write the table soon."""
        self._dirty.set()

    async def run(self) -> None:
        """Write after changes, for ever; raises DiskFailed, and then the broker must stop."""
        while True:
            await self._dirty.wait()
            if self._period_ms:
                await self._clock.sleep(self._period_ms)
            await self.save()

    async def save(self) -> None:
        """Write now what has changed; raises DiskFailed."""
        async with self._writing:
            if self._dirty.is_set():
                self._dirty.clear()
                await write_config(self._disk, self._path, self._members())
