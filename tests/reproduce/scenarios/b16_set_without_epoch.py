"""#6342: the SyncStateSet changes, and its epoch does not."""

from __future__ import annotations

from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Scenario
from tests.reproduce.stage import CLEAN_BROKER_DATA, CLUSTER, Stage, within

PATIENCE_S = 5.0


class Seen(NamedTuple):
    """(SyncStateSet, its epoch) before and after a dead member was cleaned."""

    before: tuple[list[int], int]
    after: tuple[list[int], int]


def play(stage: Stage) -> Seen:
    """A slave dies and is cleaned away, as the manual says."""
    _, slave = stage.replicas(2)
    before = stage.seen()
    slave.die()
    within(PATIENCE_S, lambda: not stage.alive()[2])
    stage.ask(
        CLEAN_BROKER_DATA,
        {
            "clusterName": CLUSTER, "brokerName": stage.name, "brokerControllerIdsToClean": "2",
            "isCleanLivingBroker": False,
        },
    )  # fmt: skip
    after = stage.seen()
    return Seen(
        (sorted(before.sync_state_set), before.sync_state_set_epoch),
        (sorted(after.sync_state_set), after.sync_state_set_epoch),
    )


def judge(seen: Seen) -> Finding:
    """One epoch, one set: a broker takes no set whose epoch it knows."""
    if seen.before[0] != [1, 2] or seen.after[0] != [1]:
        return unclear(f"the set was {seen.before}, then {seen.after}")
    change = f"a dead slave was cleaned: the SyncStateSet went from [1, 2] to [1], its epoch from {seen.before[1]}"
    if seen.after[1] > seen.before[1]:
        return right(f"{change} to {seen.after[1]}")
    return bug(f"{change} to {seen.after[1]}, so that the master keeps the old set")


SCENARIO = Scenario(16, "cleaning changes the SyncStateSet without its epoch", "#6342", play, judge)
