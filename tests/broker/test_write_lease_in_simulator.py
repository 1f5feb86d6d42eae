"""A master that is cut off, with everything real but time and network: what producers are told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.membership.aio import manager
from rmqha.remoting import fastjson
from tests.broker.replicas import NAME_SERVER, ReplicaCluster, master_of

LEASE_MS = 3_200
"""Of a timeout of 4000 ms; see ``make_config``."""


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """Two replicas that wait for nobody: Java's default."""
    keys = {"allAckInSyncStateSet": "false", "slaveTimeout": "1000"}
    one = ReplicaCluster(seed=11, replicas=2, **keys)
    one.controller_keys = {"activeProbeTimeoutMillis": "0"}
    one.boot_all()
    one.until(one.in_sync, "SyncStateSet of two")
    one.until(lambda: held(master_of(one)), "write lease")
    yield one
    one.close()


def held(replica: BrokerReplica) -> bool:
    """Whether it may write by itself at this moment."""
    return replica.ha is not None and replica.ha.is_leased


def isolate(cluster: ReplicaCluster, replica: BrokerReplica, *friends: str) -> None:
    """Only producers and friends reach it."""
    host = replica.config.host
    for other in (*cluster.controller_hosts, *cluster.broker_hosts, NAME_SERVER):
        if other not in (host, *friends):
            cluster.net.cut(host, other)
            cluster.net.cut(other, host)


def said(cluster: ReplicaCluster, event: str) -> int:
    """How often something is in the log of anybody."""
    return sum(f" {event} " in f"{line} " for line in cluster.trace.lines)


def runtime(cluster: ReplicaCluster, replica: BrokerReplica) -> dict[str, str]:
    """What mqadmin shows of a broker."""
    table = fastjson.loads(cluster.ask(replica.config.address, 28).body)["table"]
    return dict(table)


def test_7017_master_when_cut_off_then_it_refuses_before_another_is_elected(
    cluster: ReplicaCluster,
) -> None:
    """14, upon which Java producers try another broker; and no message is stored."""
    old = master_of(cluster)
    assert runtime(cluster, old)["writeLeaseHeld"] == "true"
    cluster.send_many(5)
    isolate(cluster, old)
    # Whoever is connected but does not acknowledge, is not there: that takes slaveTimeout to see.
    cluster.send(0, to=old)
    cluster.until(lambda: not held(old), "end of the lease", limit_ms=LEASE_MS + 100)
    assert cluster.master() is old, "nobody else has been elected yet"
    end = old.store.max_offset
    answer = cluster.send(1, to=old)
    assert answer is not None
    assert answer.code == 14
    assert "write lease has expired" in (answer.remark or "")
    assert old.store.max_offset == end
    table = runtime(cluster, old)
    assert (table["writeLeaseHeld"], table["writeLeaseLosses"]) == ("false", "1")
    assert said(cluster, "write_lease_lost") == 1

    cluster.until(lambda: cluster.master() not in (None, old), "new master")
    assert cluster.send(2, to=old).code == 14  # type: ignore[union-attr]  # it answers
    cluster.net.heal()
    cluster.until(cluster.in_sync, "SyncStateSet of two again")
    assert old.store.max_offset >= 0
    assert cluster.send(3).code == 0  # type: ignore[union-attr]  # the new master answers


@pytest.mark.costly
def test_master_when_it_hears_controllers_again_in_time_then_writes_resume(
    cluster: ReplicaCluster,
) -> None:
    """Nobody was elected: the same master goes on once the leader has confirmed it."""
    old = master_of(cluster)
    isolate(cluster, old)
    cluster.until(lambda: not held(old), "end of the lease", limit_ms=LEASE_MS + 100)
    cluster.net.heal()
    cluster.until(lambda: held(old), "lease again", limit_ms=1_000)
    assert cluster.master() is old
    assert cluster.send(1).code == 0  # type: ignore[union-attr]  # it answers
    assert said(cluster, "write_lease_held") == 2


@pytest.mark.costly
def test_master_when_every_controller_is_dead_then_its_slaves_acknowledgements_do(
    cluster: ReplicaCluster,
) -> None:
    """Controllers that are down must not stop the writes: who could be elected has them."""
    master = master_of(cluster)
    for host in cluster.controller_hosts:
        cluster.kill(host)
    cluster.run_for(2 * LEASE_MS)
    assert not held(master)
    for number in range(5):
        assert cluster.send(number).code == 0  # type: ignore[union-attr]  # it answers
    (slave,) = [one for one in cluster.replicas.values() if one is not master]
    assert slave.store.max_offset == master.store.max_offset, "acknowledged means held by all"

    cluster.kill(slave.config.host)
    cluster.until(lambda: cluster.send(9).code == 14, "refusal")  # type: ignore[union-attr]  # it answers


def test_master_when_alone_in_its_set_then_it_needs_no_lease(cluster: ReplicaCluster) -> None:
    """Nobody else can be elected; stopping its writes would help nobody."""
    master = master_of(cluster)
    (slave,) = [one for one in cluster.replicas.values() if one is not master]
    cluster.kill(slave.config.host)
    cluster.until(lambda: len(cluster.controller_set()) == 1, "set of one")
    for host in cluster.controller_hosts:
        cluster.kill(host)
    cluster.run_for(2 * LEASE_MS)
    assert not held(master)
    assert cluster.send(1).code == 0  # type: ignore[union-attr]  # it answers


@pytest.mark.costly
def test_master_when_the_lease_is_off_then_it_writes_on_as_java_does() -> None:
    """writeLeaseEnable=false."""
    keys = {"allAckInSyncStateSet": "false", "writeLeaseEnable": "false"}
    with ReplicaCluster(seed=12, replicas=2, **keys) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of two")
        old = master_of(cluster)
        assert "writeLeaseHeld" not in runtime(cluster, old)
        isolate(cluster, old)
        cluster.run_for(2 * LEASE_MS)
        assert cluster.send(1, to=old).code == 0  # type: ignore[union-attr]  # it answers


def test_master_when_its_id_is_at_another_address_then_its_lease_is_not_confirmed(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it was cut off a broker with a copy of its identity has registered."""
    master, heard = master_of(cluster), list[str]()

    def elsewhere(fields: object, address: str) -> str:
        heard.append(address)
        return "10.9.9.9:1"

    monkeypatch.setattr(manager, "namesake", elsewhere)
    isolate(cluster, master)
    cluster.until(lambda: not held(master), "end of the lease", limit_ms=LEASE_MS + 100)
    cluster.net.heal()
    cluster.until(lambda: heard, "the leader's word", 3_000)
    cluster.run_for(1_000)
    assert not held(master)
    assert said(cluster, "identity_of_another_broker") > 0
    assert set(heard) == {master.config.address}
