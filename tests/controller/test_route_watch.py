"""Seeing the new master in the name servers: fakes on loopback say what real ones would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import pytest

from rmqha.auth.registered import ProvenAddresses
from rmqha.controller.aio.route_watch import (
    CONFIG_BYTES_MAX,
    MEMBERS_BYTES_MAX,
    WATCHES_MAX,
    RouteWatch,
)
from rmqha.controller.metadata.messages import (
    RouteFollowed,
    RouteUnknown,
    RouteUpdated,
    WatchRoute,
)
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import RemotingServer
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.logs import Logger

MASTER = "127.0.0.1:10911"


class Peer:
    """A server that answers each request with the next of its answers, the last one for ever."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers = list(answers)
        self.asked: list[RemotingCommand] = []
        self.address = ""

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        for command in commands:
            self.asked.append(command)
            code, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            connection.send(command.reply(code, None, None, body))

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        pass


def group(master: str | None) -> tuple[int, bytes]:
    """What a Java name server answers to 901, with its bare number keys."""
    addresses = "" if master is None else f'0:"{master}",'
    text = (
        f'{{"brokerMemberGroup":{{"brokerAddrs":{{{addresses}2:"127.0.0.1:9"}},'
        '"brokerName":"broker-a","cluster":"c"}}'
    )
    return ResponseCode.SUCCESS, text.encode()


@asynccontextmanager
async def serving(peer: Peer) -> AsyncIterator[str]:
    server = RemotingServer(TcpNetwork(), SystemClock(), RemotingSettings(), peer)
    await server.start("127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.close()


async def outcome(
    *name_servers: Peer, config: tuple[int, bytes] | None = None, timeout_ms: int = 5_000
) -> RouteUpdated | RouteUnknown:
    """Watch with these name servers and return the one result."""
    async with AsyncExitStack() as stack:
        addresses = [await stack.enter_async_context(serving(one)) for one in name_servers]
        text = "brokerName=broker-a\nnamesrvAddr=" + ";".join(addresses)
        broker = Peer(config or (ResponseCode.SUCCESS, text.encode()))
        address = await stack.enter_async_context(serving(broker))
        for peer in name_servers:
            peer.answers = [
                (code, body.replace(MASTER.encode(), address.encode()))
                for code, body in peer.answers
            ]
        client = RemotingClient(TcpNetwork(), SystemClock(), RemotingSettings())
        stack.push_async_callback(client.close)
        result: asyncio.Future[RouteUpdated | RouteUnknown] = asyncio.Future()
        followed: list[RouteFollowed] = []

        def take(event: RouteFollowed | RouteUpdated | RouteUnknown) -> None:
            if isinstance(event, RouteFollowed):
                followed.append(event)
            else:
                result.set_result(event)

        watch = RouteWatch(client, ProvenAddresses(None), SystemClock(), Logger(), take)
        stack.push_async_callback(watch.close)
        watch.watch(WatchRoute("c", "broker-a", 7, address, timeout_ms))
        async with asyncio.timeout(10):
            found = await result
        assert [one.code for one in broker.asked] == [RequestCode.GET_BROKER_CONFIG]
        assert len(followed) <= 1
        if isinstance(found, RouteUpdated):
            assert followed == [RouteFollowed("broker-a", 7)]
        return found


async def test_the_master_is_seen_once_every_name_server_names_it() -> None:
    """The old one, then nobody, then the new one; the other server is slower."""
    one = Peer(group("127.0.0.1:1"), group(None), group(MASTER))
    other = Peer(*[group("127.0.0.1:1")] * 4, group(MASTER))
    assert await outcome(one, other) == RouteUpdated("broker-a", 7)
    assert len(one.asked) == 3
    assert len(other.asked) == 5
    assert one.asked[0].ext_fields == {"clusterName": "c", "brokerName": "broker-a"}


async def test_a_name_server_that_is_away_does_not_count() -> None:
    """Slaves cannot ask it either."""
    config = (ResponseCode.SUCCESS, b"namesrvAddr=127.0.0.1:1")
    assert await outcome(config=config) == RouteUnknown("broker-a", 7)


@pytest.mark.parametrize(
    "config",
    [
        (ResponseCode.NO_PERMISSION, b""),
        (ResponseCode.SUCCESS, b"brokerName=broker-a"),
        (ResponseCode.SUCCESS, b"namesrvAddr=nonsense"),
        (ResponseCode.SUCCESS, b"\xff\xfe\x00"),
    ],
    ids=["refused", "no name server", "no address", "no text"],
)
async def test_a_broker_that_does_not_tell_leaves_the_route_unknown(
    config: tuple[int, bytes],
) -> None:
    """The delays count then."""
    assert await outcome(config=config) == RouteUnknown("broker-a", 7)


@pytest.mark.parametrize(
    "answer",
    [(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, b""), (ResponseCode.SYSTEM_ERROR, b"x")],
    ids=["4.x", "error"],
)
async def test_a_name_server_that_does_not_know_the_question_is_left_out(
    answer: tuple[int, bytes],
) -> None:
    """Name servers before 5.0 have no such request."""
    assert await outcome(Peer(answer)) == RouteUnknown("broker-a", 7)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"brokerMemberGroup":[1]}', b"{0:", b"{}"])
