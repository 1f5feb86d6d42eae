"""The client on loopback: matching, deadlines, losses, and one connection for all callers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop

from rmqha.base.errors import (
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    RequestTimeout,
)
from rmqha.remoting.aio.client import LEFT_OPEN_MS, RemotingClient
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import RemotingServer
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.ports import TimerHandle
from tests.remoting.harness import RecordingHandler, pair


def silent(connection: Connection, command: RemotingCommand) -> None:
    """Answer nothing."""


async def test_answers_out_of_order_find_their_callers() -> None:
    """Java's server answers in any order."""
    held: list[RemotingCommand] = []

    def react(connection: Connection, command: RemotingCommand) -> None:
        held.append(command)
        if len(held) == 5:
            for request in reversed(held):
                connection.send(request.reply(0, body=request.body))

    async with pair(react) as under_test:
        answers = await asyncio.gather(
            *(
                under_test.client.invoke(under_test.address, RemotingCommand(1004, body=b"%d" % n))
                for n in range(5)
            )
        )
        assert [b"0", b"1", b"2", b"3", b"4"] == [answer.body for answer in answers]
        assert len(under_test.server.connections) == 1


async def test_silent_peer_times_out_and_the_connection_stays() -> None:
    """Closing it, as Java does, would look like this process's death to a controller."""
    requests: list[RemotingCommand] = []

    def react(connection: Connection, command: RemotingCommand) -> None:
        requests.append(command)
        if len(requests) == 2:
            # The late answer to the first request must not reach the second.
            connection.send(requests[0].reply(7))
            connection.send(requests[1].reply(0))

    async with pair(react) as under_test:
        with pytest.raises(RequestTimeout, match="CONTROLLER_GET_METADATA_INFO"):
            await under_test.client.invoke(under_test.address, RemotingCommand(1005), 30)
        assert 0 == (await under_test.client.invoke(under_test.address, RemotingCommand(1005))).code
        assert len(under_test.server.connections) == 1


async def test_earlier_deadline_fires_before_a_later_one() -> None:
    """One timer serves all requests of a connection; it must follow the earliest."""
    async with pair(silent) as under_test:
        ended: list[int] = []

        async def ask(timeout_ms: int) -> None:
            with pytest.raises(RequestTimeout):
                await under_test.client.invoke(
                    under_test.address, RemotingCommand(1005), timeout_ms
                )
            ended.append(timeout_ms)

        await under_test.client.invoke_oneway(under_test.address, RemotingCommand(904))
        await asyncio.gather(ask(90), ask(20), ask(50))
        assert [20, 50, 90] == ended


async def test_lost_connection_fails_all_and_the_next_request_reconnects() -> None:
    """A broker must find the controller again by itself."""
    seen = 0

    def react(connection: Connection, command: RemotingCommand) -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            connection.abort()
        elif seen > 2:
            connection.send(command.reply(0))

    async with pair(react) as under_test:
        results = await asyncio.gather(
            *(under_test.client.invoke(under_test.address, RemotingCommand(1005)) for _ in "ab"),
            return_exceptions=True,
        )
        assert [ConnectionLost, ConnectionLost] == [type(result) for result in results]
        assert 0 == (await under_test.client.invoke(under_test.address, RemotingCommand(1005))).code


async def test_oneway_is_delivered_and_not_awaited() -> None:
    """Heartbeats and notifications."""
    async with pair() as under_test:
        command = RemotingCommand(904, ext_fields={"a": "b"})
        await under_test.client.invoke_oneway(under_test.address, command)
        (received,) = await under_test.handler.batches.get()
        assert received.is_oneway
        assert {"a": "b"} == received.ext_fields


