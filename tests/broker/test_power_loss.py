"""A master that loses power and is back before anybody noticed: who reigns, and what is kept."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

import pytest

from rmqha.ha.events import Role
from rmqha.sim.replica_cluster import snapshot
from rmqha.verify.logs import check_one_history
from tests.broker.replicas import ReplicaCluster, log_bytes, master_of

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

T = TypeVar("T")


def unflushed(cluster: ReplicaCluster, seed: int) -> str:
    """Three replicas in sync; the host of their master, which has just sent what no disk has yet."""
    cluster.boot_all()
    cluster.until(cluster.in_sync, "SyncStateSet of three")
    host = cluster.host_of(master_of(cluster))
    cluster.send_many(12)
    cluster.send_without_waiting(8)
    cluster.run_for(seed % 6)
    return host


def check_another_reigns(cluster: ReplicaCluster, host: str) -> None:
    """All logs become one, nothing acknowledged is missing, and who lost power follows."""
    cluster.until(lambda: cluster.master() is not None, "a master")
    cluster.until(cluster.in_sync, "SyncStateSet of three", 120_000)
    cluster.send_many(3)
    cluster.until(
        lambda: len({log_bytes(one) for one in cluster.replicas.values()}) == 1, "equal logs"
    )
    for replica in cluster.replicas.values():
        assert cluster.missing_on(replica) == []
    assert cluster.replicas[host].role is Role.SLAVE
    check_one_history([snapshot(name, one) for name, one in cluster.replicas.items()])


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize("seed", range(40, 52))
def test_master_when_it_lost_unflushed_messages_then_a_slave_that_has_them_reigns(
    seed: int,
) -> None:
    """All must acknowledge: what was acknowledged may be on the slaves only, and must stay.

    The controllers still take the old master for alive. Going on where its log ends would end what
    was acknowledged, and make slaves append to bytes that the master never wrote.
    """
    with ReplicaCluster(seed=seed, controllerHeartBeatTimeoutMills=60_000) as cluster:
        host = unflushed(cluster, seed)
        # Nobody hears that the connection is gone: the machine is simply dark.
        cluster.kill(host, power=True)
        cluster.boot(host)
        check_another_reigns(cluster, host)


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize("seed", range(60, 66))
@pytest.mark.parametrize("how", ["killed", "stopped in order"])
def test_master_when_it_is_started_twice_after_it_lost_power_then_it_gives_up_its_epoch_all_the_same(
    seed: int, how: str
) -> None:
    """The first process finds no controller, and the second one runs in the same boot as the first.

    It took its log for whole, and went on in its epoch: other bytes stood where slaves had what it lost.
    """
    with ReplicaCluster(seed=seed, controllerHeartBeatTimeoutMills=60_000) as cluster:
        host = unflushed(cluster, seed)
        for other in [*cluster.controller_hosts]:
            cluster.kill(other)
        cluster.kill(host, power=True)
        cluster.boot(host)
        cluster.run_for(500)
        if how == "killed":
            cluster.kill(host)
        else:
            stop = cluster.loop.create_task(cluster.replicas[host].stop())
            cluster.until(stop.done, "an end in order")
            cluster.kill(host)
        cluster.boot(host)
        for other in [*cluster.controller_hosts]:
            cluster.boot(other)
        check_another_reigns(cluster, host)


# -- by Java's rule nobody was promised anything -----------------------------------------------------

HEARTBEAT_TIMEOUT_MS = 4_000
REIGNS_WITHIN_MS = HEARTBEAT_TIMEOUT_MS + 5_000
"""The controllers miss it, and a few pauses between questions go by."""
HAND_OVER_WITHIN_MS = 2_000
JAVA_RULE: dict[str, object] = {
    "allAckInSyncStateSet": "false",
    "inSyncReplicas": 1,
    "controllerHeartBeatTimeoutMills": HEARTBEAT_TIMEOUT_MS,
    # Nothing of the log is flushed by itself while a story lasts.
    "flushIntervalCommitLog": 3_600_000,
}


class LosesAll(random.Random):
    """The dice of a disk of which no unsynced byte survives a power cut."""

    def random(self) -> float:
        """Never low enough for a page to be kept."""
        return 0.99

    def choice(self, seq: SupportsLenAndGetItem[T]) -> T:
        """The first: no sector is kept."""
        return seq[0]


def lose_power(cluster: ReplicaCluster, host: str) -> None:
    """The machine goes dark with every page that was not flushed, and is back before it is missed."""
    disk = cluster.disks[host]
    dice, disk.rng = disk.rng, LosesAll()
    cluster.kill(host, power=True)
    disk.rng = dice
    cluster.boot(host)


@pytest.mark.costly
def test_java_rule_when_a_master_lost_all_of_its_epoch_then_it_writes_no_second_history_of_it() -> (
    None
):
    """A slave that is away holds the first history, under an epoch entry that looks the same.

    The master would write beyond the slave's end before that returns: so nothing would be cut, and
    the slave would take bytes that belong behind another history than its own.
    """
    with ReplicaCluster(seed=61, replicas=2, **JAVA_RULE) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of two")
        old = master_of(cluster)
        epoch, host = old.replicas.place.master_epoch, cluster.host_of(old)
        (slave,) = set(cluster.broker_hosts) - {host}
        cluster.send_many(6)
        held = old.store.max_offset
        cluster.until(lambda: cluster.replicas[slave].store.max_offset == held, "all on the slave")
        cluster.kill(slave)
        lose_power(cluster, host)
        cluster.until(lambda: cluster.master() is not None, "a master", REIGNS_WITHIN_MS)
        again = master_of(cluster)
        assert cluster.host_of(again) == host
        assert again.store.max_offset < held
        cluster.acked.clear()
        while again.store.max_offset <= held:
            cluster.send_many(1)
        cluster.boot(slave)
        cluster.until(lambda: cluster.replicas[slave].ha_core is not None, "the slave's log")
        check_one_history([snapshot(h, one) for h, one in sorted(cluster.replicas.items())])
        assert again.replicas.place.master_epoch > epoch
        cluster.until(cluster.in_sync, "SyncStateSet of two")
        cluster.send_many(3)
        cluster.until(lambda: len({log_bytes(r) for r in cluster.replicas.values()}) == 1, "equal")
        assert cluster.missing_on(cluster.replicas[slave]) == []


def test_java_rule_when_a_slave_lives_then_it_reigns_with_what_the_master_lost() -> None:
    """More than Java's rule promises: whoever has the messages takes over before they are cut."""
    with ReplicaCluster(seed=62, replicas=2, **JAVA_RULE) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of two")
        old = master_of(cluster)
        host = cluster.host_of(old)
        cluster.send_many(6)
        held = old.store.max_offset
        cluster.until(
            lambda: all(one.store.max_offset == held for one in cluster.replicas.values()), "copies"
        )
        lose_power(cluster, host)
        cluster.until(lambda: cluster.master() is not None, "a master", HAND_OVER_WITHIN_MS)
        assert cluster.host_of(master_of(cluster)) != host
        cluster.until(cluster.in_sync, "SyncStateSet of two")
        cluster.send_many(3)
        assert cluster.missing_on(master_of(cluster)) == []


