"""``config/topics.json``: read at the start, written after changes, copied from a master."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqha.broker.common.aio.config_file import ConfigFile, FileTroubles, content_of, mark_of
from rmqha.broker.topics.topic_table import TopicConfig, TopicTable
from rmqha.runtime.ports import Clock, Disk


class TopicFile:
    """The topic table and its file.

    Args:
        path: ``<storePathRootDir>/config/topics.json``.

    Attributes:
        table: the topics; whoever changes them calls :meth:`changed`.
        file: of the table.
        members: what the file holds.
        mark: records of the log that begin before are in the table that was read; None for a
            table of which nobody knows that.
    """

    def __init__(self, disk: Disk, clock: Clock, path: str, troubles: FileTroubles) -> None:
        self.table = TopicTable()
        self.mark: int | None = None
        self.members: Callable[[], dict[str, Any]] = lambda: self.table.members()
        self._clock = clock
        self.file = ConfigFile(disk, clock, path, content_of(lambda: self.members()), troubles)

    async def load(self, system: list[TopicConfig]) -> None:
        """Read the file and add the system topics that miss; raises as ``ConfigFile.read``."""
        await self.file.read(self._take)
        for topic in system:
            if self.table.get(topic.name) is None:
                self.table.put(topic, self._clock.wall_ms())
        self.changed()

    def _take(self, value: dict[str, Any]) -> None:
        self.table = TopicTable.of(value)
        self.mark = mark_of(value)

    def changed(self) -> None:
        """Write the table soon."""
        self.file.changed()

    async def save(self) -> None:
        """Write now what has changed; raises DiskFailed."""
        await self.file.save()
