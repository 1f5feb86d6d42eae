"""Stories of silent masters: slow ones that must stay, and cut-off ones that must not acknowledge.

Controllers probe (``activeProbeTimeoutMillis``). In the first kind nobody dies: links are slow and
lossy, and processes stand still for less than the limit. Whoever is given up there is given up
needlessly. In the second kind masters are stopped or cut off, and the rules of the write lease are
held against them (``verify/leases.py``).
"""

from __future__ import annotations

import random

from rmqha.base.invariants import invariant
from rmqha.sim.cluster import SimCluster, SimOptions
from rmqha.sim.faults import WEATHERS, kinds_of
from rmqha.sim.replica_cluster import ReplicaCluster
from rmqha.sim.replica_options import ReplicaOptions
from rmqha.sim.replica_swarm import LeaseSwarm
from rmqha.sim.story import Outcome, Story, plain, tell

PROBE_MS = 700
ALL_PROBED = {"activeProbeTimeoutMillis": str(PROBE_MS), "activeProbeMasters": "all"}
"""The scripted brokers are Java's: they say nothing of a write lease."""
SLOW_PHASE_MS = 40_000.0
JAVA_BEAT_MS = 1_000
SETTLING_MS = 5_000.0
PAUSES_MS = 60, 120, 200, 300, 400
LAGS_MS = 20.0, 80.0, 150.0
CUTS_MS = 1_500, 4_000, 12_000
STOPS_MS = 500, 1_300, 1_700, 2_500, 4_000
GIVEN_UP = "note: master_given_up"

SLOW_WANTED = (
    "note: master_probed", "fault: pause", "fault: lag", "fault: weather", "fault: bad link", "fault: slow disk",
)  # fmt: skip
STOPPED_WANTED = GIVEN_UP, "fault: stop master"
"""What a batch of each kind must hold: without it, nothing was shown."""


class SlowSwarm(Story):
    """Nobody dies; scripted brokers beat every second, as Java's do, or every other."""

    phase_ms = SLOW_PHASE_MS
    pauses_ms = (300.0, 600.0, 1_000.0, 3_000.0)

    def __init__(self, cluster: SimCluster, rng: random.Random) -> None:
        super().__init__(cluster, rng)
        found = kinds_of(self)
        self.kinds = {
            "pause": plain(self._pause),
            "lag": plain(self._lag),
            "weather": plain(self._weather),
            "bad link": plain(self._bad_link),
            "slow disk": found["slow disk"],
            "heal": found["heal"],
        }
        self.weights = {name: rng.choice((0.5, 1.0, 3.0)) for name in sorted(self.kinds)}

    def begin(self) -> None:
        """Start everybody, brokers not in step; what is slow comes when all are at work."""
        for host in self.everyone():
            self.cluster.boot(host)
            self.cluster.run_for(self.rng.uniform(0, JAVA_BEAT_MS))
        self.cluster.run_for(SETTLING_MS)

    def _pause(self) -> bool:
        host = self.rng.choice(self.everyone())
        cluster = self.cluster
        if host not in cluster.clocks or cluster.loop.is_paused(host) or cluster.net.cuts:
            return False
        cluster.pause(host)
        cluster.loop.call_later(self.rng.choice(PAUSES_MS) / 1000, cluster.resume, host)
        return True

    def _lag(self) -> bool:
        source, target = self.rng.sample(self.everyone(), 2)
        self.cluster.net.lags[source, target] = self.rng.choice(LAGS_MS)
        return True

    def _bad_link(self) -> bool:
        """The leader and a master do not hear each other; followers hear both."""
        cluster = self.cluster
        leader, masters = cluster.leader(), cluster.master_hosts()
        if leader is None or not masters or len(cluster.controller_hosts) == 1:
            return False
        if cluster.net.cuts or cluster.options.heartbeat_ms > JAVA_BEAT_MS:
            return False  # followers ask nobody: by two bad links, or seldom beats, none is heard
        master = self.rng.choice(masters)
        for way in ((leader, master), (master, leader)):
            cluster.net.cut(*way)
        cluster.loop.call_later(self.rng.choice(CUTS_MS) / 1000, cluster.net.heal)
        return True

    def _weather(self) -> bool:
        self.cluster.net.weather = self.rng.choice(WEATHERS[:4])
        return True

    def finish(self) -> int:
        """All is well, as it has been all along.

        Raises:
            InvariantBroken: a living master was given up, or the cluster did not recover.
        """
        waited_ms = self.make_peace()
        given_up = self.cluster.counts[GIVEN_UP]
        invariant(given_up == 0, "a living master was given up", times=given_up)
        return waited_ms


class StoppedSwarm(LeaseSwarm):
    """Masters are cut off, or stop as by SIGSTOP and go on later."""

    def __init__(self, cluster: ReplicaCluster, rng: random.Random) -> None:
        super().__init__(cluster, rng)
        self.kinds["stop master"] = plain(self._stop)
        self.weights["stop master"] = 3.0

    def _stop(self) -> bool:
        cluster = self.cluster
        masters = [one for one in self.replicas.master_hosts() if not cluster.loop.is_paused(one)]
        if not masters:
            return False
        host = self.rng.choice(masters)
        cluster.pause(host)
        cluster.loop.call_later(self.rng.choice(STOPS_MS) / 1000, cluster.resume, host)
        return True


class StoppedCluster(ReplicaCluster):
    """Replicas with Java's timeout, which a probing controller does not wait for."""

    def _properties(self, host: str) -> dict[str, str]:
        return {
            **super()._properties(host),
            "brokerHeartbeatInterval": "1000",
            "controllerHeartBeatTimeoutMills": "10000",
        }


def run_slow_seed(seed: int) -> Outcome:
    """Play one seed of slow brokers, links and controllers.

    Raises:
        InvariantBroken: a living master was given up, or as ``run_seed``.
    """
    rng = random.Random(f"slow {seed}")
    options = SimOptions(
        controllers=rng.choice((1, 3, 3, 5)), broker_sets=2, replicas=rng.choice((2, 3)),
        heartbeat_timeout_ms=10_000, poll_ms=5_000, heartbeat_ms=rng.choice((JAVA_BEAT_MS, 2 * JAVA_BEAT_MS)),
    )  # fmt: skip
    cluster = SimCluster(seed, options)
    cluster.controller_keys = ALL_PROBED
    return tell(seed, SlowSwarm(cluster, rng), lambda: (len(cluster.elections), 0))


def run_stopped_seed(seed: int) -> Outcome:
    """Play one seed of masters that are cut off or stopped.

    Raises:
        InvariantBroken: as ``run_lease_seed``.
    """
    rng = random.Random(f"stopped {seed}")
    kind = ReplicaOptions(replicas=rng.choice((2, 3)), all_ack=False, lease=True)
    cluster = StoppedCluster(seed, kind)
    cluster.controller_keys = {"activeProbeTimeoutMillis": str(PROBE_MS)}
    return tell(seed, StoppedSwarm(cluster, rng), lambda: (cluster.reigns, len(cluster.acked)))
