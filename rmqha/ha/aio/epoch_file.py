"""``epochFileCheckpoint`` and its ``.bak`` on disk: each is whole, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from rmqha.base.errors import StoreCorrupted
from rmqha.ha.epochs import EpochEntry, LoadedEpochs, format_epochs, load_epochs
from rmqha.runtime.ports import Disk

BACKUP_SUFFIX = ".bak"


class EpochFile:
    """The epoch file of one store.

    Args:
        disk: where it is.
        path: ``<storePathRootDir>/epochFileCheckpoint``; its directory exists.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._current: bytes | None = None

    async def load(self) -> LoadedEpochs:
        """Read the file, or its backup if it is missing or damaged.

        Raises:
            StoreCorrupted: neither can be used.
            DiskFailed: the disk cannot be read.
        """
        main = await self._read(self._path)
        backup = await self._read(self._path + BACKUP_SUFFIX)
        try:
            loaded = load_epochs(main, backup)
        except StoreCorrupted as error:
            raise StoreCorrupted(f"{self._path}: {error}") from error
        self._current = main if loaded.damage is None else backup
        return loaded

    async def _read(self, path: str) -> bytes | None:
        try:
            return await self._disk.read(path)
        except FileNotFoundError:
            return None

    async def write(self, entries: Iterable[EpochEntry]) -> None:
        """Keep the old text as the backup, and replace the file; durable on return.

        Without entries both files go: Java would read an empty file's backup.

        Raises:
            DiskFailed: the store must stop.
        """
        text = format_epochs(listed := tuple(entries))
        if not listed:
            await self._disk.remove(self._path + BACKUP_SUFFIX)
            await self._disk.remove(self._path)
            self._current = None
            return
        # Each is whole whenever the other is: nothing is gained by one after the other, and a new
        # master writes no message before both are there.
        writes = [self._disk.write_atomic(self._path, text)]
        if self._current is not None:
            writes.append(self._disk.write_atomic(self._path + BACKUP_SUFFIX, self._current))
        # Both have ended, whatever became of the first: whoever tries again writes the same files.
        for failed in await asyncio.gather(*writes, return_exceptions=True):
            if failed is not None:
                raise failed
        self._current = text
