"""What stands before the handler of a name server or a controller: who lets in, and who hears who came."""

from __future__ import annotations

from msgspec.structs import replace

from rmqha.auth.aio.guard import Guard, Refusals
from rmqha.auth.aio.server_users import ServerUsers
from rmqha.auth.check import Check
from rmqha.auth.refused import Reason, Refused
from rmqha.auth.registered import ProvenAddresses
from rmqha.auth.server_rules import CHANGING, by_server_rules
from rmqha.auth.settings import AuthSettings
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import ServerHandler
from rmqha.remoting.command import RemotingCommand

NO_CODES: frozenset[int] = frozenset()


def guarded(
    handler: ServerHandler, settings: AuthSettings, users: ServerUsers, refusals: Refusals,
    proven: ProvenAddresses, *, has_users: bool, passes: frozenset[int] = NO_CODES,
) -> ServerHandler:  # fmt: skip
    """The handler, with what its settings ask for before it.

    Args:
        proven: hears what is let in, where this server signs.
        has_users: whether there can be any. Without, and without authentication, it is the handler
            itself.
        passes: codes that peers prove otherwise.
    """
    if settings.credentials is not None:
        handler = _Hearing(handler, proven)
    if settings.authentication:
        # There are no policies here: who may sign is bound by the rules of servers, and who need not
        # is not.
        free = settings.authorization_free | settings.authentication_free
        checked = replace(settings, authorization=True, authorization_free=free)
        return Guard(handler, Check(checked, users.find, by_server_rules), refusals, passes)
    if has_users:
        users.keep_super()
        return Guard(handler, _ChangesOnly(settings, users), refusals, passes)
    return handler


class _Hearing:
    """Lets the addresses that are named on a connection prove themselves before it hands on."""

    def __init__(self, handler: ServerHandler, proven: ProvenAddresses) -> None:
        self._handler = handler
        self._proven = proven

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        self._proven.hear(connection.id, commands)
        self._handler.on_commands(connection, commands)

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        self._proven.closed(connection.id)
        self._handler.on_closed(connection, error)


class _ChangesOnly(Check):
    """Without authentication: configuration is a super user's as soon as there is one."""

    def __init__(self, settings: AuthSettings, users: ServerUsers) -> None:
        super().__init__(settings, users.find, by_server_rules)
        self._users = users

    def __call__(self, request: RemotingCommand, peer: str) -> None:
        if request.code not in CHANGING or not self._users.has_super:
            return
        if not self.user_of(request).is_super:
            raise Refused(Reason.NOT_SUPER, "only a super user may do this, for there is one")
