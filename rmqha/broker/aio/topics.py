"""``config/topics.json``: read at the start, written after changes, copied from a master."""

from __future__ import annotations

from typing import Any

from rmqha.broker.aio.config_file import ConfigFile, FileTroubles
from rmqha.broker.topics import TopicConfig, TopicTable
from rmqha.runtime.ports import Clock, Disk


class TopicFile:
    """The topic table and its file.

    Args:
        path: ``<storePathRootDir>/config/topics.json``.

    Attributes:
        table: the topics; whoever changes them calls :meth:`changed`.
        file: of the table.
    """

    def __init__(self, disk: Disk, clock: Clock, path: str, troubles: FileTroubles) -> None:
        self.table = TopicTable()
        self._clock = clock
        self.file = ConfigFile(disk, clock, path, lambda: self.table.members(), troubles)

    async def load(self, system: list[TopicConfig]) -> None:
        """Read the file and add the system topics that miss; raises as ``ConfigFile.read``."""
        await self.file.read(self._take)
        for topic in system:
            if self.table.get(topic.name) is None:
                self.table.put(topic, self._clock.wall_ms())
        self.changed()

    def _take(self, value: dict[str, Any]) -> None:
        self.table = TopicTable.of(value)

    def changed(self) -> None:
        """Write the table soon."""
        self.file.changed()

    async def save(self) -> None:
        """Write now what has changed; raises DiskFailed."""
        await self.file.save()
