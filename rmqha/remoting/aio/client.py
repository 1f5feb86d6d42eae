"""Requests to other processes: one connection per address, shared by all callers.

A request that times out leaves the connection open (Java's client closes it, which a controller then
takes for the broker's death). A lost connection fails its requests, and the next one connects anew.
So it does where the peer has fallen silent (``session.Silence``); the old connection is left open until
the peer has answered on the new one for ``LEFT_OPEN_MS``, and for as long as requests wait there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from rmqha.base.errors import (
    ConfigInvalid,
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    RequestTimeout,
)
from rmqha.base.ids import ConnectionId
from rmqha.remoting.address import parse_address
from rmqha.remoting.aio.connection import Connection, OnProtocolError
from rmqha.remoting.aio.server import CONNECTION_IDS, unsupported
from rmqha.remoting.codes import request_name
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.session import ClientSession, Silence
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.earliest import EarliestTimer
from rmqha.runtime.ports import Clock, Network, TimerHandle

Answer = asyncio.Future[RemotingCommand]

LEFT_OPEN_MS = 10_000
"""A peer that lives takes the end of the connection that it heard last for the end of this process:
several heartbeats, and a registration, have come over the new one before. One that stood still finds
both connections when it goes on, so the old one does not end before the new one was answered."""


class _Channel:
    """One connection, its session, and the futures of those who wait."""

    def __init__(
        self,
        address: str,
        clock: Clock,
        settings: RemotingSettings,
        on_heard: Callable[[_Channel], None],
        on_silent: Callable[[_Channel], None],
    ) -> None:
        self.address = address
        self.session = ClientSession(settings.pending_requests_max)
        self.connection: Connection | None = None
        self._clock = clock
        self._on_heard, self._on_silent = on_heard, on_silent
        self._silence = Silence()
        self.was_heard = self.is_given_up = self._is_ending = False
        # Who waits, and what the peer had sent in all when it was asked.
        self._answers: dict[int, tuple[Answer, int]] = {}
        self._timer = EarliestTimer(clock, self._on_timer)

    @property
    def is_usable(self) -> bool:
        return self.connection is not None and not self.connection.is_closing

    async def invoke(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        connection = self.connection
        if connection is None or connection.is_closing:
            raise ConnectionLost(f"connection to {self.address} is lost")
        opaque = self.session.start(self._clock.now_ms(), command, timeout_ms)
        answer: Answer = asyncio.get_running_loop().create_future()
        self._answers[opaque] = answer, connection.bytes_in
        try:
            connection.send(command)
            self._timer.arm(self.session.next_deadline_ms)
            return await answer
        finally:
            # Answered, timed out, or the caller was cancelled: nobody waits any more.
            self.session.forget(opaque)
            self._answers.pop(opaque, None)
            self._end_if_over()

    def end(self, *, now: bool) -> None:
        """End a connection that was given up; unless ``now``, when its last request is over."""
        self._is_ending = True
        self._end_if_over(now=now)

    def _end_if_over(self, *, now: bool = False) -> None:
        if self._is_ending and self.connection is not None and (now or not self._answers):
            # What it was sent last may never leave: nobody waits for that.
            self.connection.abort(ConnectionLost(f"{self.address} gave no answers"))

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        if not self.was_heard:
            self.was_heard = True
            self._on_heard(self)
        for command in commands:
            if not command.is_response:
                if not command.is_oneway:
                    connection.send(unsupported(command))
            elif self.session.receive(command):
                answer, _ = self._answers.pop(command.opaque)
                if not answer.done():
                    answer.set_result(command)

    def on_closed(self, error: Exception | None) -> None:
        self._timer.cancel()
        reason = f": {error}" if error is not None else ""
        for opaque in self.session.close():
            self._fail(opaque, ConnectionLost(f"connection to {self.address} is lost{reason}"))

    def _on_timer(self) -> None:
        heard_bytes = 0 if self.connection is None else self.connection.bytes_in
        is_silent = False
        for opaque in self.session.expire(self._clock.now_ms()):
            if opaque in self._answers:
                is_silent = self._silence.timed_out(self._answers[opaque][1], heard_bytes)
            self._fail(opaque, RequestTimeout(f"{self.address} did not answer in time"))
        self._timer.arm(self.session.next_deadline_ms)
        if is_silent:
            self._on_silent(self)

    def _fail(self, opaque: int, error: Exception) -> None:
        waiting = self._answers.pop(opaque, None)
        if waiting is not None and not waiting[0].done():
            waiting[0].set_exception(error)


class RemotingClient:
    """Sends requests to ``host:port`` addresses and waits for their answers."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        settings: RemotingSettings,
        *,
        on_protocol_error: OnProtocolError | None = None,
        on_lost: Callable[[str], None] | None = None,
        connection_ids: Iterator[int] = CONNECTION_IDS,
        sign: Callable[[RemotingCommand], None] | None = None,
    ) -> None:
        """Prepare a client; it connects when it is first asked to.

        Args:
            network: where to connect.
            clock: for deadlines.
            settings: the limits, and the waits used when a call names none.
            on_protocol_error: told about malformed answers; that connection alone is closed.
            on_lost: told the address whose connection in use has ended, whoever ended it.
            connection_ids: numbers for connections; never two equal ones in a process.
            sign: puts a signature into each request; None for no signatures.
        """
        self._network = network
        self._clock = clock
        self._settings = settings
        self._sign = sign
        self._on_protocol_error = on_protocol_error
        self._on_lost = on_lost
        self._connection_ids = connection_ids
        self._channels: dict[str, _Channel] = {}
        # Of each address the connection that was given up last, until it is closed; and its last
        # wait, once the next one was answered.
        self._left_open: dict[str, tuple[_Channel, TimerHandle | None]] = {}
        self._connects: dict[str, tuple[asyncio.Task[None], list[asyncio.Future[_Channel]]]] = {}
        self._closed = False

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int | None = None, *,
        sign: bool = True,
    ) -> RemotingCommand:  # fmt: skip
        """Send a request and wait for its answer, whatever its code.

        Args:
            address: ``host:port`` or ``[ipv6]:port``.
            command: the request; its opaque is set here.
            timeout_ms: for everything, connecting included; None takes the settings' value.
            sign: False for a request that has its signature.

        Raises:
            ConnectFailed: no connection; the request has not been sent.
            RequestTimeout: no answer in time; the peer may have acted on it or not.
            ConnectionLost: the connection ended first; the peer may have acted on it or not.
            LocalProtocolError: the client is closed, the command cannot be written, or too many
                requests wait.
        """
        timeout_ms = self._settings.invoke_timeout_ms if timeout_ms is None else timeout_ms
        channel = self._channels.get(address)
        if channel is None or not channel.is_usable:
            started_ms = self._clock.now_ms()
            channel = await self._connected(address, timeout_ms)
            timeout_ms = max(1, timeout_ms - (self._clock.now_ms() - started_ms))
        if sign and self._sign is not None:
            self._sign(command)
        try:
            return await channel.invoke(command, timeout_ms)
        except RequestTimeout as error:
            raise RequestTimeout(f"{request_name(command.code)}: {error}") from error

    async def invoke_oneway(
        self, address: str, command: RemotingCommand, timeout_ms: int | None = None
    ) -> None:
        """Send a request that wants no answer; returns when it is handed to the connection.

        Raises:
            ConnectFailed: no connection; the request has not been sent.
            LocalProtocolError: the client is closed or the command cannot be written.
        """
        timeout_ms = self._settings.invoke_timeout_ms if timeout_ms is None else timeout_ms
        channel = self._channels.get(address)
        if channel is None or not channel.is_usable:
            channel = await self._connected(address, timeout_ms)
        if channel.connection is None or not channel.is_usable:
            raise ConnectFailed(f"connection to {address} is lost")
        if self._sign is not None:
            self._sign(command)
        channel.session.start_oneway(command)
        channel.connection.send(command)

    def disconnect(self, address: str) -> None:
        """Close the connection to a peer, if there is one; the next call opens another."""
        self._end_left_open(address, now=True)
        channel = self._channels.pop(address, None)
        if channel is not None and channel.connection is not None:
            channel.connection.close()
            self._lost(address)

    async def close(self) -> None:
        """Close all connections; those who wait get ConnectionLost or ConnectFailed."""
        self._closed = True
        tasks = [task for task, _ in self._connects.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for address in list(self._connects):
            # A task cancelled before its first step never reaches its own clean-up.
            self._tell_waiters(address, None, f"connecting to {address} was given up")
        for address in list(self._left_open):
            self._end_left_open(address, now=True)
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            if channel.connection is not None:
                channel.connection.close()
            channel.on_closed(None)

    async def _connected(self, address: str, timeout_ms: int) -> _Channel:
        """Wait for the connect that is under way, or start one; this caller waits no longer
        than ``timeout_ms`` and its cancellation does not disturb the others."""
        if self._closed:
            raise LocalProtocolError("the client is closed")
        waiter: asyncio.Future[_Channel] = asyncio.get_running_loop().create_future()
        if address in self._connects:
            self._connects[address][1].append(waiter)
        else:
            task = asyncio.create_task(self._connect(address), name=f"connect {address}")
            self._connects[address] = (task, [waiter])
        late = ConnectFailed(f"no connection to {address} within {timeout_ms} ms")
        timer = self._clock.call_later(timeout_ms, _fail_waiter, waiter, late)
        try:
            return await waiter
        finally:
            timer.cancel()

    async def _connect(self, address: str) -> None:
        """Open a connection and tell all who wait for it. Owned by ``_connects``."""
        channel: _Channel | None = None
        failure = f"connecting to {address} was given up"
        try:
            channel = await self._open(address)
        except (ConnectFailed, ConfigInvalid) as error:
            failure = str(error)
        finally:
            self._tell_waiters(address, channel, failure)

    def _tell_waiters(self, address: str, channel: _Channel | None, failure: str) -> None:
        _, waiters = self._connects.pop(address)
        for waiter in waiters:
            if channel is None:
                _fail_waiter(waiter, ConnectFailed(failure))
            elif not waiter.done():
                waiter.set_result(channel)

    def _lost(self, address: str) -> None:
        if self._on_lost is not None and not self._closed:
            self._on_lost(address)

    def _give_up(self, channel: _Channel) -> None:
        """The peer has fallen silent: the next call opens another connection to it."""
        address = channel.address
        if self._channels.get(address) is not channel:
            return
        if address in self._left_open and not channel.was_heard:
            return  # a third one would be as silent
        del self._channels[address]
        channel.is_given_up = True
        self._end_left_open(address)
        self._left_open[address] = channel, None
        self._lost(address)

    def _heard(self, channel: _Channel) -> None:
        """The peer has answered on a new connection; the one before it is over soon."""
        address = channel.address
        left, timer = self._left_open.get(address, (channel, None))
        if left is not channel and timer is None:
            timer = self._clock.call_later(LEFT_OPEN_MS, self._end_left_open, address)
            self._left_open[address] = left, timer

    def _end_left_open(self, address: str, *, now: bool = False) -> None:
        """End a connection that was given up; unless ``now``, when its last request is over."""
        if address not in self._left_open:
            return
        channel, timer = self._left_open.pop(address)
        if timer is not None:
            timer.cancel()
        channel.end(now=now)

    async def _open(self, address: str) -> _Channel:
        host, port = parse_address(address)
        channel = _Channel(address, self._clock, self._settings, self._heard, self._give_up)

        def closed(_: Connection, error: Exception | None) -> None:
            channel.on_closed(error)
            if self._channels.get(address) is channel:
                del self._channels[address]
                self._lost(address)
            elif channel.is_given_up:
                if address in self._left_open and self._left_open[address][0] is channel:
                    self._end_left_open(address)
                # The peer may have heard nothing of the new one: to it, this was the one in use.
                self._lost(address)

        connection = channel.connection = Connection(
            ConnectionId(next(self._connection_ids)),
            self._clock,
            self._settings,
            on_commands=channel.on_commands,
            on_closed=closed,
            on_protocol_error=self._on_protocol_error,
        )
        await self._network.connect(
            host, port, lambda: connection, timeout_ms=self._settings.connect_timeout_ms
        )
        if channel.is_usable:
            self._channels[address] = channel
        return channel


def _fail_waiter(waiter: asyncio.Future[_Channel], error: ConnectFailed) -> None:
    if not waiter.done():
        waiter.set_exception(error)
