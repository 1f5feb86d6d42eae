"""What this broker tells name servers of itself: who it is by its role, and its topics."""

from __future__ import annotations

from collections.abc import Callable

from rmqha.base.ids import MASTER_ID
from rmqha.broker.naming.aio.registration import NamesrvRegistration
from rmqha.broker.naming.messages import MasterKnown, Registered
from rmqha.broker.topics.aio.ports import Broker
from rmqha.ha.events import Role
from rmqha.remoting.aio.client import RemotingClient
from rmqha.runtime.logs import Logger


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

    return NamesrvRegistration(
        servers=config.name_servers, client=client, clock=broker.clock, log=log, who=who,
        table=lambda: broker.topics.table, mappings=lambda: broker.mappings.table,
        permission=lambda: config.integer("brokerPermission"),
        period_ms=config.register_name_server_period_ms,
        timeout_ms=config.integer("registerBrokerTimeoutMills"), on_master=on_master,
    )  # fmt: skip
