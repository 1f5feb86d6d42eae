"""#4808, #5745: a master that comes from another address."""

from __future__ import annotations

from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Scenario
from tests.reproduce.stage import Stage

OLD, NEW = "127.0.0.1:1", "127.0.0.1:1001"


class Seen(NamedTuple):
    """The master's address in the answer to 1003."""

    told: str | None


def play(stage: Stage) -> Seen:
    """It registers again, with its new address."""
    (master,) = stage.replicas(1)
    return Seen(master.enter(brokerAddress=NEW).ext.get("masterAddress"))


def judge(seen: Seen) -> Finding:
    """It has just said where it is."""
    if seen.told == NEW:
        return right("a master registered from a new address, and was told that")
    if seen.told == OLD:
        return bug("a master registered from a new address, and was told its old one")
    return unclear(f"the answer named {seen.told}")


SCENARIO = Scenario(23, "a master that moved is told its old address", "#4808, #5745", play, judge)
