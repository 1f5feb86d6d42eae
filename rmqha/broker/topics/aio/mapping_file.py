"""``config/topicQueueMapping.json``: the mappings of static topics and their file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqha.broker.common.aio.config_file import ConfigFile, FileTroubles, content_of, mark_of
from rmqha.broker.topics.mapping_table import MappingTable
from rmqha.runtime.ports import Clock, Disk


class MappingFile:
    """The table and its file.

    Args:
        path: ``<storePathRootDir>/config/topicQueueMapping.json``.

    Attributes:
        table: whoever changes it calls :meth:`changed`.
        file: of the table.
        members: what the file holds.
        mark: see ``TopicFile``.
        on_changed: told the topics whose mappings have changed.
        found: whether there was a file; a store of an older release has none.
    """

    def __init__(self, disk: Disk, clock: Clock, path: str, troubles: FileTroubles) -> None:
        self.table = MappingTable()
        self.mark: int | None = None
        self.found = False
        self.on_changed: list[Callable[[frozenset[str]], None]] = []
        self.members: Callable[[], dict[str, Any]] = lambda: self.table.members()
        self.file = ConfigFile(disk, clock, path, content_of(lambda: self.members()), troubles)

    async def load(self) -> None:
        """Read the file; raises as ``ConfigFile.read``."""
        self.found = await self.file.read(self._take)

    def _take(self, value: dict[str, Any]) -> None:
        self.table = MappingTable.of(value)
        self.mark = mark_of(value)

    def changed(self) -> None:
        """Write the table soon."""
        self.file.changed()

    def tell(self, topics: frozenset[str]) -> None:
        """The mappings of these topics are others now."""
        for told in self.on_changed:
            told(topics)
