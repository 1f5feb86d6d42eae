"""``config/topics.json``: read at the start, written after changes, copied from a master."""

from __future__ import annotations

from rmqha.broker.common.aio.config_file import FileTroubles
from rmqha.broker.topics.aio.table_file import TableFile
from rmqha.broker.topics.topic_table import TopicConfig, TopicTable
from rmqha.runtime.ports import Clock, Disk


class TopicFile(TableFile[TopicTable]):
    """The topic table and its file, ``<storePathRootDir>/config/topics.json``."""

    def __init__(self, disk: Disk, clock: Clock, path: str, troubles: FileTroubles) -> None:
        super().__init__(disk, clock, path, troubles, TopicTable(), TopicTable.of)

    def add(self, system: list[TopicConfig]) -> None:
        """Add the system topics that miss in what was read."""
        for topic in system:
            if self.table.get(topic.name) is None:
                self.table.put(topic, self._clock.wall_ms())
        self.changed()

    async def save(self) -> None:
        """Write now what has changed; raises DiskFailed."""
        await self.file.save()
