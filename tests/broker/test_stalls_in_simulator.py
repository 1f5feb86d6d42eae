"""Masters that stand still in a write, with everything real but time and network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.ha.events import Role
from rmqha.sim.stalls import stall
from tests.broker.replicas import NAME, ReplicaCluster, master_of

TIMEOUT_MS, LEASE_MS, STALL_MS = 10_000, 8_000, 2_000
"""Java's timeout of heartbeats, and what follows from it."""


UNPROBED = {"activeProbeTimeoutMillis": "0"}
"""Controllers that wait for the timeout: here the watcher is to be seen, not they."""


def started(
    seed: int, all_ack: bool = True, controllers: dict[str, str] = UNPROBED, **keys: object
) -> ReplicaCluster:
    """Three replicas in sync, whose master has its lease."""
    cluster = ReplicaCluster(
        seed, watched=True, allAckInSyncStateSet=str(all_ack).lower(),
        controllerHeartBeatTimeoutMills=TIMEOUT_MS, brokerHeartbeatInterval=1_000, **keys,
    )  # fmt: skip
    cluster.controller_keys = controllers
    cluster.boot_all()
    cluster.until(cluster.in_sync, "SyncStateSet of three")
    cluster.until(lambda: held(master_of(cluster)), "write lease")
    cluster.run_for(200)  # every watcher has heard whom it watches
    return cluster


@pytest.fixture(params=[True, False], ids=["all ack", "Java's default"])
def cluster(request: pytest.FixtureRequest) -> Iterator[ReplicaCluster]:
    """A set whose masters wait for all, and one whose masters wait for nobody."""
    one = started(21, request.param)
    yield one
    one.close()


def held(replica: BrokerReplica) -> bool:
    """Whether it may write by itself at this moment."""
    return replica.ha is not None and replica.ha.is_leased


def elected(cluster: ReplicaCluster) -> int | None:
    """The master's id by the leading controller's state."""
    leader = cluster.leader()
    assert leader is not None
    return cluster.controllers[leader].machine.state.sets[NAME].master_broker_id


def is_heard(cluster: ReplicaCluster, replica: BrokerReplica) -> bool:
    """Whether every controller counts a broker as alive."""
    broker_id = replica.manager.broker_id
    assert broker_id is not None
    return all(
        one.machine.liveness.alive(
            cluster.clocks[host].now_ms(), replica.config.cluster_name, NAME, broker_id
        )  # type: ignore[arg-type]  # an id is an int
        for host, one in cluster.controllers.items()
    )


@pytest.mark.costly
def test_master_when_its_disk_hangs_then_another_reigns_before_the_lease_ends(
    cluster: ReplicaCluster,
) -> None:
    """Producers waited for as long as the disk took, and the controllers for their timeout."""
    old = master_of(cluster)
    cluster.send_many(20)
    stall(cluster, old.config.host, 5_000)
    cluster.until(
        lambda: elected(cluster) != old.manager.broker_id, "hand-over", limit_ms=STALL_MS + 1_000
    )
    assert is_heard(cluster, old), "nobody missed it: its watcher sent the heartbeats"
    cluster.until(
        lambda: any(one.role is Role.MASTER for one in cluster.replicas.values() if one is not old),
        "new master", limit_ms=LEASE_MS - STALL_MS - 1_000,
    )  # fmt: skip
    new = master_of(cluster)
    assert new is not old
    cluster.send_many(20)
    cluster.until(cluster.in_sync, "SyncStateSet of three again")
    assert cluster.missing_on(new) == []
    assert cluster.counts["broker_stalled"] == cluster.counts["mastership_handed_over"] == 1


@pytest.mark.costly
def test_master_when_it_hangs_and_controllers_ask_then_they_need_no_watcher() -> None:
    """By default a master of ours that says nothing is replaced before a stall counts as one."""
    with started(21, all_ack=False, controllers={}) as cluster:
        old = master_of(cluster)
        cluster.send_many(20)
        stall(cluster, old.config.host, 5_000)
        cluster.until(
            lambda: elected(cluster) != old.manager.broker_id, "election", limit_ms=STALL_MS - 400
        )
        assert cluster.counts["note: master_given_up"] == 1
        assert cluster.counts["mastership_handed_over"] == 0
        cluster.until(lambda: old.role is Role.SLAVE, "slave")
        cluster.send_many(20)
        cluster.until(cluster.in_sync, "SyncStateSet of three again")