@pytest.mark.few
@pytest.mark.parametrize("seed", range(63, 67))
def test_java_rule_when_a_replica_is_its_whole_set_then_it_reigns_again_within_bounds(
    seed: int,
) -> None:
    """Nobody else can be elected, and nobody answers for it: it waits to be missed, no longer."""
    with ReplicaCluster(seed=seed, replicas=1, **JAVA_RULE) as cluster:
        cluster.boot_all()
        cluster.send_many(6)
        epoch = master_of(cluster).replicas.place.master_epoch
        lose_power(cluster, cluster.broker_hosts[0])
        cluster.until(lambda: cluster.master() is not None, "a master", REIGNS_WITHIN_MS)
        again = master_of(cluster)
        assert again.replicas.place.master_epoch > epoch
        cluster.acked.clear()
        cluster.send_many(3)
        assert cluster.missing_on(again) == []


def test_java_rule_when_the_machine_was_missed_already_then_nothing_is_waited_for() -> None:
    """A machine that boots takes longer than the heartbeat timeout: the way of nearly all."""
    with ReplicaCluster(seed=67, replicas=1, **JAVA_RULE) as cluster:
        cluster.boot_all()
        cluster.send_many(6)
        (host,) = cluster.broker_hosts
        cluster.kill(host, power=True)
        cluster.run_for(HEARTBEAT_TIMEOUT_MS + 1_000)
        cluster.boot(host)
        cluster.until(lambda: cluster.master() is not None, "a master", HAND_OVER_WITHIN_MS)
