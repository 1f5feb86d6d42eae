"""A story: faults at their times, drawn or read from a script, then peace.

What is drawn is written down as a script, and a script plays the same story again, byte for byte:
that is how a failure is cut down to the few faults it needs (``shrink``).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct, field

from rmqha.base.invariants import invariant
from rmqha.sim.cluster import SimCluster
from rmqha.sim.net import Weather

PEACE_MS_MAX = 60_000
PEACE_STEP_MS = 250
TAIL_LINES = 60
BETWEEN_TWO = ("cut one way", "lag", "reset connections")

Args = tuple[str | int | float, ...]


class Fault(NamedTuple):
    """What was done, when (virtual milliseconds), and to whom."""

    at_ms: float
    kind: str
    args: Args = ()


class Kind(NamedTuple):
    """A kind of fault.

    Attributes:
        draw: chooses the arguments; None when there is nothing to break just now.
        play: does it, by the arguments alone; whether there was anything to do.
    """

    draw: Callable[[], Args | None]
    play: Callable[..., bool]


def plain(play: Callable[[], bool]) -> Kind:
    """A kind that chooses while it plays; scripts cannot repeat it with other faults left out."""
    return Kind(lambda: (), play)


class Outcome(Struct):
    """What one seed came to.

    Attributes:
        digest: of the whole trace; equal seeds give equal digests.
        faults: how often each fault was played.
        counts: how often each happening of ``coverage`` was seen, faults included.
        settled_ms: virtual time from the end of the faults until all was well again.
    """

    seed: int
    digest: str
    lines: list[str]
    faults: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    elections: int = 0
    reads: int = 0
    settled_ms: int = 0
    virtual_ms: int = 0


class Story:
    """Plays faults on a cluster.

    Args:
        cluster: freshly made, nothing booted.
        rng: seeded.
        script: played instead of what would be drawn.
    """

    phase_ms = 30_000.0
    pauses_ms = (30.0, 150.0, 500.0, 1200.0)

    def __init__(
        self, cluster: SimCluster, rng: random.Random, script: tuple[Fault, ...] | None = None
    ) -> None:
        self.cluster = cluster
        self.rng = rng
        self.script: list[Fault] = []
        self.faults: dict[str, int] = {}
        self.kinds: dict[str, Kind] = {}
        self.weights: dict[str, float] = {}
        self._given = script

    def play(self) -> None:
        """Boot everything, then a fault every now and then."""
        self.begin()
        if self._given is None:
            self.draw_all()
        else:
            for fault in self._given:
                self.cluster.run_until(fault.at_ms)
                self.play_one(fault)
        self.advance(self.phase_ms)

    def begin(self) -> None:
        """Start everybody in the story."""
        for host in self.everyone():
            self.cluster.boot(host)
            if self.rng.random() < 0.3:
                self.cluster.run_for(self.rng.uniform(0, 300))

    def draw_all(self) -> None:
        """Play drawn faults until the phase is over."""
        at_ms = self.cluster.loop.time() * 1000
        while True:
            at_ms = round(at_ms + self.pause_ms(), 3)
            if at_ms >= self.phase_ms:
                return
            self.advance(at_ms)
            if self.is_quiet():
                continue
            self.draw_one(at_ms)
            # A fault may take time itself.
            at_ms = max(at_ms, self.cluster.loop.time() * 1000)

    def draw_one(self, at_ms: float) -> None:
        """Choose a fault by the weights, and play it if there is anything to break."""
        names = sorted(self.kinds)
        (name,) = self.rng.choices(names, [self.weights.get(one, 0) for one in names])
        args = self.kinds[name].draw()
        if args is not None:
            self.play_one(Fault(at_ms, name, args))

    def pause_ms(self) -> float:
        """How long until the next fault."""
        return self.rng.choice(self.pauses_ms) * self.rng.uniform(0.5, 1.5)

    def is_quiet(self) -> bool:
        """Whether no fault is drawn now."""
        return False

    def advance(self, end_ms: float) -> None:
        """Let time pass until the next fault."""
        self.cluster.run_until(end_ms)

    def play_one(self, fault: Fault) -> None:
        """Play a fault, and write it down if there was anything to do."""
        if self.kinds[fault.kind].play(*fault.args):
            self.script.append(fault)
            self.faults[fault.kind] = self.faults.get(fault.kind, 0) + 1
            if not self._is_beside(fault):
                self.cluster.liveness.disturbed()

    def _is_beside(self, fault: Fault) -> bool:
        """Whether it concerns brokers alone, or a broker and a controller: no election comes of it."""
        hosts = [one for one in fault.args if isinstance(one, str) and one in self.cluster.disks]
        brokers = set(hosts) & set(self.cluster.broker_hosts)
        return len(brokers) >= (1 if fault.kind in BETWEEN_TWO else max(1, len(hosts)))

    # -- peace ---------------------------------------------------------------------------------

    def make_peace(self) -> int:
        """Mend everything and wait until the cluster is well; returns how long that took (ms).

        Raises:
            InvariantBroken: it did not recover.
        """
        cluster = self.cluster
        cluster.trace.say("sim", "peace")
        self.mend()
        waited_ms = 0
        while not cluster.is_settled():
            cluster.run_for(PEACE_STEP_MS)
            waited_ms += PEACE_STEP_MS
            self.boot_missing()
            invariant(waited_ms <= PEACE_MS_MAX, "the cluster did not recover", waited_ms=waited_ms)
        return waited_ms

    def mend(self) -> None:
        """Network, disks and processes are as they should be."""
        cluster = self.cluster
        cluster.net.heal()
        cluster.net.weather = Weather()
        for disk in cluster.disks.values():
            disk.mend()
        for host in list(cluster.clocks):
            cluster.resume(host)
        self.boot_missing()

    def boot_missing(self) -> None:
        """Start who is down and can be started."""
        for host, disk in self.cluster.disks.items():
            if host not in self.cluster.clocks and not disk.mood.failing:
                self.cluster.boot(host)

    def finish(self) -> int:
        """What comes after the faults; returns how long it took (ms)."""
        return self.make_peace()

    # -- choosing ------------------------------------------------------------------------------

    def everyone(self) -> list[str]:
        """All hosts, controllers first."""
        return [*self.cluster.controller_hosts, *self.cluster.broker_hosts]

    def alive(self, hosts: list[str]) -> list[str]:
        """Those whose process runs."""
        return [host for host in hosts if host in self.cluster.clocks]


class Faults:
    """Kinds of faults that belong together."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.cluster: SimCluster = story.cluster
        self.rng = story.rng

    def one_of(self, hosts: list[str]) -> Args | None:
        """One host, if there is any."""
        return (self.rng.choice(hosts),) if hosts else None

    def a_controller(self) -> Args:
        """One that need not be alive."""
        return (self.rng.choice(self.cluster.controller_hosts),)


def tell(seed: int, story: Story, counts: Callable[[], tuple[int, int]]) -> Outcome:
    """Play a story to its end; ``counts`` gives elections and reads for the outcome.

    Raises:
        InvariantBroken: a safety property broke, or the cluster did not recover; the exception's
            notes hold the end of the trace.
    """
    cluster = story.cluster
    try:
        story.play()
        settled_ms = story.finish()
        cluster.calls.check()
        elections, reads = counts()
        return Outcome(
            seed=seed,
            digest=cluster.trace.digest(),
            lines=cluster.trace.lines,
            faults=dict(sorted(story.faults.items())),
            counts={
                **{f"fault: {name}": count for name, count in sorted(story.faults.items())},
                **dict(sorted(cluster.counts.items())),
            },
            elections=elections,
            reads=reads,
            settled_ms=settled_ms,
            virtual_ms=int(cluster.loop.time() * 1000),
        )
    except BaseException as error:
        tail = "\n".join(cluster.trace.lines[-TAIL_LINES:])
        error.add_note(f"seed {seed}; the trace ends:\n{tail}")
        raise
    finally:
        cluster.close()
