"""Storms: dozens of faults within a few milliseconds of each other, then a breath, all story long.

The faults of other stories come one after the other, and most have been answered before the next
one. Here they meet: who is being elected is cut off while its voter loses power and the disk of a
third is full. After each squall almost everything is mended for long enough that a leader may be
found and something be committed; the next one begins in the midst of that. A story has some hundred
faults for hardly more processor time than others, so a million can be played in an hour.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from rmqha.controller.raft.node import VOTER
from rmqha.sim.cluster import SimCluster
from rmqha.sim.coverage import missing
from rmqha.sim.liveness import QUIET_MS
from rmqha.sim.story import Fault, Outcome
from rmqha.sim.swarm import Swarm, draw_options

MENDS = frozenset({"heal", "mend disks", "restart"})
"""Kinds that break nothing; they are not counted as faults."""

SQUALL = "storm: squall"
WORKED = "storm: something committed between two squalls"
LED = "storm: a leader elected between two squalls"
HAPPENINGS = (SQUALL, WORKED, LED)
LONG_CALM = 0.05
FOUNDED_EVERY_MS = 20.0


class StormSwarm(Swarm):
    """Squalls of the faults of ``faults``, of a size and a pace that the seed draws."""

    with_ambushes = False  # they begin with a calm of their own

    def __init__(
        self, cluster: SimCluster, rng: random.Random, script: tuple[Fault, ...] | None = None
    ) -> None:
        super().__init__(cluster, rng, script)
        for name in ("deafen", "steady requests"):
            del self.kinds[name]  # nothing is ever quiet here for as long as they need
        self._size = rng.choice((8, 20, 50))
        self._apart_ms = rng.choice((0.3, 2.0, 8.0))
        self._calm_ms = rng.choice((200.0, 500.0, 1200.0))
        self._mends = rng.choice((0.6, 0.9))

    def draw_all(self) -> None:
        """Squall after squall until the phase is over, from when the group is founded."""
        while not self._is_founded() and self._now_ms() < self.phase_ms:
            self._pass(FOUNDED_EVERY_MS)
        while self._now_ms() < self.phase_ms:
            self._breathe()
            self._squall()

    def _is_founded(self) -> bool:
        """Whether every controller votes and has what is committed.

        A store that is lost before that cannot be told from one that never voted, and is not made up
        for (ADR 0018). A storm would do it to more than half; other stories begin with the founding.
        """
        cluster = self.cluster
        services = [cluster.controllers.get(host) for host in cluster.controller_hosts]
        committed = cluster.raft_watch.index_max
        return committed > 0 and all(
            one is not None and one.raft.core is not None
            and one.raft.core.node.standing_on_disk == VOTER
            and one.raft.applied_index == committed
            for one in services
        )  # fmt: skip

    def _squall(self) -> None:
        self.cluster.counts[SQUALL] += 1
        for _ in range(self.rng.randint(1, 2 * self._size)):
            if self._now_ms() >= self.phase_ms:
                return
            self.draw_one(self._now_ms())
            self._pass(self.rng.uniform(0, 2 * self._apart_ms))

    def _breathe(self) -> None:
        """Mostly mended, for a while in which the cluster may do something; then on."""
        if self.rng.random() < self._mends:
            for name in sorted(MENDS):
                self._mend(name)
        counts = self.cluster.counts
        before = counts["entry committed"], counts["leader elected"]
        is_long = self.rng.random() < LONG_CALM
        calm_ms = QUIET_MS if is_long else self._calm_ms * self.rng.uniform(0.5, 1.5)
        self._pass(calm_ms)
        counts[WORKED] += counts["entry committed"] > before[0]
        counts[LED] += counts["leader elected"] > before[1]

    def _mend(self, name: str) -> None:
        """As whole as one fault of the kind can make it."""
        args = self.kinds[name].draw()
        if args is None:
            return
        if name == "restart":
            down = set(self.everyone()) - set(self.cluster.clocks) - self.cluster.refused
            args = tuple(sorted(down))
        self.play_one(Fault(self._now_ms(), name, args))

    def _pass(self, ms: float) -> None:
        """Let time pass, until a moment that a script can name."""
        self.advance(min(self.phase_ms, round(self._now_ms() + ms, 3)))

    def _now_ms(self) -> float:
        return round(self.cluster.loop.time() * 1000, 3)


def make_storm(seed: int, script: tuple[Fault, ...] | None = None) -> StormSwarm:
    """A seed's storm, before it is told."""
    rng = random.Random(seed)
    return StormSwarm(SimCluster(seed, draw_options(rng, seed)), rng, script)


def run_storm_seed(seed: int, script: tuple[Fault, ...] | None = None) -> Outcome:
    """Play one seed to its end.

    Raises:
        InvariantBroken: a safety property broke, or the cluster did not recover.
    """
    return make_storm(seed, script).tell(seed)


def faults_among(counts: Mapping[str, int]) -> int:
    """How many of what was played broke something."""
    names = {f"fault: {name}" for name in MENDS}
    return sum(
        number for name, number in counts.items()
        if name.startswith("fault: ") and name not in names
    )  # fmt: skip


def missing_in_storms(counts: Mapping[str, int], kinds: Iterable[str]) -> list[str]:
    """What did not occur in a batch."""
    absent = [name for name in HAPPENINGS if not counts.get(name)]
    return [*missing(counts, kinds), *absent]