async def test_refused_connection_is_connect_failed() -> None:
    """The caller may safely ask another node: nothing was sent."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        client = RemotingClient(TcpNetwork(), SystemClock(), RemotingSettings())
        with pytest.raises(ConnectFailed):
            await client.invoke(address, RemotingCommand(1005))
        with pytest.raises(ConnectFailed):
            await client.invoke_oneway(address, RemotingCommand(904))
        await client.close()


async def test_malformed_address_is_connect_failed() -> None:
    """Addresses come from brokers; a bad one must not stop a notifier."""
    client = RemotingClient(TcpNetwork(), SystemClock(), RemotingSettings())
    with pytest.raises(ConnectFailed, match="not host:port"):
        await client.invoke("nonsense", RemotingCommand(1005))
    await client.close()


class StuckNetwork(TcpNetwork):
    """A network whose connects never end."""

    def __init__(self) -> None:
        self.attempts = 0

    async def connect(self, host, port, factory, *, timeout_ms):  # type: ignore[no-untyped-def]
        self.attempts += 1
        await asyncio.Event().wait()


async def test_callers_share_a_connect_and_each_has_its_own_patience() -> None:
    """A dead host must cost one attempt, not one per caller."""
    network = StuckNetwork()
    client = RemotingClient(network, SystemClock(), RemotingSettings())
    with pytest.raises(ConnectFailed, match="within 20 ms"):
        await client.invoke("127.0.0.1:1", RemotingCommand(1005), 20)
    patient = asyncio.ensure_future(client.invoke("127.0.0.1:1", RemotingCommand(1005), 60_000))
    hasty = asyncio.ensure_future(client.invoke("127.0.0.1:1", RemotingCommand(1005), 60_000))
    await asyncio.sleep(0)
    hasty.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hasty
    assert 1 == network.attempts
    await client.close()
    with pytest.raises(ConnectFailed, match="given up"):
        await patient


async def test_close_before_the_connect_began_still_tells_its_waiters() -> None:
    """A task cancelled before its first step runs no clean-up of its own."""
    client = RemotingClient(StuckNetwork(), SystemClock(), RemotingSettings())
    waiting = asyncio.ensure_future(client.invoke("127.0.0.1:1", RemotingCommand(1005), 60_000))
    closing = asyncio.ensure_future(client.close())
    with pytest.raises(ConnectFailed):
        await waiting
    await closing
    with pytest.raises(LocalProtocolError):
        await client.invoke("127.0.0.1:1", RemotingCommand(1005))


async def test_close_fails_those_who_wait() -> None:
    """Nobody may hang on a client that is gone."""
    async with pair(silent) as under_test:
        waiting = asyncio.ensure_future(
            under_test.client.invoke(under_test.address, RemotingCommand(1005), 60_000)
        )
        await under_test.handler.batches.get()
        await under_test.client.close()
        with pytest.raises(ConnectionLost):
            await waiting
        assert None is await under_test.handler.closes.get()


async def test_cancelled_caller_is_forgotten() -> None:
    """Cancelled requests would otherwise fill the pending limit."""
    async with pair(silent) as under_test:
        client = RemotingClient(
            TcpNetwork(), SystemClock(), RemotingSettings(pending_requests_max=1)
        )
        waiting = asyncio.ensure_future(
            client.invoke(under_test.address, RemotingCommand(1005), 60_000)
        )
        await under_test.handler.batches.get()
        with pytest.raises(LocalProtocolError, match="wait for an answer"):
            await client.invoke(under_test.address, RemotingCommand(1005))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(RequestTimeout):
            await client.invoke(under_test.address, RemotingCommand(1005), 20)
        await client.close()


async def test_request_from_the_server_is_answered_as_unsupported() -> None:
    """A Java peer waits for an answer to what it asks its clients."""

    def react(connection: Connection, command: RemotingCommand) -> None:
        if not command.is_response:
            connection.send(RemotingCommand(40, opaque=77))

    async with pair(react) as under_test:
        await under_test.client.invoke_oneway(under_test.address, RemotingCommand(904))
        await under_test.handler.batches.get()
        (answer,) = await under_test.handler.batches.get()
        assert (3, 77) == (answer.code, answer.opaque)


async def test_oneway_request_from_the_server_is_not_answered() -> None:
    """Who wants no answer has no place for one."""

    def react(connection: Connection, command: RemotingCommand) -> None:
        if not command.is_response:
            connection.send(RemotingCommand(40, opaque=77, flag=FLAG_ONEWAY))
            connection.send(RemotingCommand(40, opaque=78))

    async with pair(react) as under_test:
        await under_test.client.invoke_oneway(under_test.address, RemotingCommand(904))
        await under_test.handler.batches.get()
        assert [78] == [one.opaque for one in await under_test.handler.batches.get()]


async def test_ipv6_address_is_reached() -> None:
    """Its colons must not be taken for the port's."""
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    handler = RecordingHandler()
    server = RemotingServer(TcpNetwork(), SystemClock(), RemotingSettings(), handler)
    try:
        await server.start("::1", 0)
    except OSError:
        pytest.skip("no IPv6 loopback here")
    client = RemotingClient(TcpNetwork(), SystemClock(), RemotingSettings())
    assert 0 == (await client.invoke(f"[::1]:{server.port}", RemotingCommand(1005))).code
    (connection,) = server.connections
    assert connection.peer.startswith("[::1]:")
    await client.close()
    await server.close()


