"""Seeing the new master in the name servers: fakes on loopback say what real ones would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from rmqha.auth.registered import ProvenAddresses
from rmqha.controller.aio.route_watch import RouteWatch
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
