"""What this broker tells name servers of itself: who it is by its role, and its topics."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from rmqha.base.ids import MASTER_ID
from rmqha.broker.naming.aio.registration import NamesrvRegistration
from rmqha.broker.naming.messages import MasterKnown, Registered
from rmqha.broker.topics.aio.ports import Broker
from rmqha.broker.topics.metadata import Change
from rmqha.ha.events import Role
from rmqha.remoting.aio.client import RemotingClient
from rmqha.runtime.logs import Logger

ORDERED_AT_ONCE = 50
"""Topics that become ordered by one change; it is told the name servers, whose answer has the rest."""


def own_registration(
    broker: Broker, client: RemotingClient, log: Logger, *,
    broker_id: Callable[[], int | None], on_master: Callable[[MasterKnown], None],
) -> NamesrvRegistration:  # fmt: skip
    """Keep a broker listed while it has a complete role.

    Args:
        broker_id: the persistent id; None before there is one.
        on_master: told what a name server answers a slave.
    """
    config = broker.config

    def who() -> Registered | None:
        role, own_id = broker.role, broker_id()
        if role is None or own_id is None:
            return None
        return Registered(
            config.cluster_name, config.broker_name, config.address, config.ha_address,
            MASTER_ID if role is Role.MASTER else own_id,
        )  # fmt: skip

    def ordered(names: frozenset[str]) -> None:
        # As in Java, for good: who deletes the configuration does not take it back. What cannot be
        # changed now, as at a slave, is tried again at the next registration.
        known = (broker.topics.table.get(name) for name in names)
        topics = [
            replace(topic, order=True) for topic in known if topic is not None and not topic.order
        ]
        if topics:
            broker.metadata.commit(Change(topics=tuple(topics[:ORDERED_AT_ONCE])))

    return NamesrvRegistration(
        client=client, clock=broker.clock, log=log, tasks=broker.tasks, who=who,
        table=lambda: broker.topics.table, mappings=lambda: broker.mappings.table,
        permission=lambda: config.integer("brokerPermission"),
        period_ms=config.register_name_server_period_ms,
        timeout_ms=config.integer("registerBrokerTimeoutMills"), on_master=on_master,
        on_ordered=ordered,
    )  # fmt: skip
