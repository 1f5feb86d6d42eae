"""``config/subscriptionGroup.json``: the table of groups with its file."""

from __future__ import annotations

from collections.abc import Callable

from rmqha.broker.common.aio.config_file import FileTroubles
from rmqha.broker.topics.aio.table_file import TableFile
from rmqha.broker.topics.group_table import (
    SYSTEM_PREFIX,
    GroupConfig,
    GroupTable,
    group_error,
    system_groups,
)
from rmqha.runtime.ports import Clock, Disk


class GroupFile(TableFile[GroupTable]):
    """The subscription groups.

    Args:
        auto_create: autoCreateSubscriptionGroup.
        make: writes a new group to the log; whether it is there.
    """

    def __init__(
        self, disk: Disk, clock: Clock, path: str, troubles: FileTroubles, *,
        auto_create: Callable[[], bool], make: Callable[[GroupConfig], bool],
    ) -> None:  # fmt: skip
        super().__init__(disk, clock, path, troubles, GroupTable(), GroupTable.of)
        self._auto_create = auto_create
        self._make = make

    async def load(self) -> None:
        """Read the file and add the system groups that miss; raises as ``ConfigFile.read``."""
        await super().load()
        for group in system_groups():
            if self.table.get(group.name) is None:
                self.table.put(group, self._clock.wall_ms())

    def find(self, name: str, *, may_write: bool) -> GroupConfig | None:
        """A group's settings, made at first use where that is allowed.

        Args:
            may_write: this broker is the master. A slave serves a new group by the default
                settings and keeps nothing, for its table is the master's; so does a master that
                cannot write just now, or whose table is full: strangers may have filled it.
        """
        group = self.table.get(name)
        if group is not None:
            return group
        group = self.new(name)
        if group is not None and may_write and self.table.fits((group,)):
            self._make(group)
        return group

    def is_served(self, name: str) -> bool:
        """Whether a group is one of the table, or may be one and only lacks room there."""
        if self.table.get(name) is not None:
            return True
        group = self.new(name)
        return group is not None and not self.table.fits((group,))

    def new(self, name: str) -> GroupConfig | None:
        """The settings of a group that is made at first use; None where that is not allowed."""
        allowed = self._auto_create() or name.startswith(SYSTEM_PREFIX)
        return GroupConfig(name) if allowed and not group_error(name) else None
