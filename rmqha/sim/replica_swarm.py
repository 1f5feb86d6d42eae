"""Stories of replicas: faults from a seed while producers send, then peace, and a close look."""

from __future__ import annotations

import random

from rmqha.base.invariants import invariant
from rmqha.sim.faults import WEATHERS, kinds_of
from rmqha.sim.replica_cluster import ReplicaCluster, snapshot
from rmqha.sim.replica_options import LogShape, ReplicaOptions, log_of
from rmqha.sim.stalls import stall
from rmqha.sim.story import Fault, Outcome, Story, plain, tell
from rmqha.verify.client_history import HistoryWriter

FAULT_PHASE_MS = 12_000.0
CONTROLLER_KINDS = (
    "kill controller", "power cut controller", "kill broker", "power cut broker",
    "kill leader and master", "cut off host", "cut one way", "split", "reset connections",
    "slow disk", "broken disk", "mend disks", "pause", "restart", "heal",
)  # fmt: skip
"""Of the faults for controllers those that concern brokers too."""
AFTERWARDS_MS = 500
QUIET_MS = 1500
COPIED_MS_MAX, COPIED_STEP_MS = 4_000, 250
"""Slaves have copied then what groups have committed. One that could not reach its master asks again
after a period of 3 s, and its questions may have waited for connections as long before."""
STALLS_MS = 700, 1_500, 4_000


