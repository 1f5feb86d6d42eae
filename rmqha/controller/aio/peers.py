"""Raft messages between controllers, on the port that brokers use too (decision 3).

Each node dials every other and sends its messages on its own connection, one way. The first
frame is a hello with group and node id; without an accepted hello nothing else is looked at.
"""

from __future__ import annotations

from collections.abc import Callable

import msgpack

from rmqha.base.errors import ConnectFailed, RemoteProtocolError
from rmqha.base.ids import ConnectionId
from rmqha.controller.raft.messages import Message, decode_message, encode_message
from rmqha.controller.settings import Peer
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.remoting.frame import encode
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Network, Rng

PROTOCOL_VERSION = 2
RETRY_FIRST_MS = 20
RETRY_MAX_MS = 500
CONNECT_TIMEOUT_MS = 1000
KEEP_ALIVE_MS = 30_000


class PeerLink:
    """The outgoing connection to one peer: dialled for ever, with a growing pause."""

    def __init__(self, owner: Peers, peer: Peer, number: int) -> None:
        self._owner = owner
        self.peer = peer
        self._number = number
        self._connection: Connection | None = None
        self._pause_ms = RETRY_FIRST_MS

    @property
    def is_up(self) -> bool:
        """Whether messages can be sent."""
        return self._connection is not None and not self._connection.is_closing

    def send(self, message: Message) -> None:
        """Send, or drop when there is no connection or the peer does not read."""
        connection = self._connection
        if connection is None or connection.is_closing:
            return
        command = RemotingCommand(
            RequestCode.RAFT_MESSAGE, flag=FLAG_ONEWAY, body=encode_message(message)
        )
        connection.send_bytes(encode(command))

    def flush(self) -> None:
        """Let everything sent leave now."""
        if self._connection is not None:
            self._connection.flush()

    async def dial(self) -> None:
        """Connect once; arrange for another try when that fails."""
        owner = self._owner
        connection = Connection(
            ConnectionId(-self._number),
            owner.clock,
            owner.settings,
            on_commands=self._on_commands,
            on_closed=self._on_closed,
            on_opened=self._on_opened,
        )
        try:
            await owner.network.connect(
                self.peer.host, self.peer.port, lambda: connection, timeout_ms=CONNECT_TIMEOUT_MS
            )
        except ConnectFailed:
            self._retry()

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()

    def _retry(self) -> None:
        if self._owner.closing:
            return
        pause_ms = self._pause_ms + self._owner.rng.randint(0, self._pause_ms)
        self._pause_ms = min(RETRY_MAX_MS, self._pause_ms * 2)
        self._owner.clock.call_later(pause_ms, self._owner.dial, self)

    def _on_opened(self, connection: Connection) -> None:
        if self._owner.closing:
            connection.close()
            return
        self._connection = connection
        self._pause_ms = RETRY_FIRST_MS
        hello = msgpack.packb((PROTOCOL_VERSION, self._owner.group, self._owner.node_id))
        connection.send(RemotingCommand(RequestCode.RAFT_HELLO, opaque=1, body=hello))
        self._owner.log.log("info", "raft_peer_connected", peer=self.peer.id)
        self._owner.clock.call_later(KEEP_ALIVE_MS, self._keep_alive, connection, hello)

    def _keep_alive(self, connection: Connection, hello: bytes) -> None:
        """Followers have nothing to say to each other, and idle connections are closed."""
        if self._connection is connection and not connection.is_closing:
            connection.send(RemotingCommand(RequestCode.RAFT_HELLO, opaque=1, body=hello))
            self._owner.clock.call_later(KEEP_ALIVE_MS, self._keep_alive, connection, hello)

    def _on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        for command in commands:
            if command.is_response and command.code != ResponseCode.SUCCESS:
                self._owner.log.log(
                    "error", "raft_peer_refused_us", peer=self.peer.id, reason=command.remark
                )
                self._pause_ms = RETRY_MAX_MS
                connection.close()

    def _on_closed(self, connection: Connection, error: Exception | None) -> None:
        if self._connection is connection:
            self._connection = None
            self._owner.on_lost(self.peer.id)
        self._retry()


