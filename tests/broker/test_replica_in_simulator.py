"""Replicas under our own controllers, all shells real, time and network simulated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.ha.events import Role
from tests.broker.replicas import NAME, PORT, ReplicaCluster, log_bytes


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """Three controllers and three replicas, in sync."""
    one = ReplicaCluster(seed=7)
    one.boot_all()
    one.until(one.in_sync, "SyncStateSet of three")
    yield one
    one.close()


def test_three_replicas_when_started_then_one_reigns_and_all_are_in_sync(
    cluster: ReplicaCluster,
) -> None:
    """The first start of a set: ids 1 to 3, one master, everybody in the set."""
    ids = sorted(one.replicas.broker_id or 0 for one in cluster.replicas.values())
    roles = [one.role for one in cluster.replicas.values()]
    assert ids == [1, 2, 3]
    assert roles.count(Role.MASTER) == 1
    assert roles.count(Role.SLAVE) == 2


@pytest.mark.costly
def test_acknowledged_messages_when_all_must_ack_then_every_replica_has_the_same_bytes(
    cluster: ReplicaCluster,
) -> None:
    """Replication must be byte for byte, and visible on slaves up to the confirm offset."""
    cluster.send_many(60)
    master = cluster.master()
    assert master is not None
    cluster.until(
        lambda: len({log_bytes(one) for one in cluster.replicas.values()}) == 1, "equal logs"
    )
    assert len(log_bytes(master)) == master.store.max_offset > 0
    for replica in cluster.replicas.values():
        assert cluster.missing_on(replica) == []


@pytest.mark.costly
def test_master_when_killed_then_another_serves_and_nothing_acknowledged_is_lost(
    cluster: ReplicaCluster,
) -> None:
    """The reason for all of this. The old master comes back as a slave and catches up."""
    cluster.send_many(30)
    old = cluster.master()
    assert old is not None
    host, epoch = cluster.host_of(old), old.replicas.place.master_epoch
    cluster.kill(host)
    cluster.until(lambda: cluster.master() not in (None, old), "new master")
    cluster.send_many(30)
    new = cluster.master()
    assert new is not None
    assert new.replicas.place.master_epoch > epoch
    assert cluster.missing_on(new) == []
    cluster.boot(host)
    cluster.until(cluster.in_sync, "SyncStateSet of three again")
    back = cluster.replicas[host]
    assert back.role is Role.SLAVE
    cluster.send_many(5)
    cluster.until(lambda: log_bytes(back) == log_bytes(new), "the old master's log")
    assert cluster.missing_on(back) == []


@pytest.mark.costly
def test_whole_set_when_it_loses_power_then_it_comes_back_with_what_was_flushed() -> None:
    """Sync flush on every replica: not even a power cut of all three loses an answer."""
    with ReplicaCluster(seed=11, flushDiskType="SYNC_FLUSH") as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of three")
        cluster.send_many(20)
        for host in cluster.broker_hosts:
            cluster.kill(host, power=True)
        for host in cluster.broker_hosts:
            cluster.boot(host)
        cluster.until(lambda: cluster.master() is not None and cluster.in_sync(), "set in sync")
        cluster.send_many(5)
        master = cluster.master()
        assert master is not None
        assert cluster.missing_on(master) == []


def test_notification_when_lost_then_the_poll_brings_the_new_role(cluster: ReplicaCluster) -> None:
    """1008 is one-way and unacknowledged: losing it may cost one poll period, never a role."""
    old = cluster.master()
    assert old is not None
    for replica in cluster.replicas.values():
        replica.notified = lambda request: None  # type: ignore[method-assign]  # the notification is lost
    cluster.kill(cluster.host_of(old))
    cluster.until(lambda: cluster.master() not in (None, old), "new master", 20_000)
    roles = {one.role for one in cluster.replicas.values()}
    cluster.until(lambda: Role.SLAVE in {o.role for o in cluster.replicas.values()}, "a slave")
    assert Role.MASTER in roles


@pytest.mark.costly
def test_controller_leader_when_killed_then_the_master_stays(cluster: ReplicaCluster) -> None:
    """An election among controllers is no reason for one among brokers."""
    master, leader = cluster.master(), cluster.leader()
    assert master is not None
    assert leader is not None
    epoch = master.replicas.place.master_epoch
    cluster.kill(leader)
    cluster.until(lambda: cluster.leader() not in (None, leader), "another leader")
    cluster.run_for(8_000)
    assert cluster.master() is master
    assert master.replicas.place.master_epoch == epoch
    cluster.send_many(5)


def test_slave_when_asked_to_store_then_it_refuses_and_names_no_success(
    cluster: ReplicaCluster,
) -> None:
    """A slave that took a message would fork the log. Java's producers up to 5.2 ask another broker after
    14, and not after the 2 that a Java slave says."""
    slave = next(one for one in cluster.replicas.values() if one.role is Role.SLAVE)
    end = slave.store.max_offset
    answer = cluster.ask(slave.config.address, 310, _fields(), b"x")
    assert answer.code == 14
    assert slave.store.max_offset == end


def test_replica_when_no_controller_lives_then_it_stays_fenced() -> None:
    """Nothing is served, and no name server hears of it, before the role is known."""
    with ReplicaCluster(seed=3, replicas=1) as cluster:
        cluster.boot("10.0.0.1")
        cluster.run_for(15_000)
        replica = cluster.replicas["10.0.0.1"]
        assert replica.role is None
        assert cluster.ask(f"10.0.0.1:{PORT}", 310, _fields(), b"x").code == 14
        assert cluster.ask(f"10.0.0.1:{PORT}", 11, {"topic": NAME, "queueId": "0"}).code == 14
        assert cluster.name_server.registered == []
        for host in cluster.controller_hosts:
            cluster.boot(host)
        cluster.until(lambda: replica.role is Role.MASTER, "its mastership")
        assert cluster.send(1) is not None
        assert len(cluster.acked) == 1


def test_name_server_when_the_master_changes_then_ids_and_versions_follow(
    cluster: ReplicaCluster,
) -> None:
    """Clients find the master by id 0; of two the larger stateVersion wins, which is the epoch."""
    old = cluster.master()
    assert old is not None
    cluster.until(lambda: set(cluster.name_server.brokers) == {0, 2, 3}, "three listed brokers")
    assert cluster.name_server.brokers[0][0] == old.config.address
    cluster.kill(cluster.host_of(old))
    cluster.until(
        lambda: cluster.name_server.brokers[0][0] != old.config.address, "the new master's entry"
    )
    fields, body = next(
        (f, b) for f, b in reversed(cluster.name_server.registered) if f["brokerId"] == "0"
    )
    version = body["topicConfigSerializeWrapper"]["dataVersion"]
    new = cluster.master()
    assert new is not None
    assert version["stateVersion"] == new.replicas.place.master_epoch
    assert fields["haServerAddr"] == f"{new.config.host}:{PORT + 1}"


@pytest.mark.costly
def test_slave_when_the_master_answers_906_then_the_name_server_is_not_needed() -> None:
    """The faster route to the HA address: the name server may take 30 s, or be away."""
    with ReplicaCluster(seed=5) as cluster:
        cluster.name_server.answers_master = False
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of three")


def test_stop_when_asked_then_name_servers_are_told_and_the_store_is_clean(
    cluster: ReplicaCluster,
) -> None:
    """A stop in order leaves no entry behind that clients would run into."""
    cluster.send_many(3)
    slave = next(one for one in cluster.replicas.values() if one.role is Role.SLAVE)
    task = cluster.loop.create_task(slave.stop())
    cluster.until(task.done, "stop")
    assert [fields["brokerAddr"] for fields in cluster.name_server.left] == [slave.config.address]
    assert cluster.name_server.left[0]["brokerId"] == str(slave.replicas.broker_id)
    host = cluster.host_of(slave)
    cluster.kill(host)
    cluster.boot(host)
    cluster.until(cluster.in_sync, "SyncStateSet of three")
    loaded = cluster.replicas[host].store.loaded
    assert loaded is not None
    assert loaded.clean


@pytest.mark.costly
def test_the_same_seed_when_run_twice_then_the_trace_is_the_same() -> None:
    """A replica that draws on anything but its ports cannot be replayed."""
    digests = []
    for _ in range(2):
        with ReplicaCluster(seed=13) as cluster:
            cluster.boot_all()
            cluster.until(cluster.in_sync, "SyncStateSet of three")
            cluster.send_many(5)
            digests.append(cluster.trace.digest())
    assert digests[0] == digests[1]


def _fields() -> dict[str, str]:
    return {"a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