class ReplicaSwarm(Story):
    """Plays faults on replicas and controllers.

    Args:
        cluster: freshly made, nothing booted.
        rng: seeded.
    """

    phase_ms = FAULT_PHASE_MS

    def __init__(self, cluster: ReplicaCluster, rng: random.Random) -> None:
        super().__init__(cluster, rng)
        self.replicas = cluster
        found = kinds_of(self)
        self.kinds = {name: found[name] for name in CONTROLLER_KINDS} | {
            "slow broker disk": plain(self._slow_broker_disk),
            "broken broker disk": plain(self._broken_broker_disk),
            "quiet failover": plain(self._quiet_failover),
            "quiet return": plain(self._quiet_return),
            "blackout": plain(self._blackout),
        }
        self.weights = {name: rng.choice((0, 1, 1, 3)) for name in CONTROLLER_KINDS}
        self.weights |= {
            "restart": 8,
            "heal": 8,
            "mend disks": 4,
            "quiet failover": rng.choice((0, 1, 3)),
            "quiet return": rng.choice((0, 1, 3)),
            "blackout": rng.choice((0, 1, 2)),
            "slow broker disk": rng.choice((0, 1, 2)),
            "broken broker disk": rng.choice((0, 0, 1)),
            "kill broker": rng.choice((1, 2, 4)),
        }
        if cluster.set.watched:
            self.kinds["stalled broker"] = plain(lambda: self._stall(cluster.broker_hosts))
            self.kinds["stalled master"] = plain(lambda: self._stall(cluster.master_hosts()))
            self.weights |= {"stalled broker": 1, "stalled master": rng.choice((1, 2, 4))}
        if not cluster.set.bears_power_cuts:
            for name in ("power cut broker", "broken broker disk", "blackout"):
                self.weights[name] = 0

    def begin(self) -> None:
        """Start everybody, and the producers."""
        self.cluster.net.weather = self.rng.choice(WEATHERS[:4])
        super().begin()
        self.replicas.start_producers()

    def play_one(self, fault: Fault) -> None:
        """Play a fault, which disturbs."""
        super().play_one(fault)
        self.replicas.calm.disturbed()

    def _stall(self, hosts: list[str]) -> bool:
        """A broker stands still in the middle of a write."""
        hosts = self.alive(hosts)
        if hosts:
            stall(self.cluster, self.rng.choice(hosts), self.rng.choice(STALLS_MS))
        return bool(hosts)

    def _quiet_failover(self) -> bool:
        """An epoch begins without a message, and connections break before the first one."""
        cluster = self.replicas
        masters = cluster.master_hosts()
        if not masters:
            return False
        cluster.quiet_until_s = cluster.loop.time() + QUIET_MS / 1000
        cluster.kill(self.rng.choice(masters))
        cluster.run_for(QUIET_MS * 0.8)
        for one in cluster.broker_hosts:
            for other in cluster.broker_hosts:
                cluster.net.reset_between(one, other)
        return True

    def _quiet_return(self) -> bool:
        """A master dies with a tail of its own, is back, cuts it, and dies again before new data."""
        cluster = self.replicas
        masters = cluster.master_hosts()
        if not masters:
            return False
        host = self.rng.choice(masters)
        power = cluster.set.bears_power_cuts and self.rng.random() < 0.5
        cluster.quiet_until_s = cluster.loop.time() + 2 * QUIET_MS / 1000
        cluster.kill(host)
        cluster.run_for(QUIET_MS * 0.5)
        for _ in range(2):
            if host in cluster.clocks or cluster.disks[host].mood.failing:
                break
            cluster.boot(host)
            cluster.run_for(QUIET_MS * 0.5)
            cluster.kill(host, power=power)
        return True

    def _blackout(self) -> bool:
        """Power fails for every replica at once: what was acknowledged is on disks, or lost."""
        for host in self.alive(self.cluster.broker_hosts):
            self.cluster.kill(host, power=True)
        return True

    def _slow_broker_disk(self) -> bool:
        host = self.rng.choice(self.cluster.broker_hosts)
        self.cluster.disks[host].mood.stall = self.rng.choice((0.0, 0.05, 0.3))
        return True

    def _broken_broker_disk(self) -> bool:
        host = self.rng.choice(self.cluster.broker_hosts)
        mood = self.cluster.disks[host].mood
        mood.failing = not mood.failing
        self.cluster.trace.say("sim", "breaks the disk" if mood.failing else "mends", host=host)
        return mood.failing

    def _hear_of_one(self) -> None:
        """A slow producer may have been refused all along; in peace it is answered."""
        cluster, waited_ms = self.replicas, 0
        while not cluster.acked and waited_ms < COPIED_MS_MAX:
            cluster.run_for(COPIED_STEP_MS)
            waited_ms += COPIED_STEP_MS

    def finish(self) -> int:
        """Mend everything, let them settle with and without load, and compare.

        Returns:
            How long it took until all was well (ms).

        Raises:
            InvariantBroken: it did not recover, or something is lost or differs.
        """
        cluster = self.replicas
        waited_ms = self.make_peace()
        cluster.run_for(AFTERWARDS_MS)
        self._hear_of_one()
        cluster.producing = False
        waited_ms += self.make_peace()
        cluster.observe()
        cluster.note_readings()
        (host,) = cluster.master_hosts()
        master = snapshot(host, cluster.replicas[host])
        cluster.count_offsets(cluster.replicas[host].store)
        cluster.durability.check(master)
        cluster.check_logs(master)
        cluster.check_tables()
        cluster.check_copies()
        copied_ms = 0
        while not cluster.offsets_are_copied() and copied_ms < COPIED_MS_MAX:
            cluster.run_for(COPIED_STEP_MS)
            copied_ms += COPIED_STEP_MS
        cluster.check_offsets()
        if cluster.set.survives:
            lost = list(cluster.missing())
            for life in cluster.topic_lives:
                life.check(host, cluster.replicas[host])
            invariant(not lost, "consumers do not get what was acknowledged", lost=lost[:3])
        invariant(len(cluster.acked) > 0, "nothing was ever acknowledged")
        return waited_ms