class Peers:
    """All links of a node, and who is at the other end of incoming connections.

    Args:
        group, node_id, peers: who we are and whom we dial.
        on_message: gets each decoded message of an accepted peer.
        on_lost: called with a peer's id when a connection from or to it ends.
    """

    def __init__(
        self,
        *,
        group: str,
        node_id: str,
        peers: tuple[Peer, ...],
        network: Network,
        clock: Clock,
        rng: Rng,
        settings: RemotingSettings,
        on_message: Callable[[Message], None],
        on_lost: Callable[[str], None],
        log: Logger,
    ) -> None:
        self.group = group
        self.node_id = node_id
        self.network = network
        self.clock = clock
        self.rng = rng
        self.settings = settings
        self.on_lost = on_lost
        self.log = log
        self.closing = False
        self._on_message = on_message
        self._links = {
            peer.id: PeerLink(self, peer, number)
            for number, peer in enumerate(peers, 1)
            if peer.id != node_id
        }
        self._incoming: dict[ConnectionId, str] = {}
        self._tasks = Tasks(log)

    def start(self) -> None:
        """Dial every peer."""
        for link in self._links.values():
            self.dial(link)

    def dial(self, link: PeerLink) -> None:
        """Start one connection attempt."""
        if not self.closing:
            self._tasks.start(link.dial(), name=f"dial {link.peer.id}")

    def send(self, to: str, message: Message) -> None:
        """Send a message; it may be lost."""
        self._links[to].send(message)

    def flush(self) -> None:
        """Let everything sent leave now: the peers can work while this node goes on."""
        for link in self._links.values():
            link.flush()

    def connected(self) -> list[str]:
        """Peers that can be sent to right now."""
        return [peer for peer, link in sorted(self._links.items()) if link.is_up]

    def on_hello(self, connection: Connection, command: RemotingCommand) -> None:
        """Accept a peer's connection, or say why not and end it."""
        reason = self._refusal(command.body)
        if reason is None:
            peer = str(msgpack.unpackb(command.body)[2])
            self._incoming[connection.id] = peer
            connection.send(command.reply(ResponseCode.SUCCESS))
            return
        self.log.log("warning", "raft_peer_refused", address=connection.peer, reason=reason)
        connection.send(command.reply(ResponseCode.NO_PERMISSION, reason))
        connection.close()

    def _refusal(self, body: bytes) -> str | None:
        try:
            version, group, node = msgpack.unpackb(body)
        except (ValueError, TypeError, msgpack.UnpackException):
            return "the hello cannot be read"
        if version != PROTOCOL_VERSION:
            return f"raft protocol {version} is spoken there, {PROTOCOL_VERSION} here"
        if group != self.group:
            return f"group {group!r} knocked at group {self.group!r}"
        if not isinstance(node, str) or node not in self._links:
            return f"node {node!r} is not among the peers {sorted(self._links)} of {self.node_id}"
        return None

    def on_frame(self, connection: Connection, command: RemotingCommand) -> None:
        """A raft frame came in."""
        sender = self._incoming.get(connection.id)
        if sender is None:
            self.log.log("warning", "raft_frame_before_hello", address=connection.peer)
            connection.close()
            return
        try:
            message = decode_message(command.body)
            if message.sender != sender:
                raise RemoteProtocolError(f"{sender} speaks as {message.sender}")
        except RemoteProtocolError as error:
            self.log.log("error", "raft_frame_refused", peer=sender, reason=str(error))
            connection.close()
            return
        self._on_message(message)

    def on_closed(self, connection_id: ConnectionId) -> None:
        """An incoming connection ended; it may have been a peer's."""
        peer = self._incoming.pop(connection_id, None)
        if peer is not None:
            self.log.log("info", "raft_peer_lost", peer=peer)
            self.on_lost(peer)

    async def close(self) -> None:
        """End all links."""
        self.closing = True
        for link in self._links.values():
            link.close()
        await self._tasks.close()
