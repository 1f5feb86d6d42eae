"""``config/subscriptionGroup.json``: the table of groups with its file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqha.broker.common.aio.config_file import ConfigFile, FileTroubles, content_of, mark_of
from rmqha.broker.topics.group_table import (
    SYSTEM_PREFIX,
    GroupConfig,
    GroupTable,
    group_error,
    system_groups,
)
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
        self.file = ConfigFile(disk, clock, path, content_of(lambda: self.members()), troubles)

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
