"""A name server that asks who: users of its settings and of a file that changes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rmqha.auth.signature import Credentials
from rmqha.base.errors import ConfigInvalid
from rmqha.remoting.command import RemotingCommand
from tests.namesrv.node import broker_fields
from tests.namesrv.test_service import BODY, World

PATH = "/home/namesrv/users.json"
ROOT, ANN = Credentials("root", "root-secret"), Credentials("ann", "ann-secret")
SHOP = Credentials("shop", "shop-secret")
FIRST = {"initAuthenticationUser": '{"username":"root","password":"root-secret"}'}
ASKING = {**FIRST, "authenticationEnabled": "true", "authUsersPath": PATH}
USERS = [
    {"username": "ann", "password": "ann-secret"},
    {"username": "shop", "password": "shop-secret", "brokerNames": ["b"]},
]


@pytest.fixture
def world() -> Iterator[World]:
    """A network without a name server yet."""
    one = World()
    one.boot("ns")
    one.boot("client")
    one.do("ns", one.disk.make_dirs("/home/namesrv"))
    yield one
    for host, client in one.clients.items():
        one.do(host, client.close())
    if one.server is not None:
        one.stop()
    assert one.loop.errors == []
    one.loop.close()


def write(world: World, users: object) -> None:
    """Replace the file."""
    content = users if isinstance(users, bytes) else json.dumps(users).encode()
    world.do("ns", world.disk.write_atomic(PATH, content))


def ask(
    world: World, code: int, by: Credentials | None, body: bytes = b"", **fields: str
) -> tuple[int, str | None]:
    """A request, signed or not."""
    command = RemotingCommand(code, ext_fields=dict(fields), body=body)
    if by is not None:
        by.sign(command)
    answer = world.ask("client", code, command.ext_fields, body)
    return answer.code, answer.remark


def test_request_when_authentication_is_on_then_users_may_what_is_theirs(world: World) -> None:
    """Routes for every user, its own set for a broker's, all for a super user."""
    write(world, USERS)
    world.start(ASKING)
    assert ask(world, 106, None) == (16, "authentication field is null.")
    assert ask(world, 106, Credentials("ann", "x")) == (16, "check signature failed.")
    assert ask(world, 106, ANN)[0] == 0
    mine = broker_fields()
    assert ask(world, 103, ANN, BODY, **mine)[0] == 16
    assert ask(world, 103, SHOP, BODY, **{**mine, "brokerName": "other"})[0] == 16
    assert ask(world, 103, SHOP, BODY, **mine)[0] == 0
    assert ask(world, 318, SHOP, b"enableTopicList=false")[0] == 16
    assert ask(world, 318, ROOT, b"enableTopicList=false")[0] == 0
    assert world.server is not None
    assert world.server.rejected == {"unsigned": 1, "wrong_signature": 1, "not_super": 3}


def test_users_when_their_file_changes_then_without_a_restart(world: World) -> None:
    """And a file that cannot be read leaves them as they were."""
    write(world, USERS)
    world.start(ASKING)
    for broken in (b"[", b"{}", b"[7]", [*USERS, *USERS]):
        write(world, broken)
        world.run_for(6_000)
        assert ask(world, 106, ANN)[0] == 0
    write(world, [{**USERS[0], "password": "another"}])
    world.run_for(6_000)
    assert ask(world, 106, ANN) == (16, "check signature failed.")
    assert ask(world, 106, SHOP) == (16, "User:shop is not found.")
    assert ask(world, 106, Credentials("ann", "another"))[0] == 0
    assert ask(world, 106, ROOT)[0] == 0


@pytest.mark.parametrize("content", [None, b"no json", b'[{"username":"ann"}]'])
def test_start_when_the_file_of_users_cannot_be_used_then_it_is_named(
    world: World, content: bytes | None
) -> None:
    """Rather no name server than one that lets in whom it should not."""
    if content is not None:
        write(world, content)
    with pytest.raises(ConfigInvalid, match=PATH):
        world.start(ASKING)
    world.server = None


def test_configuration_when_there_is_a_super_user_then_it_is_nobody_else_s(world: World) -> None:
    """Also where authentication is off, and everything else goes on as ever."""
    write(world, USERS)
    world.start({**FIRST, "authUsersPath": PATH})
    assert ask(world, 103, None, BODY, **broker_fields())[0] == 0
    assert ask(world, 106, None)[0] == 0
    for who in (None, ANN, SHOP, Credentials("root", "wrong")):
        assert ask(world, 318, who, b"enableTopicList=false")[0] == 16
    assert ask(world, 318, ROOT, b"enableTopicList=false")[0] == 0


