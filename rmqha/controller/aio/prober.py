"""Asks silent masters for an answer, and the other controllers whether they hear them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rmqha.auth.registered import ProvenAddresses
from rmqha.auth.signature import Credentials
from rmqha.base.errors import RmqhaError
from rmqha.controller.aio.raft_node import RaftNode
from rmqha.controller.metadata.probe_messages import (
    AskPeers,
    PeerReport,
    PeersHeard,
    Probe,
    ProbeAnswered,
)
from rmqha.controller.probe_requests import read_silence, silence_fields
from rmqha.controller.settings import Peer
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.repeats import OPAQUE_MAX
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.ports import Clock

SENT_MAX = 40_000
"""Probes on others' connections that are remembered; most are answered, or of no use by then."""


class Prober:
    """Carries out ``Probe`` and ``AskPeers`` of one node.

    Any answer will do. Where the broker listens it is asked for its HA address (906 without fields),
    as slaves do, which changes nothing. Without an answer by half of the time it is asked on the
    connections that it opened itself, too, for it may not be reachable otherwise: there it knows no
    code at all, answers 3 REQUEST_CODE_NOT_SUPPORTED at once, and Java's writes a line into its log.

    Args:
        raft: who votes.
        client: connections to brokers and controllers; signs nothing by itself.
        credentials: what other controllers are asked with; None for no signatures.
        proven: the brokers that are sent a signature.
        tasks: what waits is started here.
        connection: one that is open to this node, by its id.
        give: takes what was heard.
    """

    def __init__(
        self,
        raft: RaftNode,
        client: RemotingClient,
        credentials: Credentials | None,
        proven: ProvenAddresses,
        clock: Clock,
        tasks: Tasks,
        connection: Callable[[int], Connection | None],
        give: Callable[[ProbeAnswered | PeersHeard], None],
    ) -> None:
        self._raft = raft
        self._client = client
        self._credentials = credentials
        self._proven = proven
        self._clock = clock
        self._tasks = tasks
        self._connection = connection
        self._give = give
        self._opaque = 0
        self._sent: dict[tuple[int, int], int] = {}

    def probe(self, effect: Probe) -> None:
        """Ask where the broker listens, and, while nothing comes, on the connections it opened."""
        self._tasks.start(self._invoke(effect), name=f"probe {effect.address}")

    async def _invoke(self, effect: Probe) -> None:
        """The second half of the time is for all ways, the first one among them."""
        later = asyncio.create_task(self._later(effect))
        command = RemotingCommand(RequestCode.EXCHANGE_BROKER_HA_INFO)
        self._proven.sign(effect.address, command)
        try:
            await self._client.invoke(effect.address, command, effect.timeout_ms)
        except RmqhaError:
            await later
            return
        finally:
            if not later.done():
                later.cancel()
        self._give(ProbeAnswered(effect.number))

    async def _later(self, effect: Probe) -> None:
        await self._clock.sleep(effect.timeout_ms // 2)
        for one in effect.connections:
            connection = self._connection(one)
            if connection is not None and not connection.is_closing:
                self._opaque = self._opaque % OPAQUE_MAX + 1
                self._sent[connection.id, self._opaque] = effect.number
                connection.send(RemotingCommand(RequestCode.PROBE_BROKER, opaque=self._opaque))
        while len(self._sent) > SENT_MAX:
            del self._sent[next(iter(self._sent))]

    def answered(self, connection: Connection, command: RemotingCommand) -> None:
        """A response came on a connection that somebody opened to this node."""
        number = self._sent.pop((connection.id, command.opaque), None)
        if number is not None:
            self._give(ProbeAnswered(number))

    def ask_peers(self, effect: AskPeers) -> None:
        """Ask all others that vote."""
        self._tasks.start(self._gather(effect), name="ask peers")

    async def _gather(self, effect: AskPeers) -> None:
        voters = self._raft.members().voters
        peers = [
            one
            for one in self._raft.member_peers()
            if one.id in voters and one.id != self._raft.node_id
        ]
        found = await asyncio.gather(*(self._ask(one, effect) for one in peers))
        reports = tuple(one for one in found if one is not None)
        self._give(PeersHeard(effect.number, reports, len(voters) // 2 + 1))

    async def _ask(self, peer: Peer, effect: AskPeers) -> PeerReport | None:
        fields = silence_fields(effect.identity)
        command = RemotingCommand(RequestCode.GET_BROKER_SILENCE, ext_fields=fields)
        if self._credentials is not None:
            self._credentials.sign(command)
        try:
            answer = await self._client.invoke(peer.address, command, effect.timeout_ms)
        except RmqhaError:
            return None
        return read_silence(peer.id, answer.code, answer.ext_fields)
