"""Where authentication is off: what takes a super user as soon as there is one."""

from __future__ import annotations

from typing import cast

import pytest

from rmqha.auth.accounts import Account, UserType
from rmqha.auth.aio.guard import Refusals
from rmqha.auth.aio.server_guard import guarded
from rmqha.auth.aio.server_users import ServerUsers
from rmqha.auth.settings import AuthSettings
from rmqha.auth.signature import Credentials
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.logs import Logger
from tests.auth.test_guard import Far

OPEN = AuthSettings(False, False, frozenset(), frozenset(), {}, None)
ROOT, ANN = Account("root", "root-secret", UserType.SUPER), Account("ann", "ann-secret")


class Users:
    """Those of a server's settings."""

    def __init__(self, *accounts: Account) -> None:
        self._accounts = {one.name: one for one in accounts}
        self.find = self._accounts.get
        self.has_super = any(one.is_super for one in accounts)


def passes(users: Users, code: int, by: Account | None) -> bool:
    """Whether a request comes to the handler."""
    far = Far()
    users_of_server = cast(ServerUsers, users)
    guard = guarded(far, OPEN, users_of_server, Refusals(cast(Logger, far)), has_users=True)
    request = RemotingCommand(code, ext_fields={"nodeId": "n9"})
    if by is not None:
        Credentials(by.name, by.password).sign(request)
    guard.on_commands(cast(Connection, far), [request])
    refused = [one.code for one in far.sent]
    assert refused in ([], [ResponseCode.NO_PERMISSION])
    assert len(far.handled) + len(refused) == 1
    return not refused


@pytest.mark.parametrize("code", [318, 1009, 1011, 60013, 60020, 60021])
def test_change_when_there_is_a_super_user_then_nobody_else_may(code: int) -> None:
    """A stranger could remove the leader's followers, or put a node of its own among them."""
    users = Users(ROOT, ANN)
    assert not passes(users, code, None)
    assert not passes(users, code, ANN)
    assert passes(users, code, ROOT)
    assert passes(Users(ANN), code, None)


@pytest.mark.parametrize("code", [105, 904, 1001, 1004, 1005, 60022, 60030])
def test_anything_else_when_there_is_a_super_user_then_everybody_may(code: int) -> None:
    assert passes(Users(ROOT), code, None)
