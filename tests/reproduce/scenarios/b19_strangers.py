"""#5096, #10956: a stranger who reaches the controllers' port, where users are set up."""

from __future__ import annotations

from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Group, Scenario
from tests.reproduce.stage import CLEAN_BROKER_DATA, CLUSTER, Stage

NO_PERMISSION = 16


class Seen(NamedTuple):
    """The answer's code, and whether the set was still there."""

    code: int
    there: bool


def play(stage: Stage) -> Seen:
    """It has no name, no signature, and cleans the whole set."""
    stage.replicas(2)
    ext: dict[str, object] = {
        "clusterName": CLUSTER, "brokerName": stage.name, "isCleanLivingBroker": True,
    }  # fmt: skip
    code = stage.ask(CLEAN_BROKER_DATA, ext).code
    return Seen(code, stage.info() is not None)


def judge(seen: Seen) -> Finding:
    """The set is none of its business."""
    if seen.code == NO_PERMISSION and seen.there:
        return right("a stranger wanted to clean a living set: refused (16), the set is there")
    if seen.code == 0 and not seen.there:
        return bug("a stranger, without a name or a signature, cleaned a living set: it is gone")
    return unclear(f"answered {seen.code}, the set is {'there' if seen.there else 'gone'}")


SCENARIO = Scenario(
    19, "any stranger may clean a living set, also where users are set up", "#5096, #10956",
    play, judge,
    Group(
        settings=(
            ("initAuthenticationUser", '{"username":"operator","password":"operator-secret"}'),
        )
    ),
)  # fmt: skip
