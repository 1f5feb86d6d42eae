"""Masters, slaves and controller leaders die or hang under load; nothing acknowledged is lost."""

from __future__ import annotations

import time

from rmqha.testing.real.cluster import Cluster
from rmqha.testing.real.processes import assert_holds, wait_until
from rmqha.testing.real.producer import Producer, assert_nothing_lost

NAME = "broker-a"
# Heartbeat timeout (3 s) plus scan and poll periods: whoever would act has acted by then.
QUIET_S = 6.0
# A Java slave that is not in sync by then hangs at the stopped master's HA port (PARITY).
STUCK_S = 30.0


def test_master_killed_when_writing_then_another_takes_over(cluster: Cluster, topic: str) -> None:
    """The plain case: kill -9, one election, the old master comes back as a slave in sync."""
    before = cluster.controllers.wait_for_master(NAME)
    old = cluster.master()
    with Producer(cluster.name_server.address, topic) as producer:
        producer.wait_for_acks(200)
        moment = time.monotonic()
        old.child.kill()
        producer.wait_for_write_after(moment, not_by=old.address)
        after = cluster.controllers.wait_for_master(NAME, other_than=before.master_id)
        assert before.master_epoch + 1 == after.master_epoch
        producer.wait_for_acks(200)
        old.start()
        healed = cluster.wait_in_sync()
        assert (after.master_id, after.master_epoch) == (healed.master_id, healed.master_epoch)
        producer.wait_for_acks(100)
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)


def test_controller_leader_killed_then_masters_stay(cluster: Cluster, topic: str) -> None:
    """Electing among controllers must not disturb brokers that are fine."""
    before = cluster.controllers.wait_for_master(NAME)
    leader = cluster.controllers.wait_for_leader()
    with Producer(cluster.name_server.address, topic) as producer:
        producer.wait_for_acks(100)
        moment = time.monotonic()
        cluster.controllers.kill(leader)
        cluster.controllers.wait_for_leader(other_than=leader)
        assert_holds(
            lambda: _same_master_or_no_answer(cluster, before.master_id, before.master_epoch),
            QUIET_S,
            "the master and its epoch",
        )
        producer.wait_for_acks(100)
        cluster.controllers.start([leader])
        after = cluster.wait_in_sync()
        assert (before.master_id, before.master_epoch) == (after.master_id, after.master_epoch)
        assert producer.longest_gap_s(moment) < 5.0
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)


def test_master_and_controller_leader_killed_together(cluster: Cluster, topic: str) -> None:
    """The new leader has no connection that could close: it must find the dead master itself."""
    before = cluster.controllers.wait_for_master(NAME)
    leader = cluster.controllers.wait_for_leader()
    with Producer(cluster.name_server.address, topic) as producer:
        producer.wait_for_acks(200)
        moment, old = time.monotonic(), cluster.broker(before.master_id)
        cluster.controllers.kill(leader)
        old.child.kill()
        producer.wait_for_write_after(moment, not_by=old.address)
        after = cluster.controllers.wait_for_master(NAME, other_than=before.master_id)
        assert after.master_epoch > before.master_epoch
        cluster.heal()
        producer.wait_for_acks(100)
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)


def test_master_stopped_then_it_is_replaced_and_returns_as_slave(
    cluster: Cluster, topic: str
) -> None:
    """A hanging master keeps its connections open: only missing heartbeats give it away."""
    before = cluster.controllers.wait_for_master(NAME)
    old = cluster.master()
    with Producer(cluster.name_server.address, topic) as producer:
        producer.wait_for_acks(200)
        moment = time.monotonic()
        old.child.stop()
        producer.wait_for_write_after(moment, not_by=old.address)
        after = cluster.controllers.wait_for_master(NAME, other_than=before.master_id)
        producer.wait_for_acks(200)
        old.child.cont()
        cluster.wait_in_sync_or_restart(STUCK_S)
        healed = cluster.wait_in_sync()
        assert (after.master_id, after.master_epoch) == (healed.master_id, healed.master_epoch)
        producer.wait_for_acks(100)
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)


def test_slave_killed_then_the_set_shrinks_and_grows_again(cluster: Cluster, topic: str) -> None:
    """Losing a slave is no reason for an election, and writes go on without it."""
    before = cluster.controllers.wait_for_master(NAME)
    slave = cluster.slaves()[0]
    with Producer(cluster.name_server.address, topic) as producer:
        producer.wait_for_acks(100)
        slave.child.kill()
        left = before.sync_state_set - {slave.controller_id}
        shrunk = cluster.controllers.wait_for_sync_state_set(NAME, left)
        assert (before.master_id, before.master_epoch) == (shrunk.master_id, shrunk.master_epoch)
        assert shrunk.sync_state_set_epoch > before.sync_state_set_epoch
        producer.wait_for_acks(100)
        slave.start()
        after = cluster.wait_in_sync()
        assert before.master_epoch == after.master_epoch
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)


def test_two_masters_killed_in_a_row_then_the_third_serves(cluster: Cluster, topic: str) -> None:
    """Whoever is in the SyncStateSet may lead, down to the last one."""
    with Producer(cluster.name_server.address, topic) as producer:
        for _ in range(2):
            cluster.wait_in_sync_or_restart(STUCK_S)
            before = cluster.controllers.wait_for_master(NAME)
            producer.wait_for_acks(50)
            moment, old = time.monotonic(), cluster.broker(before.master_id)
            old.child.kill()
            cluster.controllers.wait_for_master(NAME, other_than=before.master_id)
            producer.wait_for_write_after(moment, not_by=old.address)
        cluster.heal()
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)


def test_replica_out_of_the_set_is_never_elected(cluster: Cluster, topic: str) -> None:
    """It misses acknowledged messages: better no master than one that forgot."""
    before = cluster.controllers.wait_for_master(NAME)
    master = cluster.broker(before.master_id)
    slaves = cluster.slaves()
    with Producer(cluster.name_server.address, topic) as producer:
        for slave in slaves:
            slave.child.kill()
        assert before.master_id is not None
        cluster.controllers.wait_for_sync_state_set(NAME, {before.master_id})
        producer.wait_for_acks(50)
        master.child.kill()
        wait_until(
            lambda: _masterless(cluster), 30.0, "the controllers to notice that nobody is left"
        )
        slaves[0].start()
        slaves[0].child.wait_for_port(slaves[0].port, 60.0)
        assert_holds(
            lambda: _masterless(cluster), QUIET_S, "no master while only a stale replica runs"
        )
        master.start()
        after = cluster.controllers.wait_for_master(NAME, timeout_s=60.0)
        assert before.master_id == after.master_id
        assert after.master_epoch > before.master_epoch
        cluster.heal()
        producer.wait_for_acks(50)
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)


def _same_master_or_no_answer(cluster: Cluster, master_id: int | None, epoch: int) -> bool:
    info = cluster.controllers.replica_info(NAME)
    return info is None or (info.master_id, info.master_epoch) == (master_id, epoch)


def _masterless(cluster: Cluster) -> bool:
    info = cluster.controllers.replica_info(NAME)
    return info is not None and info.master_id is None