def test_configuration_when_there_is_no_super_user_then_anybody_may_change_it(world: World) -> None:
    """As Java's name server, and every release before."""
    write(world, USERS)
    world.start({"authUsersPath": PATH})
    assert ask(world, 318, None, b"enableTopicList=false")[0] == 0


def signed(
    world: World, host: str, code: int, by: Credentials, body: bytes, fields: dict[str, str]
) -> tuple[int, str | None]:
    """A request over a host's own connection."""
    command = RemotingCommand(code, ext_fields=dict(fields), body=body)
    by.sign(command)
    answer = world.ask(host, code, command.ext_fields, body)
    return answer.code, answer.remark


VICTIM = {**broker_fields(), "brokerName": "victim", "brokerAddr": "10.9.9.9:10911"}
STOLEN = {**VICTIM, "brokerName": "b"}
TAKEN = (1, "register broker failed: 10.9.9.9:10911 is registered by another user")


def listed(world: World) -> list[str]:
    """The sets that have the address."""
    table = world.server.machine.table if world.server is not None else None
    assert table is not None
    return [name for name, one in table.sets.items() if VICTIM["brokerAddr"] in one.addrs.values()]


def test_address_of_another_set_when_a_user_registers_it_then_the_set_keeps_it(
    world: World,
) -> None:
    """A user of one set took the brokers of every other set out of the routes."""
    write(world, [*USERS, {"username": "both", "password": "p", "brokerNames": ["b", "victim"]}])
    world.start(ASKING)
    both = Credentials("both", "p")
    assert signed(world, "broker", 103, both, BODY, VICTIM)[0] == 0
    assert signed(world, "client", 103, SHOP, BODY, STOLEN) == TAKEN
    assert signed(world, "client", 104, SHOP, b"", STOLEN)[0] == 0
    assert listed(world) == ["victim"]
    # The user who registered it may rename it, and so may a super user.
    assert signed(world, "client", 103, both, BODY, STOLEN)[0] == 0
    assert listed(world) == ["b"]
    assert signed(world, "broker", 103, ROOT, BODY, VICTIM)[0] == 0
    assert listed(world) == ["victim"]
    # Its own connection is its own, whoever signs there.
    assert signed(world, "broker", 103, SHOP, BODY, STOLEN)[0] == 0
    assert listed(world) == ["b"]
    assert signed(world, "broker", 103, ROOT, BODY, VICTIM)[0] == 0
    # Once its connection is gone, the address is anybody's.
    world.do("broker", world.clients["broker"].close())
    world.run_for(100)
    assert signed(world, "client", 103, SHOP, BODY, STOLEN)[0] == 0
    assert listed(world) == ["b"]


@pytest.mark.parametrize("free", ["authenticationWhitelist", "authorizationWhitelist"])
def test_address_of_another_set_when_103_is_free_then_as_without_users(
    world: World, free: str
) -> None:
    """Java's rule: a broker that comes back under another name has left its old set."""
    write(world, USERS)
    world.start({**ASKING, free: "103"})
    assert signed(world, "broker", 103, ROOT, BODY, VICTIM)[0] == 0
    assert signed(world, "client", 103, SHOP, BODY, STOLEN)[0] == 0
    assert listed(world) == ["b"]


@pytest.mark.parametrize(
    ("code", "by", "name", "refused"),
    [(322, ANN, "victim", True), (322, SHOP, "b", False), (904, SHOP, "b", False)],
)
def test_sign_of_life_when_it_is_not_the_set_s_own_then_the_dead_broker_leaves(
    world: World, code: int, by: Credentials, name: str, *, refused: bool
) -> None:
    """Any user kept dead brokers in the routes for as long as he liked."""
    write(world, USERS)
    world.start(ASKING)
    lively = {**VICTIM, "heartbeatTimeoutMillis": "8000"}
    assert signed(world, "broker", 103, ROOT, BODY, lively)[0] == 0
    for _ in range(4):
        world.run_for(5_000)
        answer = signed(world, "client", code, by, b"", {**VICTIM, "brokerName": name})
        assert answer[0] == (16 if refused else 0)
    assert listed(world) == []
    assert signed(world, "broker", 103, ROOT, BODY, lively)[0] == 0
    for _ in range(4):
        world.run_for(5_000)
        assert signed(world, "broker", code, ROOT, b"", VICTIM)[0] == 0
    assert listed(world) == ["victim"]
