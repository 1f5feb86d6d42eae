"""A set whose only replica dies."""

from __future__ import annotations

from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Scenario
from tests.reproduce.stage import Stage, within

PATIENCE_S = 5.0
SETTLED_S = 1.5


class Seen(NamedTuple):
    """The epoch before, and after the master was lost; None when it never was."""

    before: int
    after: int | None


def play(stage: Stage) -> Seen:
    """It dies, and nobody can follow."""
    (master,) = stage.replicas(1)
    before = stage.seen().master_epoch
    master.die()
    if not within(PATIENCE_S, lambda: stage.seen().master_id is None):
        return Seen(before, None)
    # Each try is a commit; no more come once the epoch has stood still.
    within(SETTLED_S, lambda: stage.seen().master_epoch > before + 2)
    return Seen(before, stage.seen().master_epoch)


def judge(seen: Seen) -> Finding:
    """One loss, one epoch."""
    if seen.after is None or seen.after <= seen.before:
        return unclear(f"the epoch was {seen.before}, then {seen.after}")
    spent = seen.after - seen.before
    if spent == 1:
        return right("the only replica died: the master was lost, in one epoch")
    return bug(f"the only replica died: the master was lost {spent} times, an epoch each")


SCENARIO = Scenario(12, "a lost master is lost again with each try", "", play, judge)
