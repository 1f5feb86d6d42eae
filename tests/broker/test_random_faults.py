"""Replicas and controllers under faults from a seed: nothing acknowledged is lost, ever."""

from __future__ import annotations

import random

import pytest

from rmqha.ha.events import Role
from tests.broker.replicas import ReplicaCluster, log_bytes

ROUNDS = 14
SEEDS = 24
SEEDS_PER_TEST = 4


def disturb(cluster: ReplicaCluster, dice: random.Random, *, power: bool) -> None:
    """One fault, or the end of one."""
    hosts = [*cluster.broker_hosts, *cluster.controller_hosts]
    down = [host for host in hosts if host not in cluster.clocks]
    up = [host for host in hosts if host in cluster.clocks]
    match dice.choice(("kill", "kill", "boot", "boot", "cut", "heal", "reset", "nothing")):
        case "kill" if len(down) < 3:
            cluster.kill(dice.choice(up), power=power and dice.random() < 0.5)
        case "boot" if down:
            cluster.boot(dice.choice(down))
        case "cut":
            cluster.net.cut(dice.choice(up), dice.choice(up))
        case "heal":
            cluster.net.heal()
        case "reset":
            cluster.net.reset_between(dice.choice(up), dice.choice(up))
        case _:
            pass


def run(seed: int) -> ReplicaCluster:
    """One story; the whole set is back at its end."""
    dice = random.Random(seed)
    power = dice.random() < 0.5
    flush = "SYNC_FLUSH" if power else "ASYNC_FLUSH"
    cluster = ReplicaCluster(seed, flushDiskType=flush, minInSyncReplicas=dice.choice((1, 2)))
    cluster.boot_all()
    number = 0
    for _ in range(ROUNDS):
        disturb(cluster, dice, power=power)
        for _ in range(dice.randint(0, 6)):
            number += 1
            masters = [one for one in cluster.replicas.values() if one.role is Role.MASTER]
            if masters:
                cluster.send(number, to=dice.choice(masters))
        cluster.run_for(dice.choice((50, 500, 3000)))
    cluster.net.heal()
    for host in [*cluster.controller_hosts, *cluster.broker_hosts]:
        if host not in cluster.clocks:
            cluster.boot(host)
    cluster.until(cluster.in_sync, "SyncStateSet of three", 180_000)
    cluster.send_many(3)
    return cluster


def check(cluster: ReplicaCluster) -> None:
    """What must hold after every story."""
    cluster.until(
        lambda: len({log_bytes(one) for one in cluster.replicas.values()}) == 1, "equal logs"
    )
    for replica in cluster.replicas.values():
        assert cluster.missing_on(replica) == []
    reigns: dict[int, set[str]] = {}
    for host, role, epoch in cluster.roles:
        if role is Role.MASTER:
            reigns.setdefault(epoch, set()).add(host)
    assert all(len(hosts) == 1 for hosts in reigns.values()), reigns


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, SEEDS, SEEDS_PER_TEST))
def test_faults_when_they_end_then_all_replicas_have_all_that_was_acknowledged(first: int) -> None:
    """Kills, power cuts (with sync flush), cut and reset links, among brokers and controllers."""
    for seed in range(first, first + SEEDS_PER_TEST):
        cluster = run(seed)
        try:
            check(cluster)
        except AssertionError as error:
            tail = "\n".join(cluster.trace.lines[-60:])
            raise AssertionError(f"seed {seed}\n{tail}") from error
        finally:
            cluster.close()
