"""What becomes of a set that comes from other controllers: the event, and the set it makes.

Java's controllers do not tell the check codes that brokers registered with, and nobody needs them
again: a broker that has its id asks for it no more. They become ``<address>;imported``.
"""

from __future__ import annotations

from rmqha.base.ids import BrokerId, MasterEpoch, SyncStateSetEpoch
from rmqha.controller.metadata.events import BrokerSetImported
from rmqha.controller.metadata.state import BrokerSet, Replica
from rmqha.remoting.broker_set_state import BrokerSetState

SET_EPOCH_LEAP = 1_000
"""So far above the exported syncStateSetEpoch goes the imported one. A master takes a set with a
higher epoch than it knows; whatever the old controllers changed behind the export is below this, so
that it and the new controllers agree again with its next 1004."""


def to_event(said: BrokerSetState, cluster: str) -> BrokerSetImported:
    """The event that takes a set in; ``said`` was checked."""
    ids = [one.broker_id for one in said.replicas]
    master = said.master_broker_id
    return BrokerSetImported(
        cluster_name=cluster,
        broker_name=said.broker_name,
        last_issued_id=max(said.next_broker_id - 1, *ids),
        replicas=tuple(
            sorted((BrokerId(one.broker_id), one.broker_address) for one in said.replicas)
        ),
        master_epoch=MasterEpoch(said.master_epoch),
        sync_state_set_epoch=SyncStateSetEpoch(said.sync_state_set_epoch + SET_EPOCH_LEAP),
        sync_state_set=tuple(sorted(map(BrokerId, said.sync_state_set))),
        master_broker_id=None if master is None else BrokerId(master),
    )


def imported_set(event: BrokerSetImported) -> BrokerSet:
    """The set as it begins here."""
    return BrokerSet(
        cluster_name=event.cluster_name,
        broker_name=event.broker_name,
        last_issued_id=event.last_issued_id,
        replicas={one: Replica(at, f"{at};imported") for one, at in event.replicas},
        master_epoch=event.master_epoch,
        sync_state_set_epoch=event.sync_state_set_epoch,
        sync_state_set=event.sync_state_set,
        master_broker_id=event.master_broker_id,
    )
