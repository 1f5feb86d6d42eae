"""Traps after which nothing is broken that a group needs, and in which a leader could still hang on.

A majority is healthy and has space all along, so ``progress`` asks that proposals are committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rmqha.controller.raft.node import Node
from rmqha.sim.acts import CALM, Act, Step
from rmqha.sim.liveness import QUIET_MS
from rmqha.sim.moments import Stage, is_confirmed, leads
from rmqha.sim.steady import ASK_EVERY_MS

NOTICED_MS = 1500.0
"""So long a node may write until it has used up what was reserved before its disk was full."""

BACK_MS = 600.0


def _deafened(stage: Stage, it: str) -> Iterable[Step]:
    """What it sends arrives, and clients reach it: only the other controllers do not."""
    return [Step(0, "deafen", (it, ASK_EVERY_MS, int(QUIET_MS)))]


def _fill_first(stage: Stage, it: str) -> Iterable[Step]:
    """Of rivals with equal logs it is let go first."""
    return [Step(0, "full disk", (min(stage.others(it)),))]


def _fill_last(stage: Stage, it: str) -> Iterable[Step]:
    """Of successors with equal logs it is taken first."""
    return [Step(0, "full disk", (max(stage.others(it)),))]


def _without_space(stage: Stage, it: str) -> list[str]:
    return [host for host, node in stage.nodes(it) if node.no_space]


def leads_full(stage: Stage, it: str, node: Node) -> bool:
    """It leads, and another node knows that it has no space."""
    return leads(stage, it, node) and bool(_without_space(stage, it))


def _transferred_to_full(stage: Stage, it: str) -> Iterable[Step]:
    """The successor says no word, and reads come all along that need a round each."""
    (full, *_) = _without_space(stage, it)
    yield Step(0, "transfer leadership", (it, f"n{full[1:]}"))
    yield Step(0, "steady requests", (it, ASK_EVERY_MS, int(QUIET_MS)))


def _leader_full_too(stage: Stage, it: str) -> Iterable[Step]:
    return [Step(0, "full disk", (it,))]


def _full_one_stands(stage: Stage, it: str) -> Iterable[Step]:
    """All others are late for the election; the leader before comes back as a follower."""
    (full, *_) = _without_space(stage, it)
    yield Step(0, "kill controller", (it,))
    for other in stage.others(it):
        if other != full:
            yield Step(0, "pause", (other, 200))
    yield Step(BACK_MS, "restart", (it,))


STANDSTILLS: dict[str, tuple[Act, ...]] = {
    "deaf leader": (CALM, Act(is_confirmed, _deafened, quiet_ms=QUIET_MS)),
    "transfer to a full one": (
        CALM,
        Act(leads, _fill_last, quiet_ms=NOTICED_MS),
        Act(leads_full, _transferred_to_full, quiet_ms=QUIET_MS),
    ),
    "two disks full": (
        CALM,
        Act(leads, _fill_last, quiet_ms=NOTICED_MS),
        Act(leads_full, _leader_full_too, quiet_ms=NOTICED_MS + QUIET_MS),
    ),
    "full one elected": (
        CALM,
        Act(leads, _fill_first, quiet_ms=NOTICED_MS),
        Act(leads_full, _full_one_stands, quiet_ms=BACK_MS + QUIET_MS),
    ),
}

STANDSTILL_WEIGHTS = {
    3: Counter(
        {"deaf leader": 2, "transfer to a full one": 3, "two disks full": 1, "full one elected": 2}
    ),
    5: Counter(
        {"deaf leader": 2, "transfer to a full one": 2, "two disks full": 4, "full one elected": 1}
    ),
}
"""By the size of a group. Of three with two full disks there is no majority with space."""
