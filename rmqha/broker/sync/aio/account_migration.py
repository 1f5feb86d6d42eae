"""The accounts of a ``plain_acl.yml`` become users when this broker is master, once for each name.

Source: AuthMigrator of RocketMQ 5.3.3.
"""

from __future__ import annotations

from rmqha.auth.accounts import Account
from rmqha.auth.plain_acl import read_plain_acl
from rmqha.base.errors import ConfigInvalid
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.topics.aio.ports import Broker
from rmqha.broker.topics.metadata import Change
from rmqha.ha.events import Role
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Disk
from rmqha.runtime.properties import decode_properties

RETRY_MS = 1_000


class AccountMigration:
    """Of one broker; it does nothing unless ``migrateAuthFromV1Enabled``."""

    def __init__(self, broker: Broker, disk: Disk, log: Logger) -> None:
        self._broker = broker
        self._disk = disk
        self._log = log
        self._accounts: tuple[Account, ...] = ()
        self._running = False

    async def load(self) -> None:
        """Read the file.

        Raises:
            ConfigInvalid: it is not there, or cannot be read.
        """
        config = self._broker.config
        if not config.boolean("migrateAuthFromV1Enabled"):
            return
        path = config.values["plainAclPath"]
        try:
            found = read_plain_acl(decode_properties(await self._disk.read(path)))
        except FileNotFoundError as error:
            raise ConfigInvalid(f"plainAclPath={path}: there is no such file") from error
        self._accounts = found.accounts
        if found.left_out:
            self._log.log("warning", "acl_left_out", what=list(found.left_out))

    def start(self) -> None:
        """This broker is the master now."""
        if self._accounts and not self._running:
            self._running = True
            self._broker.tasks.start(self._migrate(), name="acl migration")

    async def _migrate(self) -> None:
        """Until all are there, or another broker reigns; it will have its own file."""
        broker = self._broker
        try:
            while broker.role is Role.MASTER:
                missing = tuple(
                    one for one in self._accounts if broker.accounts.table.get(one.name) is None
                )
                if not missing:
                    return
                written = broker.metadata.commit(Change(accounts=missing))
                if not isinstance(written, Refusal):
                    names = [one.name for one in missing]
                    self._log.log("info", "acl_migrated", users=names)
                    return
                await broker.clock.sleep(RETRY_MS)
        finally:
            self._running = False
