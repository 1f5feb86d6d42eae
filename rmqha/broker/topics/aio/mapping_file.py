"""``config/topicQueueMapping.json``: the mappings of static topics and their file."""

from __future__ import annotations

from collections.abc import Callable, Collection
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
        found: whether there was a file; a store of an older release has none.
        on_changed: told which topics have another mapping now, or none.
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
        self.changed()

    def _take(self, value: dict[str, Any]) -> None:
        self.table = MappingTable.of(value)
        self.mark = mark_of(value)

    def changed(self) -> None:
        """Write the table soon."""
        self.file.changed()

    def tell(self, topics: Collection[str]) -> None:
        """Keep the mappings, and tell who waits for them, when those of ``topics`` are others."""
        if not topics:
            return
        self.changed()
        for told in self.on_changed:
            told(frozenset(topics))

    def replace(self, table: MappingTable) -> None:
        """The mappings are those of another table."""
        before, self.table = self.table.items, table
        names = before.keys() | table.items.keys()
        self.tell({name for name in names if before.get(name) != table.get(name)})
        self.changed()

    def merge(self, table: MappingTable, gone: frozenset[str], wall_ms: int) -> int:
        """Take what another table has, and drop ``gone``; how many mappings changed."""
        before = dict(self.table.items)
        count = self.table.take(table, gone, wall_ms)
        names = before.keys() | self.table.items.keys()
        self.tell({name for name in names if before.get(name) != self.table.get(name)})
        return count
