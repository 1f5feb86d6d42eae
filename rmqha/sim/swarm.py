"""One seed, one story of controllers under faults. Then peace, and a check.

Each seed draws its own mix (swarm testing), so that some stories are full of power cuts and
others of partitions, and its own small limits, so that snapshots, installs and compactions
happen within seconds.
"""

from __future__ import annotations

import contextvars
import random

from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.settings import RemotingSettings
from rmqha.sim.ambush import Ambushes
from rmqha.sim.clock import SimClock
from rmqha.sim.cluster import CONTROLLER_PORT, SimCluster, SimOptions
from rmqha.sim.faults import WEATHERS, kinds_of
from rmqha.sim.liveness import QUIET_MS
from rmqha.sim.loop import HOST
from rmqha.sim.operator import Operator
from rmqha.sim.standstill_faults import StandstillFaults
from rmqha.sim.story import Fault, Outcome, Story, tell

PHASE_MS = 10_000.0
OPERATOR = "a0"
PARTIAL = ("bridge", "ring")
LEASES_OFF = 0.1
"""In so many stories every read waits for a round (``isProcessReadEvent``)."""
LATE_SHARE = 0.22
"""In so many stories the operator sends requests that are out of date."""


class Swarm(Story):
    """Faults for controllers and scripted brokers, by the seed's weights.

    Args:
        cluster: freshly made, nothing booted.
        rng: seeded; the cluster's options were drawn from it.
        script: played instead of what would be drawn.
    """

    phase_ms = PHASE_MS
    pauses_ms = (30.0, 100.0, 300.0, 900.0)
    with_ambushes = True
    # After these a leader must be found, or found out, so they are often left alone for a while.
    awaited: tuple[str, ...] = PARTIAL

    def __init__(
        self, cluster: SimCluster, rng: random.Random, script: tuple[Fault, ...] | None = None
    ) -> None:
        super().__init__(cluster, rng, script)
        self.kinds = kinds_of(self)
        self.weights = {name: rng.choice((0, 0.5, 1, 3)) for name in sorted(self.kinds)}
        for name in ("bridge", "kill minority", "slow disk"):
            self.weights[name] = rng.choice((0, 1, 3, 6))
        self.weights["heal"] = rng.choice((2, 6))
        self.weights["restart"] = rng.choice((3, 9))
        self.weights["mend disks"] = 4
        for name in ("weather", "split", "cut off host", "wall clock jump", "clock rate"):
            self.weights[name] = min(1.0, self.weights[name])
        # By weights nobody draws these, unless a kind of story gives them some: ambushes do.
        self.kinds |= StandstillFaults(self).kinds()
        self._think_ms = rng.choice((15.0, 40.0, 120.0))
        self._bursts = rng.choice((0.0, 0.1, 0.4))
        self._operator_seed = rng.random()
        # By numbers of its own, which leave the stories as they were that have once named a bug; and
        # those of groups that change are about other requests.
        late = random.Random(f"late requests 13 {self._operator_seed}")
        out_of_date = late.random() < LATE_SHARE and not cluster.options.spare_controllers
        self._late = late if out_of_date else None
        self._drawn_last = ""
        ambushes = random.Random(rng.random())
        drawn = self.with_ambushes and script is None
        self.ambushes = Ambushes(cluster, ambushes, PHASE_MS) if drawn else None
        self._operator: Operator | None = None

    def begin(self) -> None:
        """Start everybody, and the operator."""
        self.cluster.net.weather = WEATHERS[self.rng.choice((0, 0, 0, 1, 2, 3))]
        super().begin()
        self.cluster.liveness.start()
        self._start_operator()

    def _start_operator(self) -> None:
        cluster = self.cluster
        context = contextvars.copy_context()
        context.run(HOST.set, OPERATOR)
        network = cluster.net.boot(OPERATOR, context)
        clock = SimClock(cluster.loop)

        def make() -> Operator:
            client = RemotingClient(
                network, clock, RemotingSettings(invoke_timeout_ms=400), connection_ids=cluster.ids
            )
            return Operator(
                tuple(f"{host}:{CONTROLLER_PORT}" for host in cluster.controller_hosts),
                think_ms=self._think_ms,
                rng=random.Random(self._operator_seed),
                client=client,
                clock=clock,
                history=cluster.history,
                bursts=self._bursts,
                adopting=cluster.options.adopting,
                calls=cluster.calls,
                late=self._late,
                counts=cluster.counts,
            )

        operator = self._operator = context.run(make)
        cluster.start_task(OPERATOR, operator.work())

    def advance(self, end_ms: float) -> None:
        """Let time pass, and what is in ambush spring."""
        while True:
            due = self.ambushes.next_due() if self.ambushes is not None else None
            at_ms = end_ms if due is None else min(end_ms, due.at_ms)
            self.cluster.run_until(at_ms)
            if self.cluster.loop.time() * 1000 < at_ms - 1e-6:
                continue  # Something has sprung.
            if due is None or due.at_ms > end_ms or self.ambushes is None:
                return
            self.ambushes.played()
            self.play_one(due)

    def is_quiet(self) -> bool:
        """What has sprung last is left alone for a while."""
        now_ms = self.cluster.loop.time() * 1000
        return self.ambushes is not None and now_ms < self.ambushes.quiet_until_ms

    def pause_ms(self) -> float:
        """How long until the next fault; now and then so long that a leader must be found."""
        last = self.script[-1].kind if self.script else ""
        fresh, self._drawn_last = last != self._drawn_last, last
        if self.rng.random() < (0.5 if fresh and last in self.awaited else 0.01):
            return QUIET_MS
        return super().pause_ms()

    def tell(self, seed: int) -> Outcome:
        """Play to the end.

        Raises:
            InvariantBroken: as ``run_seed``.
        """
        cluster = self.cluster
        return tell(seed, self, lambda: (len(cluster.elections), cluster.history.reads))

    def finish(self) -> int:
        """Mend everything; without the operator, so that all logs end alike."""
        if self.ambushes is not None:
            self.ambushes.end()
        if self._operator is not None:
            self._operator.working = False
        return super().finish()

    # -- peace ---------------------------------------------------------------------------------

    def boot_missing(self) -> None:
        """Start who is down; those who refuse their store are emptied one at a time."""
        cluster = self.cluster
        waiting = cluster.damaged & set(cluster.clocks)
        for host in sorted(cluster.refused):
            if not waiting and host not in cluster.clocks:
                cluster.trace.say("sim", "wipes the store", host=host)
                cluster.refused.discard(host)
                cluster.damaged.add(host)
                cluster.disks[host].wipe()
                waiting.add(host)
        for host in cluster.disks:
            if host not in cluster.clocks and host not in cluster.refused:
                cluster.boot(host)


