"""When the controller elects by itself: a master that is dead, or a vacancy that can be filled."""

from __future__ import annotations

from rmqha.base.ids import BrokerId
from rmqha.controller.metadata.decision import LiveTable
from rmqha.controller.metadata.state import BrokerSet


def wants_election(
    now_ms: int, broker_set: BrokerSet, live: LiveTable, *, notify: bool, cold_until_ms: int
) -> bool:
    """Whether the leader's scan should start an election for this set.

    Args:
        now_ms: the leader's clock.
        broker_set: the set to look at.
        live: the leader's live table.
        notify: brokers are told of elections.
        cold_until_ms: until then a master never heard here is not taken for dead.
    """
    master = broker_set.master_broker_id
    cluster, name = broker_set.cluster_name, broker_set.broker_name
    candidates: tuple[BrokerId, ...] = tuple(broker_set.replicas)
    if master is None:
        if not may_fill_vacancy(broker_set, notify=notify):
            return False
        candidates = broker_set.sync_state_set
    elif live.alive(now_ms, cluster, name, master) or (
        now_ms < cold_until_ms and live.info(cluster, name, master) is None
    ):
        return False
    return any(live.alive(now_ms, cluster, name, one) for one in candidates)


def may_fill_vacancy(broker_set: BrokerSet, *, notify: bool) -> bool:
    """Whether a set without master may get one unasked.

    Its very first election is its brokers' business, and without notifications only their own
    1002 would tell them the result.
    """
    return broker_set.master_epoch > 0 and notify
