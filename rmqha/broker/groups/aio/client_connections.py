"""Requests from a broker to its clients, over the connections that the clients opened.

A client listens on no port, so what a broker has to tell or ask it (39, 40, 220, 221, 307, 309,
326) goes back the way its heartbeats came.
"""

from __future__ import annotations

import asyncio

from rmqha.base.errors import ConnectionLost, RequestTimeout
from rmqha.base.ids import ConnectionId
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import request_name
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.session import ClientSession
from rmqha.runtime.ports import Clock

_Answer = asyncio.Future[RemotingCommand]


class ClientConnections:
    """The connections of clients that have sent a heartbeat, and what is asked over them.

    Args:
        clock: for deadlines.
        pending_max: requests that wait for one client's answer; further ones are refused.
    """

    def __init__(self, clock: Clock, pending_max: int) -> None:
        self._clock = clock
        self._pending_max = pending_max
        self._connections: dict[ConnectionId, Connection] = {}
        self._sessions: dict[ConnectionId, ClientSession] = {}
        self._answers: dict[tuple[ConnectionId, int], _Answer] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def learn(self, connection: Connection) -> None:
        """Remember a client's connection until it ends."""
        self._connections[connection.id] = connection

    def close(self, connection: ConnectionId) -> None:
        """End a client's connection, if it is still there."""
        found = self._connections.get(connection)
        if found is not None:
            found.close()

    def oneway(self, connection: ConnectionId, command: RemotingCommand) -> bool:
        """Tell a client something; False when its connection is gone or it does not read.

        A client that leaves earlier bytes unread is not told more: what it is told here is what it
        also finds out by itself, and its share of memory must stay bounded.
        """
        found = self._connections.get(connection)
        if found is None or found.is_closing or found.is_write_paused:
            return False
        self._session(connection).start_oneway(command)
        found.send(command)
        return True

    async def invoke(
        self, connection: ConnectionId, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Ask a client and wait for its answer, whatever its code.

        Raises:
            ConnectionLost: its connection is gone, or went before the answer came.
            RequestTimeout: no answer in time.
            LocalProtocolError: too many requests wait for this client.
        """
        found = self._connections.get(connection)
        if found is None or found.is_closing:
            raise ConnectionLost("the client is not connected")
        session = self._session(connection)
        opaque = session.start(self._clock.now_ms(), command, timeout_ms)
        answer: _Answer = asyncio.get_running_loop().create_future()
        self._answers[connection, opaque] = answer
        late = RequestTimeout(f"{request_name(command.code)}: the client did not answer in time")
        timer = self._clock.call_later(timeout_ms, _fail, answer, late)
        try:
            found.send(command)
            return await answer
        finally:
            timer.cancel()
            session.forget(opaque)
            self._answers.pop((connection, opaque), None)

    def on_response(self, connection: Connection, response: RemotingCommand) -> None:
        """A client has answered; what nobody waits for is dropped."""
        session = self._sessions.get(connection.id)
        if session is None or not session.receive(response):
            return
        answer = self._answers.pop((connection.id, response.opaque), None)
        if answer is not None and not answer.done():
            answer.set_result(response)

    def on_closed(self, connection: ConnectionId) -> None:
        """A connection has ended: whoever waits for its answers is told."""
        self._connections.pop(connection, None)
        session = self._sessions.pop(connection, None)
        if session is None:
            return
        for opaque in session.close():
            answer = self._answers.pop((connection, opaque), None)
            if answer is not None:
                _fail(answer, ConnectionLost("the client has gone"))

    def _session(self, connection: ConnectionId) -> ClientSession:
        session = self._sessions.get(connection)
        if session is None:
            session = self._sessions[connection] = ClientSession(self._pending_max)
        return session


def _fail(answer: _Answer, error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