@pytest.mark.costly
def test_old_master_when_it_goes_on_then_it_acknowledges_nothing_by_itself() -> None:
    """By its clock the lease still holds: without the fence it would, beside the new master."""
    with started(22, all_ack=False) as cluster:
        old = master_of(cluster)
        cluster.send_many(5)
        host = old.config.host
        # Nobody is to tell it of its successor; its watcher speaks with everybody.
        others = {*cluster.controller_hosts, *cluster.broker_hosts} - {host}
        cluster.net.cuts |= {(other, host) for other in others}
        stall(cluster, host, 3_000)
        cluster.run_for(3_100)
        assert not cluster.loop.is_paused(host)
        assert elected(cluster) != old.manager.broker_id
        assert old.role is Role.MASTER
        assert not held(old), "its clock is not the reason: three of eight seconds have passed"
        answer = cluster.send(99, to=old)
        assert answer is not None
        assert answer.code == 14, "refused: another may be master"
        cluster.net.heal()
        cluster.until(cluster.in_sync, "SyncStateSet of three again")


@pytest.mark.costly
def test_master_when_nobody_can_take_over_then_it_goes_on_with_its_lease() -> None:
    """A set of one: no hand-over is possible, and none may be remembered against it."""
    with started(23) as cluster:
        old = master_of(cluster)
        for host in cluster.broker_hosts:
            if host != old.config.host:
                cluster.kill(host)
        cluster.until(lambda: len(cluster.controller_set()) == 1, "set of one")
        stall(cluster, old.config.host, 4_000)
        cluster.run_for(3_000)
        assert cluster.counts["broker_stalled"] == 1
        cluster.until(lambda: held(old), "lease again", limit_ms=4_000)
        assert master_of(cluster) is old
        assert cluster.counts["mastership_handed_over"] == 0
        assert cluster.send(1).code == 0  # type: ignore[union-attr]  # it answers


@pytest.mark.costly
def test_sync_when_it_hangs_in_its_thread_then_mastership_moves_as_well() -> None:
    """The loop goes on, and nothing of what it writes becomes durable any more."""
    with started(24) as cluster:
        old = master_of(cluster)
        cluster.send_many(5)
        cluster.disks[old.config.host].hang(20_000, fails=False)
        cluster.send_many(1)
        cluster.until(
            lambda: elected(cluster) != old.manager.broker_id,
            "hand-over",
            limit_ms=STALL_MS + 3_000,
        )
        cluster.until(lambda: old.role is Role.SLAVE, "slave")
        cluster.send_many(5)
        assert cluster.missing_on(master_of(cluster)) == []


@pytest.mark.costly
def test_slave_when_its_disk_hangs_then_the_master_stays(cluster: ReplicaCluster) -> None:
    """Its watcher asks who is master, and that is all."""
    master = master_of(cluster)
    slave = next(one for one in cluster.replicas.values() if one is not master)
    stall(cluster, slave.config.host, 4_000)
    cluster.run_for(6_000)
    assert cluster.counts["broker_stalled"] == 1
    assert elected(cluster) == master.manager.broker_id
    cluster.until(cluster.in_sync, "SyncStateSet of three again")
    cluster.send_many(5)


@pytest.mark.costly
def test_new_master_when_it_stalls_too_then_the_third_reigns() -> None:
    """One stall after another, on different disks: each is handed over."""
    with started(25) as cluster:
        first = master_of(cluster)
        cluster.send_many(5)
        stall(cluster, first.config.host, 4_000)
        cluster.until(lambda: cluster.master() not in (None, first), "second master")
        second = master_of(cluster)
        cluster.until(cluster.in_sync, "SyncStateSet of three again")
        cluster.send_many(5)
        stall(cluster, second.config.host, 4_000)
        cluster.until(lambda: cluster.master() not in (None, second), "third master")
        cluster.send_many(5)
        cluster.until(cluster.in_sync, "SyncStateSet of three again")
        assert cluster.missing_on(master_of(cluster)) == []
