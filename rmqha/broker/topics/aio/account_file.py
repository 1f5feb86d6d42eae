"""``config/accounts.json``: users and their policies with their file."""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.auth.accounts import Account
from rmqha.broker.common.aio.config_file import FileTroubles
from rmqha.broker.topics.account_table import AccountTable
from rmqha.broker.topics.aio.table_file import TableFile
from rmqha.runtime.ports import Clock, Disk


class AccountFile(TableFile[AccountTable]):
    """The table and its file, ``<storePathRootDir>/config/accounts.json``.

    Args:
        named: users that the broker's own settings name. They count until the table has a user of
            that name.
    """

    def __init__(
        self, disk: Disk, clock: Clock, path: str, troubles: FileTroubles,
        named: Mapping[str, Account],
    ) -> None:  # fmt: skip
        super().__init__(disk, clock, path, troubles, AccountTable(), AccountTable.of)
        self.named = named

    async def load(self) -> None:
        """Read the file, and make one where there is none; raises as ``ConfigFile.read``."""
        await super().load()
        self.changed()

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
