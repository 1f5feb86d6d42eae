"""#11045: the late close of a connection that a broker has left."""

from __future__ import annotations

from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Scenario
from tests.reproduce.stage import Stage, within

PATIENCE_S = 2.0


class Seen(NamedTuple):
    """(master, epoch) before and after the close."""

    before: tuple[int | None, int]
    after: tuple[int | None, int]


def play(stage: Stage) -> Seen:
    """The master goes on over a second connection, and the first one ends."""
    master, _ = stage.replicas(2)
    before = stage.seen()
    second = master.again()
    second.beat(epoch=1)
    master.die()
    within(PATIENCE_S, lambda: stage.seen().master_epoch != before.master_epoch)
    after = stage.seen()
    second.die()
    return Seen((before.master_id, before.master_epoch), (after.master_id, after.master_epoch))


def judge(seen: Seen) -> Finding:
    """Nobody has died, so nothing may change."""
    if seen.before != (1, 1):
        return unclear(f"the set began with master and epoch {seen.before}")
    if seen.after == seen.before:
        return right("a connection that the master had left was closed; it stayed master")
    master, epoch = seen.after
    return bug(
        "a connection that the master had left was closed: the master, which went on over a newer"
        f" one, lost its office to {master} in epoch {epoch}"
    )


SCENARIO = Scenario(
    1, "the late close of an old connection replaces a living master", "#11045", play, judge
)
