"""``config/consumerOffset.json``: the table of offsets with its file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
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
        after: see ``ConfigFile``.

    Attributes:
        mark: as that of ``TopicFile``.
        marks: members of the file beside the table. They are asked for first, so that what they
            say of the offsets is true of each, whenever it is encoded.
    """

    def __init__(
        self, disk: Disk, clock: Clock, path: str, troubles: FileTroubles, *,
        offsets_max: int, period_ms: int, after: Callable[[], Awaitable[object]],
    ) -> None:  # fmt: skip
        self.table = ConsumerOffsets(offsets_max)
        self.mark: int | None = None
        self.marks: Callable[[], dict[str, Any]] = dict
        self.file = ConfigFile(
            disk, clock, path, self._content, troubles, period_ms=period_ms, after=after
        )

    async def _content(self) -> bytes:
        return b"".join(await self.encoded(self.marks()))

    async def encoded(self, more: Mapping[str, Any]) -> list[bytes]:
        """As ``ConsumerOffsets.encoded``; others get their turns meanwhile."""
        parts = []
        for part in self.table.encoded(more):
            parts.append(part)
            await asyncio.sleep(0)
        return parts

    async def load(self) -> None:
        """Read the file; raises as ``ConfigFile.read``."""
        await self.file.read(self._take)

    def _take(self, value: dict[str, Any]) -> None:
        self.table.load(value)
        self.mark = mark_of(value)

    def changed(self) -> None:
        """Write the table within its period."""
        self.file.changed()

    async def cut(self, end_of: Callable[[tuple[bytes, int]], int | None], log: Logger) -> None:
        """A tail that was truncated takes the offsets with it that point behind what is left.

        Args:
            end_of: a queue's end; None for one that there is not.
        """
        for cut in self.table.cut(lambda topic, queue: end_of((topic.encode(), queue))):
            for group, topic, queue_id, old, new in cut:
                log.log(
                    "warning", "consumer_offset_cut", group=group, topic=topic, queue_id=queue_id,
                    old=old, new=new,
                )  # fmt: skip
            if cut:
                self.changed()
            await asyncio.sleep(0)
