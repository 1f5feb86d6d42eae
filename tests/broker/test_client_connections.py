"""What a broker tells its clients over their own connections: as little as they read."""

from __future__ import annotations

from typing import Any, cast

from rmqha.base.ids import ConnectionId
from rmqha.broker.groups.aio.client_connections import ClientConnections
from rmqha.remoting.command import RemotingCommand

ID = ConnectionId(7)


class Client:
    """A connection that keeps what it is sent."""

    id = ID
    is_closing = is_write_paused = False

    def __init__(self) -> None:
        self.sent: list[RemotingCommand] = []

    def send(self, command: RemotingCommand) -> None:
        """Keep it."""
        self.sent.append(command)


def test_client_when_it_does_not_read_then_it_is_told_nothing_more() -> None:
    """What a group that changes often has to tell would fill memory for a client that hangs."""
    connections, client = ClientConnections(cast(Any, None), 10), Client()
    assert not connections.oneway(ID, RemotingCommand(40)), "nobody has come yet"
    connections.learn(cast(Any, client))
    client.is_write_paused = True
    assert not connections.oneway(ID, RemotingCommand(40))
    assert client.sent == []
    client.is_write_paused = False
    assert connections.oneway(ID, RemotingCommand(40))
    (told,) = client.sent
    assert told.is_oneway
    client.is_closing = True
    assert not connections.oneway(ID, RemotingCommand(40))
