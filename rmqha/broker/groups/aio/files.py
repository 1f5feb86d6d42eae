"""``config/subscriptionGroup.json`` and ``config/consumerOffset.json``: tables with their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rmqha.broker.common.aio.config_file import ConfigFile, FileTroubles, mark_of
from rmqha.broker.groups.offset_table import ConsumerOffsets
from rmqha.broker.topics.group_table import (
    SYSTEM_PREFIX,
    GroupConfig,
    GroupTable,
    group_error,
    system_groups,
)
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Disk


class GroupFile:
    """The subscription groups.

    Args:
        auto_create: autoCreateSubscriptionGroup.
        make: writes a new group to the log; whether it is there.

    Attributes:
        table: the groups; whoever changes them calls :meth:`changed`.
        file: of the table.
        members, mark: as those of ``TopicFile``.
    """

    def __init__(
        self, disk: Disk, clock: Clock, path: str, troubles: FileTroubles, *,
        auto_create: Callable[[], bool], make: Callable[[GroupConfig], bool],
    ) -> None:  # fmt: skip
        self.table = GroupTable()
        self.mark: int | None = None
        self.members: Callable[[], dict[str, Any]] = lambda: self.table.members()
        self._clock = clock
        self._auto_create = auto_create
        self._make = make
        self.file = ConfigFile(disk, clock, path, lambda: self.members(), troubles)

    async def load(self) -> None:
        """Read the file and add the system groups that miss; raises as ``ConfigFile.read``."""
        await self.file.read(self._take)
        for group in system_groups():
            if self.table.get(group.name) is None:
                self.table.put(group, self._clock.wall_ms())
                self.file.changed()

    def _take(self, value: dict[str, Any]) -> None:
        self.table = GroupTable.of(value)
        self.mark = mark_of(value)

    def find(self, name: str, *, may_write: bool) -> GroupConfig | None:
        """A group's settings, made at first use where that is allowed.

        Args:
            may_write: this broker is the master. A slave serves a new group by the default
                settings and keeps nothing, for its table is the master's; so does a master that
                cannot write just now. None where there is no room for one more.
        """
        group = self.table.get(name)
        if group is not None:
            return group
        group = self.new(name)
        if group is None or (may_write and not self.table.fits((group,))):
            return None
        if may_write:
            self._make(group)
        return group

    def new(self, name: str) -> GroupConfig | None:
        """The settings of a group that is made at first use; None where that is not allowed."""
        allowed = self._auto_create() or name.startswith(SYSTEM_PREFIX)
        return GroupConfig(name) if allowed and not group_error(name) else None

    def changed(self) -> None:
        """Write the table soon."""
        self.file.changed()


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
