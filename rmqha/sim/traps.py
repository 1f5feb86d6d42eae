"""What is done when a moment has come: one of the plain faults, or the acts of a trap.

A trap lays itself: each of its acts brings the cluster nearer to what the next one waits for.
Nothing is done that could not happen by chance.
"""

from __future__ import annotations

from collections.abc import Iterable

from rmqha.sim.acts import CALM, Act, Step
from rmqha.sim.cluster import CLOCK_DRIFT
from rmqha.sim.liveness import QUIET_MS
from rmqha.sim.moments import (
    MOMENTS,
    Stage,
    follows_alone,
    hands_over,
    has_compacted,
    installs,
    is_ahead,
    is_confirmed,
    is_elected_with_less,
    is_outgrown,
    leads,
    leads_equals,
    longer,
    readmits,
    stands_with_less,
    votes_against_a_leader,
    writes_in_parts,
)
from rmqha.sim.standstills import STANDSTILLS


def anything(stage: Stage, it: str) -> Iterable[Step]:
    """One of the plain faults, for the node itself or for the leader, and maybe calm besides."""
    rng = stage.rng
    leader = stage.leader()
    victim = leader if leader is not None and rng.random() < 0.5 else it
    if rng.random() < 0.3:
        yield Step(0, "heal", ())
    kind = rng.choice(("kill controller", "power cut controller", "mute leader", "cut off host",
                       "pause", "hung sync", "deaf", "late"))  # fmt: skip
    if kind == "pause":
        yield Step(0, kind, (victim, rng.choice((120, 200, 500))))
    elif kind == "hung sync":
        yield Step(0, kind, (victim, rng.choice((400, 1500)), rng.randint(0, 1)))
    elif kind == "deaf":
        yield from _one_way(victim, stage.others(victim))
    elif kind == "late":
        yield from _late(stage.others(victim), victim, rng.choice((150, 250)))
    else:
        yield Step(0, kind, (victim,))


def _one_way(source: str, targets: Iterable[str]) -> Iterable[Step]:
    return [Step(0, "cut one way", (source, target)) for target in targets]


def _late(sources: Iterable[str], target: str, ms: int) -> Iterable[Step]:
    return [Step(0, "lag", (source, target, ms)) for source in sources]


def _extreme_clocks(stage: Stage, it: str) -> Iterable[Step]:
    yield Step(0, "clock rate", (it, 1 - CLOCK_DRIFT))
    for other in stage.others(it):
        yield Step(0, "clock rate", (other, 1 + CLOCK_DRIFT))


def _mute(stage: Stage, it: str) -> Iterable[Step]:
    return [Step(0, "mute leader", (it,))]


def _late_answers(stage: Stage, it: str) -> Iterable[Step]:
    return _late(stage.others(it), it, stage.rng.choice((120, 200, 250)))


def _unheard(stage: Stage, it: str) -> Iterable[Step]:
    return _one_way(it, stage.others(it))


def _fed_alone(stage: Stage, it: str) -> Iterable[Step]:
    """One follower gets entries long before the others, and is slow to make snapshots."""
    one, *others = stage.rng.sample(stage.others(it), len(stage.others(it)))
    yield Step(0, "slow snapshots", (one, 3000))
    yield from [Step(0, "lag", (it, other, 80)) for other in others]


def _both_die(stage: Stage, it: str) -> Iterable[Step]:
    """What only these two have nobody else will get; one comes again."""
    leader = str(stage.leader())
    yield from (Step(0, "cut off host", (leader,)), Step(0, "kill controller", (leader,)))
    yield from (Step(0, "kill controller", (it,)), Step(0, "slow snapshots", (it, 0)))
    yield Step(90, "restart", (it,))


def _far_from_the_longer(stage: Stage, it: str) -> Iterable[Step]:
    node = stage.node(it)
    return (
        [] if node is None else [Step(0, "lag", (it, one, 10)) for one in longer(stage, it, node)]
    )


def _heard_by_the_longer(stage: Stage, it: str) -> Iterable[Step]:
    """Only by that one, who must be asked anew where the logs agree, and is slow to install."""
    node = stage.node(it)
    chosen = [] if node is None else longer(stage, it, node)[:1]
    for one in chosen:
        yield Step(0, "reset connections", (it, one))
        yield Step(0, "slow snapshots", (one, 2000))
    yield from _one_way(it, [one for one in stage.others(it) if one not in chosen])


