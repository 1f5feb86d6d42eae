"""``config/consumerOffset.json``: the table of offsets with its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rmqha.broker.common.aio.config_file import ConfigFile, FileTroubles, mark_of
from rmqha.broker.groups.offset_table import ConsumerOffsets
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Disk


class OffsetFile:
    """The consumers' offsets.

    Args:
        offsets_max: see ``ConsumerOffsets``.
        period_ms: flushConsumerOffsetInterval.

    Attributes:
        members, mark: as those of ``TopicFile``.
    """

    def __init__(
        self, disk: Disk, clock: Clock, path: str, troubles: FileTroubles, *,
        offsets_max: int, period_ms: int,
    ) -> None:  # fmt: skip
        self.table = ConsumerOffsets(offsets_max)
        self.mark: int | None = None
        self.members: Callable[[], dict[str, Any]] = lambda: self.table.members()
        self.file = ConfigFile(
            disk, clock, path, lambda: self.members(), troubles, period_ms=period_ms
        )

    async def load(self) -> None:
        """Read the file; raises as ``ConfigFile.read``."""
        await self.file.read(self._take)

    def _take(self, value: dict[str, Any]) -> None:
        self.table.load(value)
        self.mark = mark_of(value)

    def changed(self) -> None:
        """Write the table within its period."""
        self.file.changed()

    def cut(self, ends: Mapping[tuple[bytes, int], int], log: Logger) -> None:
        """A tail that was truncated takes the offsets with it that point behind what is left.

        Args:
            ends: of all queues.
        """
        cut = self.table.cut(lambda topic, queue: ends.get((topic.encode(), queue)))
        for group, topic, queue_id, old, new in cut:
            log.log(
                "warning", "consumer_offset_cut", group=group, topic=topic, queue_id=queue_id,
                old=old, new=new,
            )  # fmt: skip
        if cut:
            self.changed()
