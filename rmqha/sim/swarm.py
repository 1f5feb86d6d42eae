"""One seed, one story: which faults, how often, in which weather. Then peace, and a check.

Each seed draws its own mix (swarm testing), so that some stories are full of power cuts and
others of partitions.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec import Struct, field

from rmqha.base.invariants import invariant
from rmqha.sim.cluster import SimCluster, SimOptions
from rmqha.sim.net import Weather

FAULT_PHASE_MS = 30_000
PEACE_MS_MAX = 60_000
PEACE_STEP_MS = 250


class Outcome(Struct):
    """What one seed came to.

    Attributes:
        digest: of the whole trace; equal seeds give equal digests.
        faults: how often each fault was played.
        settled_ms: virtual time from the end of the faults until all was well again.
    """

    seed: int
    digest: str
    lines: list[str]
    faults: dict[str, int] = field(default_factory=dict)
    elections: int = 0
    reads: int = 0
    settled_ms: int = 0
    virtual_ms: int = 0


class Swarm:
    """Plays faults on a cluster.

    Args:
        cluster: freshly made, nothing booted.
        rng: seeded.
    """

    phase_ms = FAULT_PHASE_MS

    def __init__(self, cluster: SimCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.faults: dict[str, int] = {}
        kinds: dict[str, Callable[[], bool]] = {
            "kill controller": lambda: self._kill(cluster.controller_hosts, power=False),
            "power cut controller": lambda: self._kill(cluster.controller_hosts, power=True),
            "kill broker": lambda: self._kill(cluster.broker_hosts, power=False),
            "power cut broker": lambda: self._kill(cluster.broker_hosts, power=True),
            "kill leader and master": self._kill_leader_and_master,
            "cut off host": self._cut_off,
            "cut one way": self._cut_one_way,
            "split": self._split,
            "reset connections": self._reset,
            "slow disk": self._slow_disk,
            "broken disk": self._broken_disk,
            "restart": self._restart,
            "heal": self._heal,
        }
        self._kinds = kinds
        self._weights = {name: rng.choice((0, 1, 1, 3)) for name in kinds}
        self._weights["restart"] = self._weights["heal"] = 8

    def play(self) -> None:
        """Boot everything, then a fault every now and then."""
        cluster, rng = self.cluster, self.rng
        cluster.net.weather = rng.choice(
            (
                Weather(),
                Weather(0.1, 5.0),
                Weather(0.2, 20.0, loss=0.01),
                Weather(0.1, 2.0, loss=0.03, retransmit_ms=250.0),
            )
        )
        self._boot_all()
        names = sorted(self._kinds)
        weights = [self._weights[name] for name in names]
        left_ms = float(self.phase_ms)
        while left_ms > 0:
            pause_ms = rng.choice((30.0, 150.0, 500.0, 1200.0)) * rng.uniform(0.5, 1.5)
            cluster.run_for(pause_ms)
            left_ms -= pause_ms
            (name,) = rng.choices(names, weights)
            if self._kinds[name]():
                self.faults[name] = self.faults.get(name, 0) + 1

    def _boot_all(self) -> None:
        for host in self._everyone():
            self.cluster.boot(host)
            if self.rng.random() < 0.3:
                self.cluster.run_for(self.rng.uniform(0, 300))

    def make_peace(self) -> int:
        """Mend everything and wait until the cluster is well; returns how long that took (ms).

        Raises:
            InvariantBroken: it did not recover.
        """
        cluster = self.cluster
        cluster.trace.say("sim", "peace")
        self._heal()
        cluster.net.weather = Weather()
        for host, disk in cluster.disks.items():
            disk.mood.failing = False
            disk.mood.stall = 0.0
            if host not in cluster.clocks:
                cluster.boot(host)
        waited_ms = 0
        while not cluster.is_settled():
            cluster.run_for(PEACE_STEP_MS)
            waited_ms += PEACE_STEP_MS
            for host, disk in cluster.disks.items():
                if host not in cluster.clocks and not disk.mood.failing:
                    cluster.boot(host)
            invariant(waited_ms <= PEACE_MS_MAX, "the cluster did not recover", waited_ms=waited_ms)
        return waited_ms

    def finish(self) -> int:
        """What comes after the faults; returns how long it took (ms)."""
        return self.make_peace()

    # -- faults ------------------------------------------------------------------------------

    def _alive(self, hosts: list[str]) -> list[str]:
        return [host for host in hosts if host in self.cluster.clocks]

    def _kill(self, hosts: list[str], *, power: bool) -> bool:
        alive = self._alive(hosts)
        if not alive:
            return False
        self.cluster.kill(self.rng.choice(alive), power=power)
        return True

    def _kill_leader_and_master(self) -> bool:
        leader = self.cluster.leader()
        masters = self.cluster.master_hosts()
        if leader is None or not masters:
            return False
        self.cluster.kill(leader)
        self.cluster.kill(self.rng.choice(masters))
        return True

    def _everyone(self) -> list[str]:
        return [*self.cluster.controller_hosts, *self.cluster.broker_hosts]

    def _cut_off(self) -> bool:
        victim = self.rng.choice(self._everyone())
        self.cluster.trace.say("sim", "cut off", host=victim)
        for other in self._everyone():
            if other != victim:
                self.cluster.net.cut(victim, other)
                self.cluster.net.cut(other, victim)
        return True

    def _split(self) -> bool:
        """Two halves that cannot speak to each other; brokers and controllers in both."""
        hosts = self._everyone()
        inside = sorted(self.rng.sample(hosts, self.rng.randint(1, len(hosts) - 1)))
        leader = self.cluster.leader()
        if leader is not None and self.rng.random() < 0.5:
            # The old leader with few controllers and most brokers: stale answers would show here.
            others = [h for h in self.cluster.controller_hosts if h != leader]
            inside = sorted({leader, *self.cluster.broker_hosts[::2]} - set(others))
        self.cluster.trace.say("sim", "split", inside=" ".join(inside))
        for one in inside:
            for other in hosts:
                if other not in inside:
                    self.cluster.net.cut(one, other)
                    self.cluster.net.cut(other, one)
        return True

    def _cut_one_way(self) -> bool:
        source, target = self.rng.sample(self._everyone(), 2)
        self.cluster.trace.say("sim", "cut one way", source=source, target=target)
        self.cluster.net.cut(source, target)
        return True

    def _reset(self) -> bool:
        one, other = self.rng.sample(self._everyone(), 2)
        self.cluster.trace.say("sim", "reset", one=one, other=other)
        self.cluster.net.reset_between(one, other)
        return True

    def _slow_disk(self) -> bool:
        host = self.rng.choice(self.cluster.controller_hosts)
        self.cluster.disks[host].mood.stall = self.rng.choice((0.0, 0.05, 0.3))
        return True

    def _broken_disk(self) -> bool:
        broken = [h for h in self.cluster.controller_hosts if self.cluster.disks[h].mood.failing]
        if broken:
            self.cluster.disks[broken[0]].mood.failing = False
            return False
        host = self.rng.choice(self.cluster.controller_hosts)
        self.cluster.trace.say("sim", "breaks the disk", host=host)
        self.cluster.disks[host].mood.failing = True
        return True

    def _restart(self) -> bool:
        down = [
            host
            for host in self._everyone()
            if host not in self.cluster.clocks and not self.cluster.disks[host].mood.failing
        ]
        if not down:
            return False
        count = self.rng.choice((1, 1, len(down)))
        for host in self.rng.sample(down, count):
            self.cluster.boot(host)
        return True

    def _heal(self) -> bool:
        if not self.cluster.net.cuts:
            return False
        self.cluster.trace.say("sim", "heal")
        self.cluster.net.heal()
        return True


def run_seed(seed: int) -> Outcome:
    """Play one seed to its end.

    Raises:
        InvariantBroken: a safety property broke, or the cluster did not recover; the exception's
            notes hold the end of the trace.
    """
    rng = random.Random(seed)
    options = SimOptions(
        controllers=rng.choice((3, 3, 5)),
        broker_sets=rng.choice((1, 2)),
        replicas=rng.choice((2, 3)),
        snapshot_every=rng.choice((8, 25, 1000)),
        heartbeat_timeout_ms=rng.choice((1000, 1000, 4000)),
    )
    cluster = SimCluster(seed, options)
    return tell(seed, Swarm(cluster, rng), lambda: (len(cluster.elections), cluster.history.reads))


def tell(seed: int, swarm: Swarm, counts: Callable[[], tuple[int, int]]) -> Outcome:
    """Play a story to its end; ``counts`` gives elections and reads for the outcome.

    Raises:
        InvariantBroken: as ``run_seed``.
    """
    cluster = swarm.cluster
    try:
        swarm.play()
        settled_ms = swarm.finish()
        elections, reads = counts()
        return Outcome(
            seed=seed,
            digest=cluster.trace.digest(),
            lines=cluster.trace.lines,
            faults=dict(sorted(swarm.faults.items())),
            elections=elections,
            reads=reads,
            settled_ms=settled_ms,
            virtual_ms=int(cluster.loop.time() * 1000),
        )
    except BaseException as error:
        error.add_note(f"seed {seed}; the trace ends:\n" + "\n".join(cluster.trace.lines[-60:]))
        raise
    finally:
        cluster.close()
