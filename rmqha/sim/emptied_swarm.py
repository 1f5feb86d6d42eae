"""Stories of replicas of which an operator empties one while it is down."""

from __future__ import annotations

import random

from rmqha.sim.replica_cluster import ReplicaCluster
from rmqha.sim.replica_options import ReplicaOptions, log_of
from rmqha.sim.replica_swarm import ReplicaSwarm, kind_of
from rmqha.sim.story import Fault, Outcome, tell

EMPTIED = (
    "/commitlog", "/consumequeue", "/index", "/blocksums", "/checkpoint", "/abort",
    "/epochFileCheckpoint",
)  # fmt: skip
"""What somebody removes who empties a replica, and keeps its identity."""
EMPTIED_SHARE, FIRST_SHARE = 0.3, 0.5
EMPTIED_REPLICA, EMPTIED_MEMBER = "replica emptied", "member of the SyncStateSet emptied"
EMPTIED_ALONE = "emptied replica back first"
EMPTIED_WANTED = EMPTIED_REPLICA, EMPTIED_MEMBER, EMPTIED_ALONE


class EmptiedSwarm(ReplicaSwarm):
    """Plays the faults of replicas, and once a story empties one.

    Args:
        cluster: freshly made, nothing booted.
        rng: seeded.
    """

    def __init__(self, cluster: ReplicaCluster, rng: random.Random) -> None:
        super().__init__(cluster, rng)
        # Dice of its own: otherwise the stories are those of replicas.
        self._empties = random.Random(f"empties of {cluster.seed}")
        self._may_empty = True

    def play_one(self, fault: Fault) -> None:
        """Play a fault, and perhaps empty who is down by then."""
        super().play_one(fault)
        if self._may_empty:
            self._empty_one()

    def _empty_one(self) -> None:
        """Empty a replica that is down; not where only it has something, or nobody.

        Somebody who does it before the controllers miss the replica may take all there is: it may be
        elected in that moment.
        """
        cluster = self.replicas
        members = cluster.member_hosts()
        down = [h for h in cluster.missed_hosts() if members - {h}]
        if not cluster.acked or not down or self._empties.random() > EMPTIED_SHARE:
            return
        host = self._empties.choice([host for host in down if host in members] or down)
        cluster.disks[host].lose(lambda path: any(part in path for part in EMPTIED))
        cluster.trace.say("sim", "empties the store", host=host)
        self._may_empty = False
        cluster.counts[EMPTIED_REPLICA] += 1
        cluster.counts[EMPTIED_MEMBER] += host in members
        if self._empties.random() < FIRST_SHARE and not cluster.disks[host].mood.failing:
            for other in self.alive(cluster.broker_hosts):
                cluster.kill(other)
            cluster.boot(host)
            cluster.counts[EMPTIED_ALONE] += 1


def run_emptied_seed(seed: int, options: ReplicaOptions | None = None) -> Outcome:
    """Play one seed to its end.

    Args:
        seed: decides everything.
        options: the kind of set; by default the seed's.

    Raises:
        InvariantBroken: as ``run_replica_seed``.
    """
    rng = random.Random(seed)
    kind = kind_of(rng, log_of(seed))
    cluster = ReplicaCluster(seed, options or kind)
    return tell(seed, EmptiedSwarm(cluster, rng), lambda: (cluster.reigns, len(cluster.acked)))
