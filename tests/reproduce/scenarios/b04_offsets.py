"""#10578: logs whose lengths are more than 2 GiB apart."""

from __future__ import annotations

from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Scenario
from tests.reproduce.stage import Stage, within

SHORT, LONG = 10, 3 << 30
PATIENCE_S = 5.0


class Seen(NamedTuple):
    """Who followed the master: 2 has 10 bytes, 3 has 3 GiB; None when nobody did."""

    elected: int | None


def play(stage: Stage) -> Seen:
    """The master dies; both others are in sync and alive."""
    master, short, long = stage.replicas(3)
    short.beat(epoch=1, maxOffset=SHORT)
    long.beat(epoch=1, maxOffset=LONG)
    master.die()
    return Seen(within(PATIENCE_S, lambda: _other(stage.seen().master_id)))


def _other(master: int | None) -> int | None:
    return None if master == 1 else master


def judge(seen: Seen) -> Finding:
    """The longer log wins."""
    if seen.elected == 3:
        return right("of two replicas with 10 bytes and 3 GiB the one with 3 GiB became master")
    if seen.elected == 2:
        return bug("of two replicas with 10 bytes and 3 GiB the one with 10 bytes became master")
    return unclear(f"the master died, and {seen.elected} followed")


SCENARIO = Scenario(
    4, "the replica with less data wins when logs are more than 2 GiB apart", "#10578", play, judge
)
