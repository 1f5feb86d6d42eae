"""A loopback server under test, with a handler that records and answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from rmqha.base.errors import RemoteProtocolError
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import RemotingServer
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork

React = Callable[[Connection, RemotingCommand], None]


def echo(connection: Connection, command: RemotingCommand) -> None:
    """Answer a request with its own fields and body."""
    if not command.is_oneway:
        connection.send(command.reply(0, None, command.ext_fields, command.body))


@dataclass
class RecordingHandler:
    """Notes what the server reports; each kind in a queue that tests wait on."""

    react: React = echo
    batches: asyncio.Queue[list[RemotingCommand]] = field(default_factory=asyncio.Queue)
    closes: asyncio.Queue[Exception | None] = field(default_factory=asyncio.Queue)
    errors: asyncio.Queue[RemoteProtocolError] = field(default_factory=asyncio.Queue)

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        """React to each command."""
        self.batches.put_nowait(commands)
        for command in commands:
            self.react(connection, command)

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        """Note the end."""
        self.closes.put_nowait(error)

    def on_protocol_error(self, connection: Connection, error: RemoteProtocolError) -> None:
        """Note the malformed input."""
        self.errors.put_nowait(error)


@dataclass
class Pair:
    """A server on a free port and a client."""

    server: RemotingServer
    client: RemotingClient
    handler: RecordingHandler

    @property
    def address(self) -> str:
        """Where the server listens."""
        return f"127.0.0.1:{self.server.port}"


@asynccontextmanager
async def pair(
    react: React = echo, settings: RemotingSettings | None = None
) -> AsyncIterator[Pair]:
    """Start a server and a client; close both."""
    settings = settings or RemotingSettings()
    handler, network, clock = RecordingHandler(react), TcpNetwork(), SystemClock()
    server = RemotingServer(
        network, clock, settings, handler, on_protocol_error=handler.on_protocol_error
    )
    client = RemotingClient(network, clock, RemotingSettings())
    await server.start("127.0.0.1", 0)
    try:
        yield Pair(server, client, handler)
    finally:
        await client.close()
        await server.close()
