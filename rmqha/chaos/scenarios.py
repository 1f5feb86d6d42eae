"""Scenarios, and the fault that a round of each draws.

The twelve of "How RocketMQ Leverages Raft for High Availability" (four kinds of faults at brokers, at
controllers, and at both), and some with a victim that is known: the master, the leader. Whatever is
drawn leaves one broker that runs, as theirs do; controllers may all be taken.

What does not live here: how a fault is done to a process or a link, and when.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar, assert_never

from msgspec import Struct

from rmqha.runtime.ports import Rng

LOSS_PERCENT = 80
DELAY_MS, JITTER_MS = 60, 120
"""What each frame of a slow host's link takes, and at most so much more: 0.3 s there and back, when
both ends are slow 0.5 s."""
JUMPS_S = (-3_600, -60, -1, 1, 60, 3_600)
"""By how much a wall clock that jumps is wrong, until the round is over."""
BITS = 16
"""That flip in the log of each broker that is taken, in one round."""
RING_MIN = 5
"""In a smaller ring of majorities somebody hears everybody: that is a bridge."""

Link = tuple[str, str]
"""From whom, to whom: packets of one direction."""
_T = TypeVar("_T")


class Kind(StrEnum):
    """What is done to them."""

    CRASH = "crash"
    HANG = "hang"
    LOSS = "loss"
    DELAY = "delay"
    PARTITION = "partition"
    CUT_AND_CRASH = "cut-and-crash"
    POWER_CUT = "power-cut"
    FULL_DISK = "full-disk"
    FROZEN_DISK = "frozen-disk"
    SLOW_DISK = "slow-disk"
    FLIPPED_BITS = "flipped-bits"
    CLOCK_JUMP = "clock-jump"


ENDS = frozenset({Kind.CRASH, Kind.CUT_AND_CRASH, Kind.POWER_CUT})
"""After these a process has to be started again."""
ON_DISKS = frozenset({Kind.POWER_CUT, Kind.FULL_DISK, Kind.FROZEN_DISK, Kind.SLOW_DISK})


class Scope(StrEnum):
    """Whom it is done to."""

    BROKERS = "brokers"
    CONTROLLERS = "controllers"
    BOTH = "both"
    MASTER = "master"
    LEADER = "leader"
    LEADER_AND_MASTER = "leader-and-master"


class Shape(StrEnum):
    """Which links of a partition are cut."""

    SYMMETRIC = "symmetric"
    ONE_WAY = "one-way"
    BRIDGE = "bridge"
    RING = "majority-ring"


class Members(Struct, frozen=True):
    """Who there is at a moment.

    Attributes:
        master, leader: a broker and a controller; None where nobody is.
    """

    brokers: tuple[str, ...]
    controllers: tuple[str, ...]
    master: str | None = None
    leader: str | None = None


class Fault(Struct, frozen=True):
    """What one round breaks.

    Attributes:
        hosts: whose processes are killed or stopped; where there are links as well, after them.
        links: whose packets are dropped, of each direction by itself.
        loss_percent: of the packets of ``links``.
        shape: of a partition.
        jump_s: of a wall clock.
        seed: draws which bits flip, and how much each frame is late.
    """

    kind: Kind
    hosts: tuple[str, ...] = ()
    links: frozenset[Link] = frozenset()
    loss_percent: int = 100
    shape: Shape | None = None
    jump_s: int = 0
    seed: int = 0

    @property
    def text(self) -> str:
        """Tell people what is broken."""
        if self.kind is Kind.DELAY:
            return f"delay of {DELAY_MS} to {DELAY_MS + JITTER_MS} ms {' '.join(self.hosts)}"
        if self.kind is Kind.CLOCK_JUMP:
            return f"clock jump of {self.jump_s:+} s {' '.join(self.hosts)}"
        if self.hosts:
            return f"{self.kind} {' '.join(self.hosts)}"
        what = (
            f"{self.loss_percent} % loss" if self.kind is Kind.LOSS else f"{self.shape} partition"
        )
        pairs = sorted({tuple(sorted(link)) for link in self.links})
        return f"{what} {' '.join('-'.join(pair) for pair in pairs)}"

    @property
    def count(self) -> int:
        """Faults in it: processes, or links cut or lossy in either direction."""
        return len(self.hosts) or len({frozenset(link) for link in self.links})


class Scenario(Struct, frozen=True):
    """A kind of fault at somebody."""

    kind: Kind
    scope: Scope

    @property
    def name(self) -> str:
        """As it is asked for: ``crash-brokers``."""
        return f"{self.kind}-{self.scope}"


ARTICLE = tuple(
    Scenario(kind, scope)
    for kind in (Kind.CRASH, Kind.HANG, Kind.LOSS, Kind.PARTITION)
    for scope in (Scope.BROKERS, Scope.CONTROLLERS, Scope.BOTH)
)
KNOWN = (
    *(
        Scenario(kind, scope)
        for kind in (Kind.CRASH, Kind.HANG)
        for scope in (Scope.MASTER, Scope.LEADER, Scope.LEADER_AND_MASTER)
    ),
    Scenario(Kind.CUT_AND_CRASH, Scope.MASTER),
    *(
        Scenario(Kind.POWER_CUT, scope)
        for scope in (Scope.BROKERS, Scope.CONTROLLERS, Scope.BOTH, Scope.MASTER)
    ),
    *(
        Scenario(kind, scope)
        for kind in (Kind.FULL_DISK, Kind.FROZEN_DISK, Kind.SLOW_DISK)
        for scope in (Scope.BROKERS, Scope.MASTER, Scope.LEADER)
    ),
    *(
        Scenario(kind, scope)
        for kind in (Kind.DELAY, Kind.CLOCK_JUMP)
        for scope in (Scope.BROKERS, Scope.CONTROLLERS, Scope.BOTH)
    ),
    *(Scenario(Kind.FLIPPED_BITS, scope) for scope in (Scope.BROKERS, Scope.MASTER)),
)
"""Beyond the article. Victims that are known, for times, where random ones would often miss who matters.
A master that wrote alone for a while and dies: by Java's default rule that loses messages. And disks:
a power cut takes all of its scope at the same moment, and bits flip on less than half of the brokers."""

BY_NAME = {one.name: one for one in (*ARTICLE, *KNOWN)}


def draw(scenario: Scenario, rng: Rng, members: Members) -> Fault | None:
    """Draw a round's fault; None while nobody is there whom it needs (a master, a leader)."""
    match scenario.kind:
        case Kind.POWER_CUT if scenario.scope is not Scope.MASTER:
            return Fault(scenario.kind, _hosts(scenario.scope, members))
        case (
            Kind.CRASH | Kind.HANG | Kind.POWER_CUT
            | Kind.FULL_DISK | Kind.FROZEN_DISK | Kind.SLOW_DISK
        ):  # fmt: skip
            hosts = _victims(scenario.scope, rng, members)
            return None if hosts is None else Fault(scenario.kind, hosts)
        case Kind.FLIPPED_BITS:
            rotten = _few(rng, members) if scenario.scope is Scope.BROKERS else (members.master,)
            named = tuple(one for one in rotten if one is not None)
            return Fault(scenario.kind, named, seed=rng.randint(0, 1 << 30)) if named else None
        case Kind.LOSS:
            hosts = _hosts(scenario.scope, members)
            lossy = _some(rng, hosts)
            links = {(a, b) for a in hosts for b in hosts if a != b and (a in lossy or b in lossy)}
            return Fault(Kind.LOSS, links=frozenset(links), loss_percent=LOSS_PERCENT)
        case Kind.DELAY:
            slow = _some(rng, _hosts(scenario.scope, members))
            return Fault(Kind.DELAY, tuple(sorted(slow)), seed=rng.randint(0, 1 << 30))
        case Kind.CLOCK_JUMP:
            wrong = tuple(sorted(_some(rng, _hosts(scenario.scope, members))))
            return Fault(Kind.CLOCK_JUMP, wrong, jump_s=JUMPS_S[rng.randint(0, len(JUMPS_S) - 1)])
        case Kind.CUT_AND_CRASH:
            master = members.master
            if master is None:
                return None
            others = [one for one in members.brokers if one != master]
            links = _both({(master, other) for other in others})
            return Fault(scenario.kind, (master,), frozenset(links))
        case Kind.PARTITION:
            return _partition(rng, _hosts(scenario.scope, members))
        case _:
            assert_never(scenario.kind)


