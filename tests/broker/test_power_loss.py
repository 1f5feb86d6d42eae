"""A master that loses power and is back before anybody noticed: who reigns, and what is kept."""

from __future__ import annotations

import pytest

from rmqha.ha.events import Role
from tests.broker.replicas import ReplicaCluster, log_bytes


@pytest.mark.parametrize("seed", range(40, 52))
def test_master_when_it_lost_unflushed_messages_then_a_slave_that_has_them_reigns(
    seed: int,
) -> None:
    """All must acknowledge: what was acknowledged may be on the slaves only, and must stay.

    The controllers still take the old master for alive. Going on where its log ends would end what
    was acknowledged, and make slaves append to bytes that the master never wrote.
    """
    with ReplicaCluster(seed=seed, controllerHeartBeatTimeoutMills=60_000) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of three")
        old = cluster.master()
        assert old is not None
        cluster.send_many(12)
        host = cluster.host_of(old)
        cluster.send_without_waiting(8)
        cluster.run_for(seed % 6)
        # Nobody hears that the connection is gone: the machine is simply dark.
        cluster.kill(host, power=True)
        cluster.boot(host)
        cluster.until(lambda: cluster.master() is not None, "a master")
        cluster.until(cluster.in_sync, "SyncStateSet of three", 120_000)
        cluster.send_many(3)
        cluster.until(
            lambda: len({log_bytes(one) for one in cluster.replicas.values()}) == 1, "equal logs"
        )
        for replica in cluster.replicas.values():
            assert cluster.missing_on(replica) == []
        assert cluster.replicas[host].role is Role.SLAVE
