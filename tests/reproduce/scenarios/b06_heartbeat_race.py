"""A broker that has come back asks for an election before its heartbeat is there."""

from __future__ import annotations

from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Scenario
from tests.reproduce.stage import Stage, within

PATIENCE_S = 5.0
FAILED = 2012


class Seen(NamedTuple):
    """Whether the set had lost its master, and the code of the answer to 1002."""

    lost: bool
    code: int


def play(stage: Stage) -> Seen:
    """The only replica ends and comes back."""
    (master,) = stage.replicas(1)
    master.die()
    lost = within(PATIENCE_S, lambda: stage.seen().master_id is None)
    back = master.again()
    code = back.elect().code
    back.die()
    return Seen(bool(lost), code)


def judge(seen: Seen) -> Finding:
    """Who asks is alive."""
    if not seen.lost:
        return unclear("the set never lost its master")
    if seen.code == 0:
        return right("the set's only replica came back and asked: it was master at once")
    if seen.code == FAILED:
        return bug(
            "the set's only replica came back and asked: refused (2012), for its heartbeat was not"
            " there yet. It asks again 5 s later"
        )
    return unclear(f"the answer was {seen.code}")


SCENARIO = Scenario(
    6, "a broker that asks before its heartbeat has come is refused", "", play, judge
)
