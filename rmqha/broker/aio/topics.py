"""``config/topics.json``: read at the start, written after changes, copied from a master."""

from __future__ import annotations

import asyncio

from rmqha.base.errors import RemoteProtocolError, StoreCorrupted
from rmqha.broker.topics import TopicConfig, TopicTable
from rmqha.runtime.ports import Clock, Disk
from rmqha.store.aio.small_files import read_config, write_config


class TopicFile:
    """The topic table and its file.

    Args:
        path: ``<storePathRootDir>/config/topics.json``.

    Attributes:
        table: the topics; whoever changes them calls :meth:`changed`.
    """

    def __init__(self, disk: Disk, clock: Clock, path: str) -> None:
        self.table = TopicTable()
        self._disk = disk
        self._clock = clock
        self._path = path
        self._dirty = asyncio.Event()
        self._writing = asyncio.Lock()

    async def load(self, system: list[TopicConfig]) -> None:
        """Read the file and add the system topics that miss.

        Raises:
            StoreCorrupted: neither the file nor its backup can be read.
            DiskFailed: the disk cannot.
        """
        value = await read_config(self._disk, self._path)
        if value is not None:
            try:
                self.table = TopicTable.of(value)
            except RemoteProtocolError as error:
                raise StoreCorrupted(f"{self._path}: {error}") from error
        for topic in system:
            if self.table.get(topic.name) is None:
                self.table.put(topic, self._clock.wall_ms())
        await self.save()

    def changed(self) -> None:
        """Write the table soon."""
        self._dirty.set()

    async def run(self) -> None:
        """Write the table after changes, for ever.

        Raises:
            DiskFailed: the broker must stop.
        """
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await self.save()

    async def save(self) -> None:
        """Write the table now; raises DiskFailed."""
        async with self._writing:
            await write_config(self._disk, self._path, self.table.members())
