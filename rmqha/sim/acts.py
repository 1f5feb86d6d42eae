"""What traps are made of: moments that are waited for, and what is done then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from rmqha.sim.moments import Moment, Stage, leads
from rmqha.sim.story import Args


class Step(NamedTuple):
    """A fault, so many milliseconds after its moment."""

    after_ms: float
    kind: str
    args: Args


Plan = Callable[[Stage, str], Iterable[Step]]


class Act(NamedTuple):
    """What is waited for, and what is done then.

    Attributes:
        after_ms: so long after the act before at the earliest.
        quiet_ms: so long nothing is done afterwards but by the same trap.
    """

    moment: Moment
    plan: Plan
    after_ms: float = 0.0
    quiet_ms: float = 0.0


def _calm(stage: Stage, it: str) -> Iterable[Step]:
    """All is well again, so that what a trap waits for has a chance."""
    hosts = stage.cluster.controller_hosts
    yield from (Step(0, "weather", (0,)), Step(0, "heal", ()), Step(0, "mend disks", (*hosts,)))
    yield Step(0, "restart", (*hosts,))


CALM = Act(leads, _calm, quiet_ms=1500.0)
"""The first act of a trap that other faults would spoil."""