def test_shells_behave_the_same_on_uvloop() -> None:
    """Production runs on uvloop; its transports differ in small ways."""

    async def main() -> None:
        async with pair(settings=RemotingSettings(connections_max=1)) as under_test:
            answers = await asyncio.gather(
                *(
                    under_test.client.invoke(under_test.address, RemotingCommand(1, body=bytes(n)))
                    for n in range(0, 1_000_000, 50_000)
                )
            )
            assert list(range(0, 1_000_000, 50_000)) == [len(a.body) for a in answers]
            other = RemotingClient(TcpNetwork(), SystemClock(), RemotingSettings())
            with pytest.raises(ConnectionLost):
                await other.invoke(under_test.address, RemotingCommand(1))
            await other.close()

    uvloop.run(main())


async def test_disconnect_ends_the_connection_and_the_next_call_opens_another() -> None:
    """A broker that wants to be missed; those who wait hear that the connection is lost."""

    def react(connection: Connection, command: RemotingCommand) -> None:
        if command.body:
            connection.send(command.reply(0))

    async with pair(react) as under_test:
        client, address = under_test.client, under_test.address
        client.disconnect(address)
        await client.invoke(address, RemotingCommand(1004, body=b"x"))
        (first,) = under_test.server.connections
        waiting = asyncio.create_task(client.invoke(address, RemotingCommand(1004)))
        await client.invoke(address, RemotingCommand(1004, body=b"x"))
        client.disconnect(address)
        with pytest.raises(ConnectionLost):
            await waiting
        await client.invoke(address, RemotingCommand(1004, body=b"x"))
        assert under_test.server.connections[-1].id != first.id


class Deaf:
    """A server that is deaf on its first connection: what it is asked there is never answered."""

    def __init__(self, answered: frozenset[int] = frozenset()) -> None:
        self.first: Connection | None = None
        self.held = list[RemotingCommand]()
        self._answered = answered

    def react(self, connection: Connection, command: RemotingCommand) -> None:
        """Answer a request of another connection, or of a code that is answered."""
        self.first = self.first or connection
        if connection is not self.first or command.code in self._answered:
            connection.send(command.reply(0))
        else:
            self.held.append(command)


class HeldClock(SystemClock):
    """A clock whose wait for the end of a connection that was given up is over when told."""

    def __init__(self) -> None:
        self.ends = list[tuple[Callable[..., None], tuple[object, ...]]]()

    def call_later(
        self, delay_ms: float, callback: Callable[..., None], *args: object
    ) -> TimerHandle:
        if delay_ms == LEFT_OPEN_MS:
            self.ends.append((callback, args))
            return asyncio.get_running_loop().call_later(3600, callback, *args)
        return super().call_later(delay_ms, callback, *args)


async def timed_out(client: RemotingClient, address: str, timeout_ms: int = 20) -> None:
    """A request that nobody answers in time."""
    with pytest.raises(RequestTimeout):
        await client.invoke(address, RemotingCommand(1005), timeout_ms)


async def test_connection_when_two_requests_bring_nothing_then_the_next_goes_to_another() -> None:
    """After a host had lost its connections, requests timed out on a dead one for minutes."""
    deaf, clock, lost = Deaf(), HeldClock(), asyncio.Queue[str]()
    async with pair(deaf.react) as under_test:
        client = RemotingClient(TcpNetwork(), clock, RemotingSettings(), on_lost=lost.put_nowait)
        address = under_test.address
        patient = asyncio.create_task(client.invoke(address, RemotingCommand(1004), 60_000))
        await under_test.handler.batches.get()
        await timed_out(client, address)
        assert len(under_test.server.connections) == 1
        await timed_out(client, address)
        assert lost.get_nowait() == address
        assert (await client.invoke(address, RemotingCommand(1005))).code == 0
        # A live peer hears the new one before the old one ends, which is then over soon.
        assert len(under_test.server.connections) == 2
        ((end, args),) = clock.ends
        end(*args)
        assert deaf.first is not None
        deaf.first.send(deaf.held[0].reply(7))
        assert (await patient).code == 7, "whoever waits there is answered still"
        await under_test.handler.closes.get()
        assert deaf.first not in under_test.server.connections
        assert await lost.get() == address
        assert (await client.invoke(address, RemotingCommand(1005))).code == 0
        assert len(under_test.server.connections) == 1
        await client.close()


