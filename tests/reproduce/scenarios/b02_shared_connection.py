"""Several brokers of one process share a connection, and it ends."""

from __future__ import annotations

from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Scenario
from tests.reproduce.stage import Stage, within

PATIENCE_S = 2.0


class Seen(NamedTuple):
    """Who counts as alive two seconds after the process of 2 and 3 ended."""

    alive: dict[int, bool]


def play(stage: Stage) -> Seen:
    """Brokers 2 and 3 beat over one connection, as a BrokerContainer's do."""
    for number in (1, 2, 3):
        stage.broker(number).register()
    stage.broker(1).beat()
    process = stage.broker(2)
    process.beat()
    process.beat(brokerId=3, brokerAddr="127.0.0.1:3")
    process.die()
    within(PATIENCE_S, lambda: not any(stage.alive()[one] for one in (2, 3)))
    return Seen(stage.alive())


def judge(seen: Seen) -> Finding:
    """Both have gone with their process."""
    if sorted(seen.alive) != [1, 2, 3] or not seen.alive[1]:
        return unclear(f"of the three brokers these were alive: {seen.alive}")
    gone = [one for one in (2, 3) if not seen.alive[one]]
    if gone == [2, 3]:
        return right("a process with two brokers ended; both were dead at once")
    if gone:
        return bug(
            f"a process with two brokers ended; only broker {gone[0]} was dead, the other alive"
        )
    return unclear("a process with two brokers ended, and both stayed alive")


SCENARIO = Scenario(
    2, "the end of a shared connection counts for one of its brokers", "", play, judge
)
