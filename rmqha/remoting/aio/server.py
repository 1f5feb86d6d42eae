"""A listening port whose connections speak remoting frames."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

from rmqha.base.errors import ConnectionLost, LocalProtocolError, RemoteProtocolError
from rmqha.base.ids import ConnectionId
from rmqha.remoting.aio.connection import Connection, OnProtocolError
from rmqha.remoting.aio.room import Room
from rmqha.remoting.aio.turns import Turns
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.repeats import HeaderCache
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.ports import Clock, Listener, Network

# Shared by all servers and clients of the process, so that a ConnectionId names one connection.
CONNECTION_IDS: Iterator[int] = itertools.count(1)


class ServerHandler(Protocol):
    """What a server's owner does with its connections."""

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        """Handle the commands of one chunk, in order; answers may be sent at any later time."""

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        """The connection has ended."""


def unsupported(request: RemotingCommand) -> RemotingCommand:
    """Make the answer to a request code that has no handler, in Java's words."""
    return request.reply(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
    )


class RemotingServer:
    """Accepts connections and hands their commands to one handler."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        settings: RemotingSettings,
        handler: ServerHandler,
        *,
        on_protocol_error: OnProtocolError | None = None,
        connection_ids: Iterator[int] = CONNECTION_IDS,
        headers: HeaderCache | None = None,
        is_full: Callable[[], bool] = bool,
        rejected: Counter[str] | None = None,
    ) -> None:
        """Prepare a server; :meth:`start` opens the port.

        Args:
            network: where to listen.
            clock: for idle timers and the grace of :meth:`close`.
            settings: the limits.
            handler: gets commands and closes.
            on_protocol_error: told about malformed input; that connection alone is closed.
            connection_ids: numbers for connections; never two equal ones in a process.
            headers: reads JSON headers; one of the server's own by default.
            is_full: whether the handler has so much to answer that connections which bring much
                have to wait.
            rejected: counts, by reason, connections that this server ended or did not let in.
        """
        self._network = network
        self._clock = clock
        self._settings = settings
        self._handler = handler
        self._on_protocol_error = on_protocol_error
        self._connection_ids = connection_ids
        self._connections: dict[ConnectionId, Connection] = {}
        self._listener: Listener | None = None
        self._drained: asyncio.Event | None = None
        self._headers = HeaderCache() if headers is None else headers
        self._of_host: dict[str, dict[ConnectionId, Connection]] = {}
        self.rejected = Counter[str]() if rejected is None else rejected
        self.turns = Turns(is_full)
        self.room = Room(settings.held_bytes_max)

    @property
    def port(self) -> int:
        """The port in use, also when 0 was asked for.

        Raises:
            LocalProtocolError: the server is not started.
        """
        if self._listener is None:
            raise LocalProtocolError("the server is not started")
        return self._listener.port

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The open connections, oldest first."""
        return tuple(self._connections.values())

    def connection(self, connection_id: int) -> Connection | None:
        """The open connection with this id."""
        return self._connections.get(ConnectionId(connection_id))

    async def start(self, host: str, port: int) -> None:
        """Listen on ``host:port``.

        Raises:
            OSError: the address cannot be used.
        """
        self._listener = await self._network.listen(host, port, self._make_connection)

    async def close(self, grace_ms: int = 0) -> None:
        """Stop accepting and end all connections; cut those off that last beyond ``grace_ms``."""
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        listener.close()
        self._drained = asyncio.Event()
        for connection in self.connections:
            connection.close()
        if self._connections:
            timer = self._clock.call_later(grace_ms, self._abort_all)
            await self._drained.wait()
            timer.cancel()
        await listener.wait_closed()

    def _make_connection(self) -> Connection:
        return Connection(
            ConnectionId(next(self._connection_ids)),
            self._clock,
            self._settings,
            on_commands=self._handler.on_commands,
            on_closed=self._on_connection_closed,
            on_opened=self._on_connection_opened,
            on_protocol_error=self._on_protocol_error,
            read_only_while_writable=True,
            headers=self._headers,
            turns=self.turns,
            room=self.room,
        )

    def _on_connection_opened(self, connection: Connection) -> None:
        host = connection.host
        if self._listener is None or not self._has_room(host):
            self.rejected["connections"] += 1
            connection.abort()
            return
        self._connections[connection.id] = connection
        self._of_host.setdefault(host, {})[connection.id] = connection
        if self.room.crowd(len(self._connections)):
            for one in self.connections:
                one.count_held()

    def _on_connection_closed(self, connection: Connection, error: Exception | None) -> None:
        # A refused connection was never shown to the handler.
        if self._connections.pop(connection.id, None) is None:
            return
        if isinstance(error, ConnectionLost) and error.rejected:
            self.rejected[error.rejected] += 1
        elif isinstance(error, RemoteProtocolError):
            self.rejected["broken"] += 1
        self._forget_host(connection)
        self.room.crowd(len(self._connections))
        if self._drained is not None and not self._connections:
            self._drained.set()
        self._handler.on_closed(connection, error)

    def _has_room(self, host: str) -> bool:
        """Whether a connection from an address may be open; room is made where it has its share.

        All connections of one address may take all places until somebody else wants one.
        """
        if len(self._connections) < self._settings.connections_max:
            return True
        mine = len(self._of_host.get(host, ()))
        if mine * (len(self._of_host) + 1) >= self._settings.connections_max:
            return False
        greedy = max(self._of_host.values(), key=len)
        if len(greedy) <= mine + 1:
            return False
        newest = next(reversed(greedy.values()))
        self._forget_host(newest)
        newest.abort(ConnectionLost("its address has more than its share of connections", "share"))
        return True

    def _forget_host(self, connection: Connection) -> None:
        host = connection.host
        found = self._of_host.get(host, {})
        found.pop(connection.id, None)
        if not found:
            self._of_host.pop(host, None)

    def _abort_all(self) -> None:
        for connection in self.connections:
            connection.abort()