async def test_connection_when_others_are_answered_on_it_then_slow_requests_cost_it_nothing() -> (
    None
):
    """A server that is slow with some requests would be dialed for ever."""
    deaf = Deaf(answered=frozenset({1004}))
    async with pair(deaf.react) as under_test:
        client, address = under_test.client, under_test.address
        for _ in range(4):
            await timed_out(client, address)
            assert (await client.invoke(address, RemotingCommand(1004))).code == 0
        assert len(under_test.server.connections) == 1


async def test_connection_when_it_was_given_up_then_disconnect_and_close_end_it_at_once() -> None:
    """A broker that wants to be missed is not, while any of its connections is open."""
    for ends_by_close in (False, True):
        deaf = Deaf()
        async with pair(deaf.react) as under_test:
            client, address = under_test.client, under_test.address
            patient = asyncio.create_task(client.invoke(address, RemotingCommand(1004), 60_000))
            await timed_out(client, address)
            await timed_out(client, address)
            await client.invoke(address, RemotingCommand(1005))
            assert len(under_test.server.connections) == 2
            if ends_by_close:
                await client.close()
            else:
                client.disconnect(address)
            with pytest.raises(ConnectionLost):
                await patient
            while under_test.server.connections:
                await under_test.handler.closes.get()


async def test_connection_when_the_one_after_it_falls_silent_too_then_there_is_no_third() -> None:
    """A peer that stands still would find ends of connections before the heartbeats of the next ones,
    and one that never answers would cost a socket every two requests."""
    clock, answering = HeldClock(), False

    def react(connection: Connection, command: RemotingCommand) -> None:
        if answering:
            connection.send(command.reply(0))

    async with pair(react) as under_test:
        client, address = (
            RemotingClient(TcpNetwork(), clock, RemotingSettings()),
            under_test.address,
        )
        for _ in range(6):
            await timed_out(client, address)
        assert len(under_test.server.connections) == 2
        assert clock.ends == [], "nobody knows yet that it would not be taken for this one's death"
        answering = True
        for _ in range(2):
            await client.invoke(address, RemotingCommand(1005))
        assert len(clock.ends) == 1
        answering = False
        for _ in range(2):
            await timed_out(client, address)
        answering = True
        await client.invoke(address, RemotingCommand(1005))
        await under_test.handler.closes.get()  # the first one: the peer knows two newer ones
        assert len(under_test.server.connections) == 2, "one that was answered may fall silent, too"
        end, args = clock.ends[-1]
        end(*args)
        await under_test.handler.closes.get()
        assert len(under_test.server.connections) == 1
        await client.close()


class SlowNetwork(TcpNetwork):
    """A network on which a connect takes a while by the clock of the test."""

    def __init__(self, clock: LateClock) -> None:
        super().__init__()
        self._clock = clock

    async def connect(self, host, port, factory, *, timeout_ms):  # type: ignore[no-untyped-def]
        await super().connect(host, port, factory, timeout_ms=timeout_ms)
        self._clock.late_ms += 2_000


class LateClock(SystemClock):
    """A clock that jumps; it notes what it was asked to wait for."""

    def __init__(self) -> None:
        self.late_ms = 0
        self.delays = list[float]()

    def now_ms(self) -> int:
        return super().now_ms() + self.late_ms

    def call_later(
        self, delay_ms: float, callback: Callable[..., None], *args: object
    ) -> TimerHandle:
        self.delays.append(delay_ms)
        return super().call_later(delay_ms, callback, *args)


async def test_timeout_when_a_connect_took_most_of_it_then_the_request_has_the_rest() -> None:
    """The caller's patience is for everything: three seconds became six."""
    clock = LateClock()
    async with pair() as under_test:
        client = RemotingClient(SlowNetwork(clock), clock, RemotingSettings(idle_timeout_ms=0))
        await client.invoke(under_test.address, RemotingCommand(1005), 3_000)
        waited, deadline = clock.delays
        assert waited == 3_000
        assert 0 < deadline <= 1_000
        await client.close()
