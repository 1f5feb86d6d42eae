"""A broker's status page: its own state, asked when somebody looks, and links to others' pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from rmqha import __version__
from rmqha.broker.admin.static_topics import static_topics
from rmqha.broker.admin.status_document import NodeFacts, document
from rmqha.broker.membership.core import ReplicasCore
from rmqha.broker.topics.aio.ports import Broker
from rmqha.ha.events import Role
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.figures_client import figures_of_brokers, pages_of
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Network
from rmqha.web.document import OtherView, Sentence, StatusDocument
from rmqha.web.links import page_link


class Shown(Broker, Protocol):
    """What the page shows of a broker."""

    replicas: ReplicasCore

    @property
    def broker_id(self) -> int | None:
        """The persistent id; None before there is one."""

    def not_ready(self) -> str | None:
        """What this replica lacks to serve, in a sentence; None for nothing."""


class BrokerPage:
    """Makes the documents of one broker's page."""

    def __init__(self, replica: Shown, *, clock: Clock, network: Network, log: Logger) -> None:
        self._replica = replica
        self._clock = clock
        self._started_ms = clock.wall_ms()
        self._client = RemotingClient(network, clock, RemotingSettings())
        self._brokers = figures_of_brokers(self._client, clock, log)
        asked = {
            "controller": RequestCode.CONTROLLER_GET_METADATA_INFO,
            "name server": RequestCode.GET_NAMESRV_CONFIG,
        }
        self._pages = {
            kind: pages_of(self._client, clock, log, code) for kind, code in asked.items()
        }

    async def document(self) -> StatusDocument:
        """What this replica knows now."""
        replica, store = self._replica, self._replica.store
        place = replica.replicas.place
        master = None if place.master_id is None else (place.master_id, place.master_address)
        facts = NodeFacts(
            replica.config.cluster_name,
            replica.config.broker_name,
            replica.config.address,
            replica.role,
            replica.broker_id,
            master,
            store.min_offset,
            store.max_offset,
            store.confirm_offset,
            __version__,
            self._clock.wall_ms(),
            self._started_ms,
            len(store.mending.damaged),
            self._page_of(place.master_address),
            tuple(self._others()),
            tuple(self._troubles()),
        )
        topics = static_topics(replica.mappings.table.items, self._ends)
        return document(facts, replica.ha_core, replica.statistics, topics)

    def _troubles(self) -> Iterator[Sentence]:
        """What nobody else can see; whatever bytes a slave lacks, the trouble is the same."""
        replica, store = self._replica, self._replica.store
        lacks, files = replica.not_ready(), len(replica.troubles.reasons)
        if lacks is not None and replica.role is Role.MASTER:
            # Without a lease it goes on as long as all of its slaves in sync acknowledge.
            yield Sentence("bad", f"This master is not ready: {lacks}.", "own/not ready")
        elif lacks is not None and replica.role is not None:
            yield Sentence("warn", f"This slave is not ready: {lacks}.", "own/not ready")
        if store.expiring.is_disk_full:
            yield Sentence("bad", "This broker takes no sends: its disk is too full.", "own/disk")
        if store.dispatcher.lacks_space:
            text = "This broker's queues get no new messages: their disk is full."
            yield Sentence("bad", text, "own/queues")
        if files:
            text = f"{files} of this broker's files of settings and offsets cannot be written."
            yield Sentence("warn", text, "own/files")

    def _ends(self, topic: str, queue_id: int) -> tuple[int, int]:
        reader = self._replica.store.reader
        return reader.min_offset(topic, queue_id), reader.max_offset(topic, queue_id)

    def _page_of(self, master: str | None) -> str | None:
        here = self._replica.config.address
        if not master or master == here:
            return None
        return page_link(self._brokers.of([master])[master].status_page, master, here)

    def _others(self) -> Iterator[OtherView]:
        replica, config = self._replica, self._replica.config
        configured = replica.replicas.search.configured
        listed = {"controller": configured, "name server": replica.name_servers}
        for kind, addresses in listed.items():
            for address, told in self._pages[kind].of(addresses).items():
                yield OtherView(kind, address, page_link(told, address, config.address))

    async def close(self) -> None:
        """Stop asking others."""
        await self._brokers.close()
        for asked in self._pages.values():
            await asked.close()
        await self._client.close()
