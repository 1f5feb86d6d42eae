"""Users of a name server or a controller: those that its settings name, and those of a file.

The file (``authUsersPath``) is a JSON list of users; it is read at start, and again when it has
changed. One that cannot be used then is told of, and the users stay as they were.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.auth.accounts import Account, read_written_account
from rmqha.auth.refused import ChangeRefused
from rmqha.base.errors import ConfigInvalid, DiskFailed, RemoteProtocolError
from rmqha.remoting import fastjson
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Disk

USERS_MAX = 10_000


class ServerUsers:
    """Of one server.

    Args:
        named: users of the settings; the file replaces those of the same name.
        path: of the file; empty without one.
        reload_ms: between two looks at it.
    """

    def __init__(
        self, named: Mapping[str, Account], disk: Disk, clock: Clock, log: Logger, *,
        path: str, reload_ms: int,
    ) -> None:  # fmt: skip
        self._named = named
        self._disk = disk
        self._clock = clock
        self._log = log
        self._path = path
        self._reload_ms = reload_ms
        self._keeps_super = False
        self._users = dict(named)
        self._content: bytes | None = None
        self._trouble = ""

    def find(self, name: str) -> Account | None:
        """A user, or None."""
        return self._users.get(name)

    @property
    def has_super(self) -> bool:
        """Whether there is a super user: then configuration is nobody else's."""
        return _has_super(self._users)

    def keep_super(self) -> None:
        """Take no file from now on, but for the first, that leaves no super user where there was one:
        as long as there is none, whoever comes may change the configuration."""
        self._keeps_super = True

    async def load(self) -> None:
        """Read the file.

        Raises:
            ConfigInvalid: it is not there, cannot be used, or opens what was closed.
        """
        if not self._path:
            return
        try:
            content = await self._disk.read(self._path)
        except (OSError, DiskFailed) as error:
            raise ConfigInvalid(f"authUsersPath={self._path}: {error}") from error
        if content == self._content:
            return
        users = {**self._named, **_read(self._path, content)}
        # An editor empties a file before it writes it, and a wrong word is soon written.
        is_first = self._content is None
        if self._keeps_super and not is_first and self.has_super and not _has_super(users):
            raise ConfigInvalid(
                f"authUsersPath={self._path}: it leaves no super user who is enabled, and whoever"
                " comes could change the configuration; a restart takes it as it is"
            )
        self._users = users
        self._content = content
        self._log.log("info", "users_read", path=self._path, count=len(self._users))

    async def run(self) -> None:
        """Look at the file for ever."""
        while self._path:
            await self._clock.sleep(self._reload_ms)
            trouble = ""
            try:
                await self.load()
            except ConfigInvalid as error:
                trouble = str(error)
            if trouble and trouble != self._trouble:
                self._log.log("error", "users_not_read", reason=trouble)
            self._trouble = trouble


def _has_super(users: Mapping[str, Account]) -> bool:
    return any(one.is_super and one.is_enabled for one in users.values())


def _read(path: str, content: bytes) -> dict[str, Account]:
    try:
        found = fastjson.loads(content)
    except RemoteProtocolError as error:
        raise ConfigInvalid(f"authUsersPath={path}: it is no JSON") from error
    if not isinstance(found, list) or len(found) > USERS_MAX:
        raise ConfigInvalid(f"authUsersPath={path}: it is no list of at most {USERS_MAX} users")
    users: dict[str, Account] = {}
    for value in found:
        try:
            account = read_written_account(value if isinstance(value, dict) else {})
        except ChangeRefused as error:
            raise ConfigInvalid(f"authUsersPath={path}: {error}") from error
        if account.name in users:
            raise ConfigInvalid(f"authUsersPath={path}: user {account.name} stands there twice")
        users[account.name] = account
    return users
