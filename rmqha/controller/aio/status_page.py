"""A controller's status page: its own state, and the rates that living brokers tell."""

from __future__ import annotations

from rmqha import __version__
from rmqha.controller.aio.service import ControllerService
from rmqha.controller.status_document import NodeFacts, addresses, document
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.figures_client import figures_of_brokers, pages_of
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.turns import in_turns
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Network
from rmqha.web.document import StatusDocument


class ControllerPage:
    """Makes the documents of one controller's page."""

    def __init__(
        self, service: ControllerService, *, clock: Clock, network: Network, log: Logger
    ) -> None:
        self._service = service
        self._clock = clock
        self._started_ms = clock.wall_ms()
        self._client = RemotingClient(network, clock, RemotingSettings())
        self._figures = figures_of_brokers(self._client, clock, log)
        code = RequestCode.CONTROLLER_GET_METADATA_INFO
        self._pages = pages_of(self._client, clock, log, code)

    async def document(self) -> StatusDocument:
        """What this node knows now."""
        service = self._service
        core = service.raft.core
        status = await service.status()
        facts = NodeFacts(
            service.metrics.role,
            0 if core is None else core.node.term,
            None if core is None else core.leader_id,
            0 if core is None else core.node.commit_index,
            __version__,
            self._clock.wall_ms(),
            self._started_ms,
            service.raft.member_peers(),
            service.raft.no_space,
            core is None or core.node.may_vote,
        )
        figures = self._figures.of(addresses(status))
        others = (p.address for p in facts.peers if p.address != service.config.this.address)
        pages = self._pages.of(others)
        newest = service.elections.newest()
        return await in_turns(document(service.config, facts, status, newest, figures, pages))

    async def close(self) -> None:
        """Stop asking brokers and controllers."""
        await self._pages.close()
        await self._figures.close()
        await self._client.close()
