"""A name server's status page: its tables, and what the registered brokers tell."""

from __future__ import annotations

from typing import Protocol

from msgspec.structs import replace

from rmqha import __version__
from rmqha.namesrv.aio.service import NameServer
from rmqha.namesrv.status_document import NodeFacts, addresses, document
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.figures_client import figures_of_brokers
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.turns import in_turns
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Network
from rmqha.web.document import StatusDocument


class Embedded(Protocol):
    """The page of a controller in the same process."""

    async def document(self) -> StatusDocument:
        """What the controller knows now."""

    async def close(self) -> None:
        """Stop what it does in the background."""


class NameServerPage:
    """Makes the documents of one name server's page.

    Args:
        embedded: the page of a controller in the same process: its sets, epochs and elections
            are shown, and of the name server's own only those that the controller does not know.
    """

    def __init__(
        self,
        server: NameServer,
        *,
        clock: Clock,
        network: Network,
        log: Logger,
        embedded: Embedded | None = None,
    ) -> None:
        self._server = server
        self._clock = clock
        self._embedded = embedded
        self._started_ms = clock.wall_ms()
        self._client = RemotingClient(network, clock, RemotingSettings())
        self._figures = figures_of_brokers(self._client, clock, log)

    async def document(self) -> StatusDocument:
        """What this node knows now."""
        server = self._server
        facts = NodeFacts(
            f"{server.config.values['bindAddress']}:{server.port}",
            __version__,
            self._clock.now_ms(),
            self._clock.wall_ms(),
            self._started_ms,
        )
        table = server.machine.table
        own = await in_turns(document(facts, table, self._figures.of(addresses(table))))
        return own if self._embedded is None else _joined(own, await self._embedded.document())

    async def close(self) -> None:
        """Stop asking brokers."""
        if self._embedded is not None:
            await self._embedded.close()
        await self._figures.close()
        await self._client.close()


def _joined(own: StatusDocument, controller: StatusDocument) -> StatusDocument:
    named = {one.broker_name for one in controller.broker_sets}
    others = tuple(one for one in own.broker_sets if one.broker_name not in named)
    return replace(
        own,
        node=replace(
            own.node,
            role=f"controller {controller.node.role}",
            facts={**own.node.facts, **controller.node.facts},
        ),
        controllers=controller.controllers,
        broker_sets=(*controller.broker_sets, *others),
        elections=controller.elections,
    )
