"""Raft messages between controllers, on the port that brokers use too (decision 3).

Each node dials every other and sends its messages on its own connection, one way. The first
frame is a hello with group and node id (``raft/hello.py``); without an accepted hello, and with a
secret without proof on both sides, nothing else is looked at, unless the proof is optional.

Whom a node dials follows its log. A node of a newer group may be unknown to one that lags behind:
such a guest says where it listens, is dialled there, and heard; the Raft core knows what of it to
believe.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqha.base.errors import ConfigInvalid, ConnectFailed, RemoteProtocolError
from rmqha.base.ids import ConnectionId
from rmqha.base.proofs import CHALLENGE_BYTES, NO_SECRETS, Secrets
from rmqha.controller.raft import hello as greeting
from rmqha.controller.raft.hello import Hello, Proofs
from rmqha.controller.raft.members import MEMBERS_MAX
from rmqha.controller.raft.messages import Message, decode_message, encode_message
from rmqha.controller.settings import Peer
from rmqha.remoting.address import parse_address
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.remoting.frame import encode
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Network, Rng

RETRY_FIRST_MS = 20
RETRY_MAX_MS = 500
RETRY_REFUSED_MS = 1_000
CONNECT_TIMEOUT_MS = 1000
KEEP_ALIVE_MS = 30_000


class PeerLink:
    """The outgoing connection to one peer: dialled for ever, with a growing pause."""

    def __init__(self, owner: Peers, peer: Peer, number: int) -> None:
        self._owner = owner
        self.peer = peer
        self._number = number
        self._connection: Connection | None = None
        self._challenge = b""
        self._proven = False
        self._pause_ms = RETRY_FIRST_MS
        self.is_over = False

    @property
    def is_up(self) -> bool:
        """Whether messages can be sent."""
        connection = self._connection
        return connection is not None and self._proven and not connection.is_closing

    def send(self, message: Message) -> None:
        """Send, or drop when there is no connection or the peer does not read."""
        connection = self._connection
        if connection is None or not self._proven or connection.is_closing:
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
        """End the connection, for good."""
        self.is_over = True
        if self._connection is not None:
            self._connection.close()

    def _retry(self) -> None:
        if self._owner.closing or self.is_over:
            return
        pause_ms = self._pause_ms + self._owner.rng.randint(0, self._pause_ms)
        self._pause_ms = min(RETRY_MAX_MS, self._pause_ms * 2)
        self._owner.clock.call_later(pause_ms, self._owner.dial, self)

    def _on_opened(self, connection: Connection) -> None:
        if self._owner.closing or self.is_over:
            connection.close()
            return
        owner = self._owner
        self._connection = connection
        self._pause_ms = RETRY_FIRST_MS
        self._challenge = owner.new_challenge()
        self._say_hello(connection)
        if not owner.secrets.own:
            self._up()

    def _say_hello(self, connection: Connection, proof: bytes = b"") -> None:
        owner = self._owner
        challenge = b"" if proof else self._challenge
        hello = Hello(
            greeting.PROTOCOL_VERSION, owner.group, owner.node_id, challenge, proof, owner.address
        )
        body = greeting.pack_hello(hello)
        connection.send(RemotingCommand(RequestCode.RAFT_HELLO, opaque=1, body=body))

    def _up(self) -> None:
        self._proven = True
        self._owner.log.log("info", "raft_peer_connected", peer=self.peer.id)
        self._owner.clock.call_later(KEEP_ALIVE_MS, self._keep_alive, self._connection)

    def _keep_alive(self, connection: Connection) -> None:
        """Followers have nothing to say to each other, and idle connections are closed."""
        if self._connection is connection and not connection.is_closing:
            self._say_hello(connection)
            self._owner.clock.call_later(KEEP_ALIVE_MS, self._keep_alive, connection)

    def _on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        for command in commands:
            if not command.is_response or self._connection is not connection:
                continue
            reason = command.remark
            if command.code == ResponseCode.SUCCESS:
                reason = None if self._proven else self._prove(connection, command.body)
                if reason is None:
                    continue
            self._owner.log.log("error", "raft_peer_refused_us", peer=self.peer.id, reason=reason)
            self._pause_ms = RETRY_REFUSED_MS
            connection.close()

    def _prove(self, connection: Connection, body: bytes) -> str | None:
        """Check the listener's proof and send ours; why it is none, or None."""
        owner = self._owner
        try:
            answered, proof = greeting.unpack_answer(body)
        except RemoteProtocolError as error:
            return str(error)
        secrets = owner.secrets
        if secrets.is_optional and not proof:
            owner.note_unproven(self.peer.id)
            self._up()
            return None
        proofs = Proofs(
            secrets.own, owner.group, owner.node_id, self.peer.id, self._challenge, answered
        )
        if not proofs.prove_listener(proof, secrets):
            return "it does not know the raftSecret of this group"
        self._say_hello(connection, proofs.of_dialler())
        self._up()
        return None

    def _on_closed(self, connection: Connection, error: Exception | None) -> None:
        if self._connection is connection:
            self._connection, self._proven = None, False
            self._owner.on_lost(self.peer.id)
        self._retry()