async def test_nonsense_is_no_route_and_time_runs_out(body: bytes) -> None:
    """It ends at the limit, or at once where the answer cannot be read."""
    found = await outcome(Peer((ResponseCode.SUCCESS, body)), timeout_ms=100)
    assert found == RouteUnknown("broker-a", 7)


NAME_SERVER = "10.0.0.9:9876"
Heard = RouteFollowed | RouteUpdated | RouteUnknown


class Answering:
    """A client whose peers answer at once, or never; the answers are as long as is wanted."""

    def __init__(
        self, config_bytes: int = 0, members_bytes: int = 0, *, hangs: bool = False
    ) -> None:
        config = f"namesrvAddr={NAME_SERVER}\n".encode()
        members = b'{"brokerMemberGroup":{"brokerAddrs":{0:"' + MASTER.encode() + b'"}}}'
        self._config = config.ljust(config_bytes, b"#")
        self._members = members.ljust(members_bytes)
        self._hangs = hangs
        self.asked = 0

    async def invoke(
        self, address: str, request: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """The answer to 26 or 901."""
        self.asked += 1
        if self._hangs:
            await asyncio.Event().wait()
        body = self._members if address == NAME_SERVER else self._config
        return request.reply(ResponseCode.SUCCESS, None, None, body)


def watch_by(client: Answering, give: Callable[[Heard], None]) -> RouteWatch:
    """A watch that asks this client."""
    clock, proven = SystemClock(), ProvenAddresses(None)
    return RouteWatch(cast("RemotingClient", client), proven, clock, Logger(), give)


@pytest.mark.parametrize(
    ("config_bytes", "members_bytes", "found"),
    [
        (CONFIG_BYTES_MAX, MEMBERS_BYTES_MAX, RouteUpdated("b", 7)),
        (CONFIG_BYTES_MAX + 1, 0, RouteUnknown("b", 7)),
        (0, MEMBERS_BYTES_MAX + 1, RouteUnknown("b", 7)),
    ],
    ids=["as long as may be", "the broker's is longer", "the name server's is longer"],
)
async def test_answer_when_it_is_longer_than_any_real_one_then_it_is_not_read(
    config_bytes: int, members_bytes: int, found: RouteUpdated | RouteUnknown
) -> None:
    """16 MB of lines held the leader's loop for 9 s: another was elected, and asked next."""
    result: asyncio.Future[Heard] = asyncio.Future()

    def give(event: Heard) -> None:
        if not isinstance(event, RouteFollowed):
            result.set_result(event)

    watch = watch_by(Answering(config_bytes, members_bytes), give)
    watch.watch(WatchRoute("c", "b", 7, MASTER, 100))
    async with asyncio.timeout(5):
        assert await result == found
    await watch.close()


async def test_watches_when_they_are_many_then_a_further_set_s_route_is_unknown_at_once() -> None:
    """Thousands of masters may die at once, and each watch asks a dozen servers."""
    heard: list[Heard] = []
    client = Answering(hangs=True)
    watch = watch_by(client, heard.append)
    for number in range(WATCHES_MAX):
        watch.watch(WatchRoute("c", f"b{number}", 7, MASTER, 60_000))
    assert heard == []
    watch.watch(WatchRoute("c", "further", 8, MASTER, 60_000))
    assert heard == [RouteUnknown("further", 8)]
    watch.watch(WatchRoute("c", "b0", 9, MASTER, 60_000))
    assert len(heard) == 1  # an older watch of the same set made room
    await asyncio.sleep(0)
    assert client.asked == WATCHES_MAX
    await watch.close()
