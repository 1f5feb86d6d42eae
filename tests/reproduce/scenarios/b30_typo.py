"""``mqadmin cleanBrokerMetadata`` with a mistyped cluster name."""

from __future__ import annotations

from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Scenario
from tests.reproduce.stage import CLEAN_BROKER_DATA, Stage

REFUSED = 2009


class Seen(NamedTuple):
    """The answer's code, and which ids were left."""

    code: int
    left: list[int]


def play(stage: Stage) -> Seen:
    """Two replicas are well; 2 is to be cleaned unless it is alive, in a cluster that is none."""
    stage.replicas(2)
    ext: dict[str, object] = {
        "clusterName": "DefaultClutser", "brokerName": stage.name,
        "brokerControllerIdsToClean": "2", "isCleanLivingBroker": False,
    }  # fmt: skip
    return Seen(stage.ask(CLEAN_BROKER_DATA, ext).code, sorted(stage.alive()))


def judge(seen: Seen) -> Finding:
    """It lives, so it stays."""
    if seen.left == [1, 2] and seen.code == REFUSED:
        return right(
            "a living broker was to be cleaned, with a typo in the cluster's name: refused"
        )
    if seen.left == [1] and seen.code == 0:
        return bug(
            "a living broker was cleaned, which was to happen to dead ones only: the cluster's name"
            " had a typo"
        )
    return unclear(f"answered {seen.code}, left {seen.left}")


SCENARIO = Scenario(30, "a typo in the cluster's name cleans a living broker", "", play, judge)