class LeaseSwarm(Story):
    """Cuts masters off while producers reach them all along; nobody waits for slaves.

    Connections are cut, never reset: a controller elects at once when it alone sees a close, and
    no lease can be that short (ADR 0016).
    """

    phase_ms = FAULT_PHASE_MS

    def __init__(self, cluster: ReplicaCluster, rng: random.Random) -> None:
        super().__init__(cluster, rng)
        self.replicas = cluster
        found = kinds_of(self)
        self.kinds = {
            "isolate master": plain(lambda: self._isolate([])),
            "isolate master and leader": plain(lambda: self._isolate([cluster.leader() or ""])),
            "isolate master and controller": plain(
                lambda: self._isolate([rng.choice(cluster.controller_hosts)])
            ),
            "isolate master and slave": plain(
                lambda: self._isolate([rng.choice(cluster.broker_hosts)])
            ),
            "kill slave": plain(self._kill_slave),
            "restart": found["restart"],
            "heal": found["heal"],
            "wait": plain(self._wait),
        }
        if cluster.set.watched:
            self.kinds["stall master"] = plain(self._stall)
        self.weights = dict.fromkeys(self.kinds, 1.0) | {"heal": 3.0, "restart": 3.0, "wait": 2.0}

    def begin(self) -> None:
        """Start everybody, and the producers."""
        self.cluster.net.weather = self.rng.choice(WEATHERS[:4])
        super().begin()
        self.replicas.start_producers()

    def _isolate(self, friends: list[str]) -> bool:
        """A master, and perhaps a friend, hears nobody else and is not heard."""
        masters = self.replicas.master_hosts()
        if not masters:
            return False
        inside = {self.rng.choice(masters), *friends}
        net = self.cluster.net
        self.cluster.trace.say("sim", "isolate", inside=" ".join(sorted(inside)))
        for one in sorted(inside):
            for other in self.everyone():
                if other not in inside:
                    net.cut(one, other)
                    net.cut(other, one)
        return True

    def _stall(self) -> bool:
        """A master stands still in a write, and goes on while it has its lease by its own clock."""
        masters = self.replicas.master_hosts()
        if masters:
            stall(self.cluster, self.rng.choice(masters), self.rng.choice(STALLS_MS))
        return bool(masters)

    def _kill_slave(self) -> bool:
        masters = self.replicas.master_hosts()
        slaves = [h for h in self.alive(self.replicas.broker_hosts) if h not in masters]
        if not slaves:
            return False
        self.cluster.kill(self.rng.choice(slaves))
        return True

    def _wait(self) -> bool:
        """Longer than a controller waits for a heartbeat."""
        self.cluster.run_for(self.rng.uniform(1_500, 3_500))
        return True

    def finish(self) -> int:
        """Mend everything; all logs become equal again.

        Raises:
            InvariantBroken: it did not recover, or logs differ.
        """
        cluster = self.replicas
        waited_ms = self.make_peace()
        cluster.producing = False
        waited_ms += self.make_peace()
        (host,) = cluster.master_hosts()
        master = snapshot(host, cluster.replicas[host])
        cluster.check_logs(master)
        cluster.check_tables()
        invariant(len(cluster.acked) > 0, "nothing was ever acknowledged")
        return waited_ms


def run_lease_seed(seed: int, *, watched: bool = False) -> Outcome:
    """Play one seed of masters that are cut off.

    Args:
        watched: they stand still as well, and their watchers act in their place.

    Raises:
        InvariantBroken: as :func:`run_replica_seed`.
    """
    rng = random.Random(seed)
    kind = ReplicaOptions(replicas=rng.choice((2, 3)), all_ack=False, lease=True, watched=watched)
    cluster = ReplicaCluster(seed, kind)
    return tell(seed, LeaseSwarm(cluster, rng), lambda: (cluster.reigns, len(cluster.acked)))


def run_replica_seed(
    seed: int,
    options: ReplicaOptions | None = None,
    history: HistoryWriter | None = None,
    *,
    log: LogShape | None = None,
) -> Outcome:
    """Play one seed to its end.

    Args:
        seed: decides everything.
        options: the kind of set; by default the seed's.
        history: takes what clients do.
        log: of a set of the seed's own kind; by default the seed's as well.

    Raises:
        InvariantBroken: a safety property broke, or the set did not recover; the exception's
            notes hold the end of the trace.
    """
    rng = random.Random(seed)
    kind = kind_of(rng, log_of(seed) if log is None else log)
    cluster = ReplicaCluster(seed, options or kind, history)
    return tell(seed, ReplicaSwarm(cluster, rng), lambda: (cluster.reigns, len(cluster.acked)))


def kind_of(rng: random.Random, log: LogShape) -> ReplicaOptions:
    """Draw what kind of set a story is about."""
    all_ack = rng.random() < 0.8
    return ReplicaOptions(
        # Of three, inSyncReplicas=2 promises nothing: the third may be elected alone.
        replicas=rng.choice((3, 3, 2)) if all_ack else 2,
        sync_flush=rng.random() < 0.5,
        all_ack=all_ack,
        log=log,
    )