def draw_options(rng: random.Random, seed: int) -> SimOptions:
    """The size and the limits of one seed's cluster.

    What was added later is drawn from numbers of its own, so that it changes no other story.
    """
    later = random.Random(f"later options {seed}")
    return SimOptions(
        controllers=rng.choice((1, 3, 3, 3, 3, 5, 5, 5)),
        broker_sets=1,
        replicas=rng.choice((2, 2, 3)),
        snapshot_every=rng.choice((8, 8, 25, 60)),
        trailing_entries=rng.choice((0, 0, 3, 20)),
        snapshot_chunk_bytes=rng.choice((40, 200, 5000)),
        wal_segment_bytes=rng.choice((300, 1000, 6000)),
        entries_per_request_max=rng.choice((1, 3, 512)),
        requests_in_flight_max=rng.choice((1, 2, 64)),
        digest_every=rng.choice((5, 5, 20, 1000)),
        heartbeat_timeout_ms=rng.choice((1000, 1000, 4000)),
        moving=True,
        adopting=rng.random() < 0.3,
        lease_reads=later.random() >= LEASES_OFF,
    )


def make_swarm(seed: int, script: tuple[Fault, ...] | None = None) -> Swarm:
    """A seed's story, before it is told."""
    rng = random.Random(seed)
    return Swarm(SimCluster(seed, draw_options(rng, seed)), rng, script)


def run_seed(seed: int, script: tuple[Fault, ...] | None = None) -> Outcome:
    """Play one seed to its end, with its own faults or with those of a script.

    Raises:
        InvariantBroken: a safety property broke, or the cluster did not recover; the exception's
            notes hold the end of the trace.
    """
    return make_swarm(seed, script).tell(seed)