def _leader_dies(stage: Stage, it: str) -> Iterable[Step]:
    leader = stage.leader()
    return [] if leader in (None, it) else [Step(0, "kill controller", (str(leader),))]


def _replaced(stage: Stage, it: str) -> Iterable[Step]:
    """The newest leader dies, and who was apart comes back."""
    return (Step(0, "heal", ()), Step(0, "kill controller", (it,)))


def _apart(stage: Stage, it: str) -> Iterable[Step]:
    return [Step(0, "cut off host", (it,))]


def _forgets_its_vote(stage: Stage, it: str) -> Iterable[Step]:
    """The vote is late, the voter's machine is replaced, and the old leader finds the new one."""
    node, leader = stage.node(it), stage.leader()
    candidate = f"c{str(node.vote)[1:]}" if node is not None else it
    yield Step(0, "lag", (it, candidate, 250))
    yield from (Step(6, "heal", ()), Step(6, "cut one way", (candidate, str(leader))))
    yield from (Step(6, "power cut controller", (it,)), Step(6, "wipe store", (it,)))
    yield Step(7, "restart", (it,))


def _torn(stage: Stage, it: str) -> Iterable[Step]:
    """Of what is on the way a part arrives; the next start finds it."""
    return (Step(0, "power cut controller", (it,)), Step(40, "restart", (it,)))


def _asked_to_hand_over(stage: Stage, it: str) -> Iterable[Step]:
    target = stage.rng.choice(stage.others(it))
    return [Step(0, "transfer leadership", (it, f"n{target[1:]}"))]


def _follower_replaced(stage: Stage, it: str) -> Iterable[Step]:
    """Another machine takes a follower's place, with an empty disk."""
    other = stage.rng.choice(stage.others(it))
    return (Step(0, "wipe store", (other,)), Step(5, "restart", (other,)))


def _two_down_and_a_bridge(stage: Stage, it: str) -> Iterable[Step]:
    """All logs are equal, and none but the bridge can be elected, whose id is the highest."""
    dead = (it, stage.rng.choice(stage.others(it)))
    *ends, bridge = sorted(set(stage.others(it)) - {*dead})
    yield from [Step(0, "kill controller", (one,)) for one in dead]
    yield Step(0, "bridge", (ends[0], bridge, ends[1]))


TRAPS: dict[str, tuple[Act, ...]] = {
    "lease to its end": (Act(is_confirmed, _extreme_clocks), Act(is_confirmed, _mute, 400.0)),
    "late answers": (Act(is_confirmed, _late_answers), Act(leads, _unheard, 280.0)),
    "longer log": (Act(is_ahead, _mute), Act(is_outgrown, _replaced)),
    "forgotten vote": (
        Act(is_confirmed, _apart),
        Act(votes_against_a_leader, _forgets_its_vote),
    ),
}

LARGE: dict[str, tuple[Act, ...]] = {
    "late install": (
        Act(is_confirmed, _fed_alone),
        Act(follows_alone, _both_die),
        Act(stands_with_less, _far_from_the_longer),
        Act(is_elected_with_less, _heard_by_the_longer),
        Act(installs, _leader_dies),
    ),
}
"""Two of the nodes die on the way, so a group of five is needed."""

RARE: dict[str, tuple[Act, ...]] = {
    "torn write": (Act(writes_in_parts, _torn),),
    "handing over": (CALM, Act(leads, _asked_to_hand_over), Act(hands_over, anything)),
    "readmitting": (CALM, Act(leads, _follower_replaced), Act(readmits, anything)),
    "installing": (CALM, Act(has_compacted, _follower_replaced), Act(installs, anything)),
    "longer log": (CALM, *TRAPS["longer log"]),
    "late install": (CALM, *LARGE["late install"]),
    "two down and a bridge": (
        CALM,
        Act(leads_equals, _two_down_and_a_bridge, quiet_ms=QUIET_MS),
    ),
}
"""What hardly ever happens by itself is brought about here, instead of waited for.

The last two need a group of five.
"""

AMBUSHES: dict[str, tuple[Act, ...]] = {
    **{name: (Act(moment, anything),) for name, moment in MOMENTS.items()},
    **TRAPS,
    **LARGE,
}

NAMES = tuple(dict.fromkeys((*AMBUSHES, *RARE, *STANDSTILLS)))
"""Of all, as they are counted."""
