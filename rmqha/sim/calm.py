"""Since when nothing has disturbed a broker set: what takes a second in peace has been done since.

Faults and changes of roles say so themselves; what lasts is looked at now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.sim.disk import DiskMood

if TYPE_CHECKING:
    from rmqha.sim.replica_cluster import ReplicaCluster


class Calm:
    """Of one set.

    Attributes:
        since_s: by the loop's clock.
    """

    def __init__(self, cluster: ReplicaCluster) -> None:
        self._cluster = cluster
        self.since_s = 0.0

    def disturbed(self) -> None:
        """Something happened just now."""
        self.since_s = self._cluster.loop.time()

    def look(self) -> None:
        """Look for what lasts."""
        if not self._is_calm():
            self.disturbed()

    def _is_calm(self) -> bool:
        cluster = self._cluster
        hosts = [*cluster.controller_hosts, *cluster.broker_hosts]
        if cluster.net.cuts or cluster.net.lags or len(cluster.master_hosts()) != 1:
            return False
        if any(host not in cluster.clocks or cluster.loop.is_paused(host) for host in hosts):
            return False
        if any(cluster.disks[host].mood != DiskMood() for host in hosts):
            return False
        return len(cluster.replicas) == len(cluster.broker_hosts) and all(
            map(_is_settled, cluster.replicas.values())
        )


def _is_settled(replica: BrokerReplica) -> bool:
    """It has a role, and its queues have what its log has."""
    return (
        replica.role is not None
        and replica.ha_core is not None
        and not replica.store.dispatcher.lock.locked()
    )
