"""#7414, #7704: the next id of a set whose ids have a gap."""

from __future__ import annotations

from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Scenario
from tests.reproduce.stage import CLUSTER, GET_NEXT_BROKER_ID, Stage

TAKEN = (1, 3)
REFUSED = 2014


class Seen(NamedTuple):
    """The id that a new broker is told, and the code when it takes it."""

    told: int
    code: int


def play(stage: Stage) -> Seen:
    """Brokers 1 and 3 are there, and one more asks which id is free."""
    for number in TAKEN:
        stage.broker(number).register()
    ext: dict[str, object] = {"clusterName": CLUSTER, "brokerName": stage.name}
    told = int(stage.ask(GET_NEXT_BROKER_ID, ext).ext["nextBrokerId"])
    newcomer = stage.broker(told)
    newcomer.address = "127.0.0.1:77"
    return Seen(told, newcomer.apply())


def judge(seen: Seen) -> Finding:
    """What is told to be free is free."""
    if seen.told not in TAKEN and seen.code == 0:
        return right(f"brokers 1 and 3 were there; a new one was told {seen.told}, and got it")
    if seen.told in TAKEN and seen.code == REFUSED:
        return bug(
            f"brokers 1 and 3 were there; a new one was told to take {seen.told}, and refused (2014)."
            " It asks again and is told the same, for ever"
        )
    return unclear(f"told {seen.told}, answered {seen.code}")


SCENARIO = Scenario(9, "the next id is one that somebody has", "#7414, #7704", play, judge)