class Peers:
    """All links of a node, and who is at the other end of incoming connections.

    Args:
        group, node_id, peers: who we are and whom we dial.
        secrets: what all of the group know and nobody else; none to believe every hello.
        on_message: gets each decoded message of an accepted peer; raises RemoteProtocolError to
            end a connection that brought what cannot be taken.
        on_lost: called with a peer's id when a connection from or to it ends.
        on_guest: called with the id of a node that is no peer and was let in, and of the one whose
            place it took; empty when there was room.

    Attributes:
        unproven: connections that were taken although the other end proved nothing.
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
        secrets: Secrets = NO_SECRETS,
        on_message: Callable[[Message], None],
        on_lost: Callable[[str], None],
        on_guest: Callable[[str, str], None],
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
        self.secrets = secrets
        self.unproven = 0
        self.closing = False
        self.address = ""
        """Where this node listens, for those who may not know it; empty while all do."""
        self._own = next((peer.address for peer in peers if peer.id == node_id), "")
        self._on_message = on_message
        self._on_guest = on_guest
        self._started = False
        self._links_made = 0
        self._links: dict[str, PeerLink] = {}
        self._guests: dict[str, None] = {}  # in the order of coming
        for peer in peers:
            if peer.id != node_id:
                self._link(peer)
        self._incoming: dict[ConnectionId, str] = {}
        self._challenged: dict[ConnectionId, Proofs] = {}
        self._tasks = Tasks(log)

    def start(self) -> None:
        """Dial every peer."""
        self._started = True
        for link in self._links.values():
            self.dial(link)

    def set_peers(self, peers: tuple[Peer, ...]) -> None:
        """Speak to these from now on, and to nobody else."""
        self.address = self._own
        wanted = {peer.id: peer for peer in peers if peer.id != self.node_id}
        for name, link in [*self._links.items()]:
            if wanted.get(name) != link.peer:
                del self._links[name]
                link.close()
        self._guests.clear()  # who was one is a peer now, or gone
        for name, peer in wanted.items():
            if name not in self._links:
                self._link(peer)

    def _link(self, peer: Peer) -> None:
        self._links_made += 1
        self._links[peer.id] = link = PeerLink(self, peer, self._links_made)
        if self._started:
            self.dial(link)

    def dial(self, link: PeerLink) -> None:
        """Start one connection attempt."""
        if not self.closing and not link.is_over:
            self._tasks.start(link.dial(), name=f"dial {link.peer.id}")

    def send(self, to: str, message: Message) -> None:
        """Send a message; it may be lost, and is when this node does not speak to ``to``."""
        link = self._links.get(to)
        if link is not None:
            link.send(message)

    def flush(self) -> None:
        """Let everything sent leave now: the peers can work while this node goes on."""
        for link in self._links.values():
            link.flush()

    def connected(self) -> list[str]:
        """Peers that can be sent to right now."""
        return [peer for peer, link in sorted(self._links.items()) if link.is_up]

    def new_challenge(self) -> bytes:
        """Bytes that were never used before."""
        size = CHALLENGE_BYTES
        return self.rng.randint(0, (1 << 8 * size) - 1).to_bytes(size, "big")

    def on_hello(self, connection: Connection, command: RemotingCommand) -> None:
        """Accept a peer's connection, or say why not and end it."""
        try:
            hello = greeting.unpack_hello(command.body)
            self._check_hello(hello)
            body = self._meet(connection, hello)
        except RemoteProtocolError as error:
            reason = str(error)
            self.log.log("warning", "raft_peer_refused", address=connection.peer, reason=reason)
            connection.send(command.reply(ResponseCode.NO_PERMISSION, reason))
            connection.close()
            return
        connection.send(command.reply(ResponseCode.SUCCESS, body=body))

    def _check_hello(self, hello: Hello) -> None:
        ours = greeting.PROTOCOL_VERSION
        if hello.version != ours:
            raise RemoteProtocolError(f"raft protocol {hello.version} is spoken there, {ours} here")
        if hello.group != self.group:
            raise RemoteProtocolError(f"group {hello.group!r} knocked at group {self.group!r}")
        if hello.node in self._links:
            return
        if not hello.address:
            raise RemoteProtocolError(
                f"node {hello.node!r} is not among the peers {sorted(self._links)} of"
                f" {self.node_id}"
            )
        if hello.node == self.node_id or self._room_for_guest() is None:
            raise RemoteProtocolError(f"{self.node_id} takes no guest {hello.node!r}")

    def _room_for_guest(self) -> str | None:
        """Whose place the next guest takes, empty for a free one; None when there is none.

        Where hellos need no proof anybody is a guest. Who is not connected any more goes first, or
        a few hellos would keep out for ever who comes from a newer group; that one dials again.
        """
        if len(self._guests) < MEMBERS_MAX:
            return ""
        speaks = {*self._incoming.values()}
        return next((guest for guest in self._guests if guest not in speaks), None)

    def _let_in(self, connection: Connection, hello: Hello) -> None:
        """Believe the hello; dial who is a guest."""
        if hello.node in self._links:
            self._incoming[connection.id] = hello.node
            return
        try:
            host, port = parse_address(hello.address)
        except ConfigInvalid as error:
            raise RemoteProtocolError(str(error)) from error
        place = self._room_for_guest()
        if place is None:  # others came while it proved that it knows the secret
            raise RemoteProtocolError(f"{self.node_id} takes no guest {hello.node!r}")
        self._incoming[connection.id] = hello.node
        self.log.log("info", "raft_guest", peer=hello.node, address=hello.address)
        if place:
            del self._guests[place]
            self._links.pop(place).close()
        self._guests[hello.node] = None
        self._link(Peer(hello.node, host, port))
        self._on_guest(hello.node, place)

    def _meet(self, connection: Connection, hello: Hello) -> bytes:
        """Believe a hello, or ask for proof; returns the body of the answer."""
        secrets, is_known = self.secrets, self._incoming.get(connection.id) == hello.node
        if not secrets.own or (is_known and not hello.proof):
            self._let_in(connection, hello)
            return b""
        if not hello.proof:
            if secrets.is_optional:
                self._let_in(connection, hello)
            answered = self.new_challenge()
            proofs = Proofs(
                secrets.own, self.group, hello.node, self.node_id, hello.challenge, answered
            )
            self._challenged[connection.id] = proofs
            return greeting.pack_answer(answered, proofs.of_listener())
        asked = self._challenged.pop(connection.id, None)
        if asked is None or asked.dialler != hello.node:
            raise RemoteProtocolError("a proof that nobody asked for")
        if not asked.prove_dialler(hello.proof, secrets):
            raise RemoteProtocolError("it does not know the raftSecret of this group")
        self._let_in(connection, hello)
        connection.be_read_always()
        return b""

    def note_unproven(self, peer: str) -> None:
        """A node is spoken with that proved nothing; who has the secret proves it before it speaks."""
        self.unproven += 1
        self.log.log("warning", "raft_peer_unproven", peer=peer)

    def on_frame(self, connection: Connection, command: RemotingCommand) -> None:
        """A raft frame came in."""
        sender = self._incoming.get(connection.id)
        if sender is not None and sender not in self._links:
            connection.close()  # it has been removed from the group since
            return
        if sender is None:
            self.log.log("warning", "raft_frame_before_hello", address=connection.peer)
            connection.close()
            return
        if self._challenged.pop(connection.id, None) is not None:
            self.note_unproven(sender)
        try:
            message = decode_message(command.body)
            if message.sender != sender:
                raise RemoteProtocolError(f"{sender} speaks as {message.sender}")
            self._on_message(message)
        except RemoteProtocolError as error:
            self.log.log("error", "raft_frame_refused", peer=sender, reason=str(error))
            connection.close()

    def on_closed(self, connection_id: ConnectionId) -> None:
        """An incoming connection ended; it may have been a peer's."""
        self._challenged.pop(connection_id, None)
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