def _hosts(scope: Scope, members: Members) -> tuple[str, ...]:
    match scope:
        case Scope.BROKERS:
            return members.brokers
        case Scope.CONTROLLERS:
            return members.controllers
        case _:
            return (*members.brokers, *members.controllers)


def _victims(scope: Scope, rng: Rng, members: Members) -> tuple[str, ...] | None:
    brokers, controllers = members.brokers, members.controllers
    match scope:
        case Scope.BROKERS:
            return _more_than_half(rng, brokers, len(brokers) - 1)
        case Scope.CONTROLLERS:
            return _more_than_half(rng, controllers, len(controllers))
        case Scope.BOTH:
            spared = brokers[rng.randint(0, len(brokers) - 1)]
            others = tuple(one for one in (*brokers, *controllers) if one != spared)
            return _more_than_half(rng, others, len(others), of=len(others) + 1)
        case Scope.MASTER | Scope.LEADER | Scope.LEADER_AND_MASTER:
            wanted = {
                Scope.MASTER: (members.master,),
                Scope.LEADER: (members.leader,),
                Scope.LEADER_AND_MASTER: (members.leader, members.master),
            }[scope]
            there = tuple(one for one in wanted if one is not None)
            return there if len(there) == len(wanted) else None
        case _:
            assert_never(scope)


