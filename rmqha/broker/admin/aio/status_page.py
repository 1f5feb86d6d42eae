"""A broker's status page: its own state, asked when somebody looks."""

from __future__ import annotations

from typing import Protocol

from rmqha import __version__
from rmqha.broker.admin.static_topics import static_topics
from rmqha.broker.admin.status_document import NodeFacts, document
from rmqha.broker.membership.core import ReplicasCore
from rmqha.broker.topics.aio.ports import Broker
from rmqha.runtime.ports import Clock
from rmqha.web.document import StatusDocument


class Shown(Broker, Protocol):
    """What the page shows of a broker."""

    replicas: ReplicasCore

    @property
    def broker_id(self) -> int | None:
        """The persistent id; None before there is one."""


class BrokerPage:
    """Makes the documents of one broker's page."""

    def __init__(self, replica: Shown, *, clock: Clock) -> None:
        self._replica = replica
        self._clock = clock
        self._started_ms = clock.wall_ms()

    async def document(self) -> StatusDocument:
        """What this replica knows now."""
        replica, store = self._replica, self._replica.store
        core = replica.replicas
        master = None if core.master_id is None else (core.master_id, core.master_address)
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
        )
        topics = static_topics(replica.mappings.table.items, self._ends)
        return document(facts, replica.ha_core, replica.statistics, topics)

    def _ends(self, topic: str, queue_id: int) -> tuple[int, int]:
        reader = self._replica.store.reader
        return reader.min_offset(topic, queue_id), reader.max_offset(topic, queue_id)

    async def close(self) -> None:
        """Nothing to stop."""
