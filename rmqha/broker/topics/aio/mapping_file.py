"""``config/topicQueueMapping.json``: the mappings of static topics and their file."""

from __future__ import annotations

from collections.abc import Callable, Collection

from rmqha.broker.common.aio.config_file import FileTroubles
from rmqha.broker.topics.aio.table_file import TableFile
from rmqha.broker.topics.mapping_table import MappingTable
from rmqha.runtime.ports import Clock, Disk

PERIOD_MS = 1_000
"""A remap changes a mapping four times, and messages wait meanwhile: the file can wait, for what it
lacks is in the log."""


class MappingFile(TableFile[MappingTable]):
    """The table and its file, ``<storePathRootDir>/config/topicQueueMapping.json``.

    Attributes:
        on_changed: told which topics have another mapping now, or none.
    """

    def __init__(self, disk: Disk, clock: Clock, path: str, troubles: FileTroubles) -> None:
        super().__init__(
            disk, clock, path, troubles, MappingTable(), MappingTable.of,
            period_ms=PERIOD_MS,
        )  # fmt: skip
        self.on_changed: list[Callable[[frozenset[str]], None]] = []

    async def load(self) -> None:
        """Read the file, and make one where there is none; raises as ``ConfigFile.read``."""
        await super().load()
        self.changed()

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
