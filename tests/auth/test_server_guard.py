"""Whom a name server or a controller lets in; where authentication is off, what takes a super user as soon as there is one."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec.structs import replace

from rmqha.auth.accounts import Account, UserType
from rmqha.auth.aio.guard import Refusals
from rmqha.auth.aio.server_guard import guarded
from rmqha.auth.aio.server_users import ServerUsers
from rmqha.auth.registered import ProvenAddresses
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
        self.keeps_super = False

    def keep_super(self) -> None:
        """It was asked for."""
        self.keeps_super = True


def passes(users: Users, code: int, by: Account | None, settings: AuthSettings = OPEN) -> bool:
    """Whether a request comes to the handler."""
    far = Far()
    users_of_server = cast(ServerUsers, users)
    refusals, proven = Refusals(cast(Logger, far)), ProvenAddresses(settings.credentials)
    guard = guarded(far, settings, users_of_server, refusals, proven, has_users=True)
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


def test_users_when_only_changes_need_one_then_the_last_super_user_is_kept() -> None:
    """Where everything needs a signature, one who is taken out opens nothing, and may have to go."""
    open_server, closed = Users(ROOT), Users(ROOT)
    assert passes(open_server, 105, None)
    assert not passes(closed, 105, None, replace(OPEN, authentication=True))
    assert (open_server.keeps_super, closed.keeps_super) == (True, False)


@pytest.mark.parametrize("code", [105, 904, 1001, 1004, 1005, 60022, 60030])
def test_anything_else_when_there_is_a_super_user_then_everybody_may(code: int) -> None:
    assert passes(Users(ROOT), code, None)


@pytest.mark.parametrize("is_authorized", [False, True])
def test_code_when_it_needs_no_signature_then_brokers_that_cannot_sign_may(
    is_authorized: bool,
) -> None:
    """There are no policies here, so one list is all that Java's old brokers need."""
    free = frozenset({904, 1003})
    settings = replace(
        OPEN, authentication=True, authorization=is_authorized, authentication_free=free
    )
    users = Users(ROOT, ANN)
    assert passes(users, 904, None, settings)
    assert not passes(users, 1001, None, settings)
    assert not passes(users, 1001, ANN, settings)
    assert passes(users, 1001, ROOT, settings)
