"""#6586: controllers that have lost their data, and a broker that has lived under others."""

from __future__ import annotations

from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Scenario
from tests.reproduce.stage import Stage

KNOWN = 7


class Seen(NamedTuple):
    """The epoch of the election; the broker's epoch file ends with 7."""

    epoch: int


def play(stage: Stage) -> Seen:
    """A broker registers, says what it has, and is elected."""
    broker = stage.broker(1)
    broker.register()
    broker.beat(epoch=KNOWN, maxOffset=1_000)
    broker.elect()
    return Seen(stage.seen().master_epoch)


def judge(seen: Seen) -> Finding:
    """Brokers ignore an epoch that is not above theirs."""
    said = f"a broker whose epoch file ends with {KNOWN} was elected in epoch {seen.epoch}"
    if seen.epoch > KNOWN:
        return right(said)
    return (
        bug(f"{said}, which it ignores: the set stays without master")
        if seen.epoch
        else unclear(said)
    )


SCENARIO = Scenario(
    7,
    "controllers that lost their data start at epoch 1, which brokers ignore",
    "#6586",
    play,
    judge,
)