def _some(rng: Rng, hosts: Sequence[str]) -> list[str]:
    """One of them at least, and not all."""
    return _chosen(rng, hosts, rng.randint(1, len(hosts) - 1))


def _few(rng: Rng, members: Members) -> tuple[str, ...]:
    """Some, and less than half: of each byte more replicas are whole than are not."""
    brokers = members.brokers
    return tuple(sorted(_chosen(rng, brokers, rng.randint(1, max(1, (len(brokers) - 1) // 2)))))


def _more_than_half(rng: Rng, hosts: Sequence[str], most: int, of: int = 0) -> tuple[str, ...]:
    least = min((of or len(hosts)) // 2 + 1, most)
    return tuple(sorted(_chosen(rng, hosts, rng.randint(least, most))))


def _partition(rng: Rng, hosts: Sequence[str]) -> Fault:
    shapes = [one for one in Shape if one is not Shape.RING or len(hosts) >= RING_MIN]
    shape = shapes[rng.randint(0, len(shapes) - 1)]
    mixed = _chosen(rng, hosts, len(hosts))
    at = rng.randint(1, len(mixed) - 1)
    match shape:
        case Shape.SYMMETRIC:
            links = _both({(a, b) for a in mixed[:at] for b in mixed[at:]})
        case Shape.ONE_WAY:
            links = {(a, b) for a in mixed[:at] for b in mixed[at:]}
        case Shape.BRIDGE:
            _, *rest = mixed  # the bridge hears everybody
            half = max(1, len(rest) // 2)
            links = _both({(a, b) for a in rest[:half] for b in rest[half:]})
        case Shape.RING:
            links = _ring(mixed)
        case _:
            assert_never(shape)
    return Fault(Kind.PARTITION, links=frozenset(links), shape=shape)


def _ring(hosts: Sequence[str]) -> set[Link]:
    """Each hears a majority, its nearest in the ring, and no two the same one."""
    kept: set[Link] = set()
    size = len(hosts)
    for step in range(1, size // 4 + 1):
        kept |= _both({(hosts[i], hosts[(i + step) % size]) for i in range(size)})
    if size // 2 > 2 * (size // 4):
        kept |= _both({(hosts[i], hosts[(i + size // 2) % size]) for i in range(size)})
    return {(a, b) for a in hosts for b in hosts if a != b and (a, b) not in kept}


def _both(links: set[Link]) -> set[Link]:
    return links | {(b, a) for a, b in links}


def _chosen(rng: Rng, items: Sequence[_T], count: int) -> list[_T]:
    """So many of them, in any order."""
    left = list(items)
    return [left.pop(rng.randint(0, len(left) - 1)) for _ in range(count)]
