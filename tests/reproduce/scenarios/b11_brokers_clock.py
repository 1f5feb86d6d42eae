"""#8380: a broker whose clock is an hour ahead asks JRaft's controller for its master."""

from __future__ import annotations

import time
from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Group, Scenario
from tests.reproduce.stage import Stage

AHEAD_MS = 3_600_000


class Seen(NamedTuple):
    """The master's id in the answer to 1003, with a right clock and with one that is ahead."""

    in_time: str | None
    ahead: str | None


def play(stage: Stage) -> Seen:
    """The slave registers twice; the master is alive both times."""
    _, slave = stage.replicas(2)
    in_time = slave.enter().ext.get("masterBrokerId")
    ahead = slave.enter(invokeTime=int(time.time() * 1000) + AHEAD_MS).ext.get("masterBrokerId")
    return Seen(in_time, ahead)


def judge(seen: Seen) -> Finding:
    """A master is alive by the controller's clock."""
    if seen.in_time != "1":
        return unclear(f"a slave with a right clock was told {seen.in_time}")
    if seen.ahead == "1":
        return right("a slave whose clock is an hour ahead was told its master")
    return bug("a slave whose clock is an hour ahead was told that there is no master, which lives")


SCENARIO = Scenario(
    11, "JRaft: a master is dead when the asker's clock is ahead", "#8380", play, judge,
    Group(java="jraft"),
)  # fmt: skip
