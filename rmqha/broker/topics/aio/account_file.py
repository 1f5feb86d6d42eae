"""``config/accounts.json``: users and their policies with their file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rmqha.auth.accounts import Account
from rmqha.broker.common.aio.config_file import ConfigFile, FileTroubles, content_of, mark_of
from rmqha.broker.topics.account_table import AccountTable
from rmqha.runtime.ports import Clock, Disk


class AccountFile:
    """The table and its file.

    Args:
        path: ``<storePathRootDir>/config/accounts.json``.
        named: users that the broker's own settings name. They count until the table has a user of
            that name.

    Attributes:
        table: whoever changes it calls :meth:`changed`.
        file: of the table.
        members, mark, found: as those of ``MappingFile``.
    """

    def __init__(
        self, disk: Disk, clock: Clock, path: str, troubles: FileTroubles,
        named: Mapping[str, Account],
    ) -> None:  # fmt: skip
        self.table = AccountTable()
        self.mark: int | None = None
        self.found = False
        self.named = named
        self.members: Callable[[], dict[str, Any]] = lambda: self.table.members()
        self.file = ConfigFile(disk, clock, path, content_of(lambda: self.members()), troubles)

    async def load(self) -> None:
        """Read the file; raises as ``ConfigFile.read``."""
        self.found = await self.file.read(self._take)
        self.changed()

    def _take(self, value: dict[str, Any]) -> None:
        self.table = AccountTable.of(value)
        self.mark = mark_of(value)

    def changed(self) -> None:
        """Write the table soon."""
        self.file.changed()

    def find(self, name: str) -> Account | None:
        """A user, of the table or of the settings."""
        return self.table.items.get(name) or self.named.get(name)

    def all(self) -> list[Account]:
        """All users, by name."""
        found = {**self.named, **self.table.items}
        return [found[name] for name in sorted(found)]

    @property
    def has_super(self) -> bool:
        """Whether there is a super user: then configuration is nobody else's."""
        return any(one.is_super and one.is_enabled for one in self.all())
