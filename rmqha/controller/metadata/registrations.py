"""Whom the replicated state has, by the names that heartbeats use, and who an event concerns."""

from __future__ import annotations

from rmqha.base.ids import BrokerId
from rmqha.controller.metadata.events import (
    BrokerDataCleaned,
    BrokerIdTaken,
    BrokerSetImported,
    Event,
    MasterElected,
    SyncStateSetAltered,
)
from rmqha.controller.metadata.state import MetadataState

Identity = tuple[str, str, BrokerId]
"""(clusterName, brokerName, brokerId)."""


def is_registered(state: MetadataState, identity: Identity) -> bool:
    """Whether a broker is a replica of its set."""
    cluster, name, broker_id = identity
    broker_set = state.sets.get(name)
    return (
        broker_set is not None
        and broker_set.cluster_name == cluster
        and broker_id in broker_set.replicas
    )


def concerned(state: MetadataState, event: Event) -> list[Identity]:
    """Whose registration an event may change; to be asked before it is applied."""
    if isinstance(event, BrokerSetImported):
        return [(event.cluster_name, event.broker_name, one) for one, _ in event.replicas]
    if type(event) is not BrokerIdTaken and type(event) is not BrokerDataCleaned:
        return []
    broker_set = state.sets.get(event.broker_name)
    if isinstance(event, BrokerIdTaken):
        cluster = event.cluster_name if broker_set is None else broker_set.cluster_name
        return [(cluster, event.broker_name, event.new_broker_id)]
    if broker_set is None:
        return []
    cluster, name = broker_set.cluster_name, event.broker_name
    return [(cluster, name, broker_id) for broker_id in broker_set.replicas]


def vouched_for(event: Event, members: frozenset[BrokerId]) -> frozenset[BrokerId]:
    """Who has by this event what the set has agreed on, whatever it lacked before.

    Args:
        members: of the SyncStateSet before it.
    """
    if isinstance(event, SyncStateSetAltered):
        return frozenset(event.new_sync_state_set) - members
    if isinstance(event, MasterElected) and event.new_master_broker_id is not None:
        return frozenset({event.new_master_broker_id})
    return frozenset()
