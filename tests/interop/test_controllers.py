"""Controllers are restarted, all or in turn, or hang; brokers and their masters do not notice."""

from __future__ import annotations

import time

from rmqha.testing.real.cluster import Cluster
from rmqha.testing.real.processes import assert_holds
from rmqha.testing.real.producer import Producer, assert_nothing_lost

NAME = "broker-a"
QUIET_S = 6.0


def test_rolling_restart_changes_no_master(cluster: Cluster, topic: str) -> None:
    """The upgrade procedure: one node after the other, the leader too."""
    before = cluster.controllers.wait_for_master(NAME)
    with Producer(cluster.name_server.address, topic) as producer:
        moment = time.monotonic()
        for node in range(len(cluster.controllers.nodes)):
            cluster.controllers.restart(node)
            cluster.controllers.wait_for_agreement()
        assert_holds(lambda: _unchanged(cluster, before.master_epoch), QUIET_S, "the epoch")
        after = cluster.wait_in_sync()
        assert (before.master_id, before.master_epoch) == (after.master_id, after.master_epoch)
        producer.wait_for_acks(50)
        assert producer.longest_gap_s(moment) < 5.0
        assert_nothing_lost(cluster, producer)


def test_all_controllers_killed_then_their_state_is_kept(cluster: Cluster, topic: str) -> None:
    """What was committed survives a power failure of the whole group, and still works after it."""
    before = cluster.controllers.wait_for_master(NAME)
    with Producer(cluster.name_server.address, topic) as producer:
        for node in range(len(cluster.controllers.nodes)):
            cluster.controllers.kill(node)
        producer.wait_for_acks(50)
        cluster.controllers.start()
        cluster.controllers.wait_for_leader()
        assert_holds(lambda: _unchanged(cluster, before.master_epoch), QUIET_S, "the epoch")
        after = cluster.wait_in_sync()
        assert (before.master_id, before.master_epoch) == (after.master_id, after.master_epoch)
        moment, old = time.monotonic(), cluster.broker(after.master_id)
        old.child.kill()
        producer.wait_for_write_after(moment, not_by=old.address)
        cluster.heal()
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)


def test_controller_leader_stopped_then_another_leads_and_it_returns(cluster: Cluster) -> None:
    """A hanging leader must lose its lead, and must see so when it wakes."""
    before = cluster.controllers.wait_for_master(NAME)
    leader = cluster.controllers.wait_for_leader()
    cluster.controllers.stop(leader)
    try:
        cluster.controllers.wait_for_leader(other_than=leader)
        assert_holds(lambda: _unchanged(cluster, before.master_epoch), QUIET_S, "the epoch")
    finally:
        cluster.controllers.cont(leader)
    cluster.controllers.wait_for_agreement()
    after = cluster.wait_in_sync()
    assert (before.master_id, before.master_epoch) == (after.master_id, after.master_epoch)


def _unchanged(cluster: Cluster, master_epoch: int) -> bool:
    info = cluster.controllers.replica_info(NAME)
    return info is None or (info.master_id is not None and info.master_epoch == master_epoch)
