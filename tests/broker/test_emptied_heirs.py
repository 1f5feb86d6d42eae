"""A master whose machine lost its power names an heir, and somebody has emptied the only one."""

from __future__ import annotations

import pytest

from rmqha.controller.metadata import decide_elect
from rmqha.sim.emptied_swarm import EMPTIED
from tests.broker.replicas import ReplicaCluster, master_of

RECOVERED_MS = 30_000


def only_heir_is_emptied(cluster: ReplicaCluster) -> str:
    """All are down and come back, one of them emptied; the host of the other."""
    cluster.boot_all()
    cluster.until(cluster.in_sync, "SyncStateSet of two")
    cluster.send_many(10)
    cluster.run_for(3_000)  # the controllers hear what each has confirmed
    (master,) = [host for host, one in cluster.replicas.items() if one is master_of(cluster)]
    (heir,) = [host for host in cluster.broker_hosts if host != master]
    for host in cluster.founders:
        cluster.kill(host)  # nobody notices, so the master is still named as such
    cluster.kill(heir)
    cluster.kill(master, power=True)
    cluster.disks[heir].lose(lambda path: any(part in path for part in EMPTIED))
    for host in (*cluster.founders, heir, master):
        cluster.boot(host)
    return master


@pytest.mark.costly
@pytest.mark.parametrize("honest", [True, False])
def test_master_when_it_lost_power_and_its_only_heir_was_emptied_then_it_reigns_again(
    monkeypatch: pytest.MonkeyPatch, honest: bool
) -> None:
    """It named the heir, which the controllers did not elect: so it went on for ever."""
    if not honest:
        monkeypatch.setattr(decide_elect, "is_master_best", lambda *_, **__: False)
    with ReplicaCluster(seed=48, replicas=2, flushDiskType="SYNC_FLUSH") as cluster:
        master = only_heir_is_emptied(cluster)
        if not honest:
            with pytest.raises(AssertionError, match="no a master"):
                cluster.until(lambda: cluster.master() is not None, "a master", RECOVERED_MS)
            return
        cluster.until(lambda: cluster.master() is not None, "a master", RECOVERED_MS)
        assert master_of(cluster) is cluster.replicas[master]
        cluster.until(cluster.in_sync, "SyncStateSet of two")
        assert [cluster.missing_on(one) for one in cluster.replicas.values()] == [[], []]
