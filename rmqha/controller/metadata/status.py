"""Plain figures of one controller node, for the status page and the metrics."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TypedDict

from rmqha.base.ids import BrokerId, MasterEpoch, SyncStateSetEpoch
from rmqha.controller.liveness import Liveness
from rmqha.controller.metadata.state import BrokerSet, MetadataState

SETS_A_TURN = 64
COUNTS_A_TURN = 1_000
"""Each is about a millisecond."""


class ReplicaStatus(TypedDict):
    """One replica; the last five are None when this node never heard it."""

    broker_id: int
    address: str
    role: str
    in_sync: bool
    alive: bool
    heard_ms_ago: int | None
    epoch: int | None
    max_offset: int | None
    confirm_offset: int | None
    priority: int | None


class BrokerSetStatus(TypedDict):
    """One broker set; ``active_brokers`` counts living replicas."""

    cluster: str
    broker_name: str
    master_broker_id: int | None
    master_epoch: MasterEpoch
    sync_state_set_epoch: SyncStateSetEpoch
    sync_state_set: list[int]
    active_brokers: int
    replicas: list[ReplicaStatus]


class ElectionCount(TypedDict):
    """Elections this node decided, by result, with the metric's label names."""

    cluster: str
    broker_set: str
    election_result: str
    count: int


class Status(TypedDict):
    """Everything about one node's controller."""

    is_leader: bool
    term: int
    applied_index: int
    work_queued: int
    broker_sets: list[BrokerSetStatus]
    elections: list[ElectionCount]


def status(
    now_ms: int,
    state: MetadataState,
    live: Liveness,
    *,
    is_leader: bool,
    term: int,
    applied_index: int,
    work_queued: int,
    elections: Mapping[tuple[str, str, str], int],
) -> Generator[None, None, Status]:
    """Collect the figures; walks every set, in parts, so that sets may be of different moments."""
    sets: list[BrokerSetStatus] = []
    for at, name in enumerate(sorted(state.sets), 1):
        if (one := state.sets.get(name)) is not None:
            sets.append(_set(now_ms, one, live))
        if at % SETS_A_TURN == 0:
            yield
    counts: list[ElectionCount] = []
    for at, (key, count) in enumerate(sorted(elections.items()), 1):
        cluster, broker_set, result = key
        counts.append(
            {
                "cluster": cluster,
                "broker_set": broker_set,
                "election_result": result,
                "count": count,
            }
        )
        if at % COUNTS_A_TURN == 0:
            yield
    return {
        "is_leader": is_leader,
        "term": term,
        "applied_index": applied_index,
        "work_queued": work_queued,
        "broker_sets": sets,
        "elections": counts,
    }


def _set(now_ms: int, broker_set: BrokerSet, live: Liveness) -> BrokerSetStatus:
    replicas = [
        _replica(now_ms, broker_set, live, broker_id) for broker_id in sorted(broker_set.replicas)
    ]
    return {
        "cluster": broker_set.cluster_name,
        "broker_name": broker_set.broker_name,
        "master_broker_id": broker_set.master_broker_id,
        "master_epoch": broker_set.master_epoch,
        "sync_state_set_epoch": broker_set.sync_state_set_epoch,
        "sync_state_set": list(broker_set.sync_state_set),
        "active_brokers": sum(1 for replica in replicas if replica["alive"]),
        "replicas": replicas,
    }


def _replica(
    now_ms: int, broker_set: BrokerSet, live: Liveness, broker_id: BrokerId
) -> ReplicaStatus:
    cluster, name = broker_set.cluster_name, broker_set.broker_name
    said = live.info(cluster, name, broker_id)
    return {
        "broker_id": broker_id,
        "address": broker_set.replicas[broker_id].address,
        "role": "master" if broker_id == broker_set.master_broker_id else "slave",
        "in_sync": broker_id in broker_set.sync_state_set,
        "alive": live.alive(now_ms, cluster, name, broker_id),
        "heard_ms_ago": None if said is None else max(0, now_ms - said.heard_ms),
        "epoch": None if said is None else said.epoch,
        "max_offset": None if said is None else said.max_offset,
        "confirm_offset": None if said is None else said.confirm_offset,
        "priority": None if said is None else said.priority,
    }
