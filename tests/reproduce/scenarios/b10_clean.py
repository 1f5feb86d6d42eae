"""#10861: ``mqadmin cleanBrokerMetadata`` of one living broker."""

from __future__ import annotations

from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Scenario
from tests.reproduce.stage import CLEAN_BROKER_DATA, CLUSTER, Stage


class Seen(NamedTuple):
    """The answer's code, and which ids were left; None when the set is gone."""

    code: int
    left: list[int] | None


def play(stage: Stage) -> Seen:
    """Three replicas are well; an operator cleans the third, alive as it is."""
    stage.replicas(3)
    ext: dict[str, object] = {
        "clusterName": CLUSTER, "brokerName": stage.name, "brokerControllerIdsToClean": "3",
        "isCleanLivingBroker": True,
    }  # fmt: skip
    code = stage.ask(CLEAN_BROKER_DATA, ext).code
    return Seen(code, None if stage.info() is None else sorted(stage.alive()))


def judge(seen: Seen) -> Finding:
    """The others stay."""
    if seen.code != 0:
        return unclear(f"cleaning was answered {seen.code}")
    if seen.left == [1, 2]:
        return right("of three replicas one was cleaned; the other two are there")
    if not seen.left:
        return bug("of three replicas one was to be cleaned: the whole set is gone, master and all")
    return unclear(f"these were left: {seen.left}")


SCENARIO = Scenario(10, "cleaning one living replica drops the whole set", "#10861", play, judge)
