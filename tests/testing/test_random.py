"""Random faults on a whole cluster, healed again and again: is anything acknowledged lost?

The simulator does this in virtual time and a thousand times as often; here real sockets, threads
and disks have their say.
"""

from __future__ import annotations

import pytest

from rmqha.testing.cluster import RmqCluster
from rmqha.testing.nodes import Node
from rmqha.testing.plugin import Factory

pytestmark = pytest.mark.slow
ROUNDS = 4
FAULTS = ("kill", "shut_down", "stop", "isolate", "slow_disk", "partition")


@pytest.mark.parametrize("processes", [False, True], ids=["in-process", "processes"])
def test_nothing_is_lost_whatever_breaks(rmq_cluster_factory: Factory, *, processes: bool) -> None:
    """Faults overlap as they like; the workload's ledger sees every message that is lost."""
    cluster = rmq_cluster_factory(namesrv=2, processes=processes)
    workload = cluster.workload("Random")
    for _ in range(ROUNDS):
        workload.wait_for_acks(50)
        for _ in range(cluster.rng.randint(1, 3)):
            break_something(cluster, cluster.rng.choice(cluster.nodes))
        cluster.heal(timeout_s=60)
    ledger = workload.stop()
    assert ledger.acknowledged == ledger.consumed >= ROUNDS * 50
    assert ledger.lost == []


def break_something(cluster: RmqCluster, node: Node) -> None:
    """One random fault."""
    match cluster.rng.choice(FAULTS):
        case "kill":
            cluster.kill(node)
        case "shut_down":
            cluster.shut_down(node)
        case "stop":
            cluster.stop(node)
        case "isolate":
            cluster.isolate(node)
        case "slow_disk":
            cluster.slow_disk(node, cluster.rng.choice((5, 50, 200)))
        case _:
            others = [one for one in cluster.nodes if one is not node]
            cluster.partition(node, cluster.rng.choice(others))
