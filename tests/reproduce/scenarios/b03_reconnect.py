"""A broker closes its connection after a call that took 3 s, and opens another at once."""

from __future__ import annotations

import time
from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Scenario
from tests.reproduce.stage import Stage, within

PAUSE_S = 0.003
"""Of a broker that connects again at once; our grace is 5 ms (``brokerCloseGraceMs``)."""
PATIENCE_S = 2.0


class Seen(NamedTuple):
    """(master, epoch) before and after."""

    before: tuple[int | None, int]
    after: tuple[int | None, int]


def play(stage: Stage) -> Seen:
    """The master's connection ends; its heartbeat comes over the next one 3 ms later."""
    master, _ = stage.replicas(2)
    before = stage.seen()
    second = master.again()
    master.die()
    time.sleep(PAUSE_S)
    second.beat(epoch=1)
    within(PATIENCE_S, lambda: stage.seen().master_epoch != before.master_epoch)
    after = stage.seen()
    second.die()
    return Seen((before.master_id, before.master_epoch), (after.master_id, after.master_epoch))


def judge(seen: Seen) -> Finding:
    """Nobody has died, so nothing may change."""
    if seen.before != (1, 1):
        return unclear(f"the set began with master and epoch {seen.before}")
    if seen.after == seen.before:
        return right("the master's connection was reset and made again; it stayed master")
    master, epoch = seen.after
    return bug(
        "the master's connection was reset and made again in 3 ms: all the same it lost its"
        f" office to {master} in epoch {epoch}"
    )


SCENARIO = Scenario(3, "a reset connection replaces a living master", "#4800", play, judge)
