"""#5712: the leader of three controllers and a set's master end at the same moment."""

from __future__ import annotations

import time
from typing import NamedTuple

from rmqha.testing.real import wire
from tests.reproduce.finding import Finding, bug, right
from tests.reproduce.scenario import Group, Scenario
from tests.reproduce.stage import Stage

SHORT_S = 1.5
PATIENCE_S = 30.0


class Seen(NamedTuple):
    """Seconds until a controller named the slave as master; None when none did."""

    after_s: float | None


def play(stage: Stage) -> Seen:
    """One machine had both. The slave beats to all controllers, ten times a second."""
    master, slave = stage.replicas(2)
    leader = stage.controllers.wait_for_agreement()
    others = [stage.controllers.addresses[one] for one in stage.followers()]
    masters = [master, *(stage.broker_at(one, 1) for one in others)]
    slaves = [stage.broker_at(one, 2) for one in others]
    for one in (*masters, slave, *slaves):
        one.beat(epoch=1)
    stage.controllers.kill(leader)
    for one in masters:
        one.die()
    begun = time.monotonic()
    while (passed_s := time.monotonic() - begun) < PATIENCE_S:
        for one in slaves:
            one.beat(epoch=1)
        if any(_names_slave(address, stage.name) for address in others):
            return Seen(round(passed_s, 2))
        time.sleep(0.05)
    return Seen(None)


def _names_slave(address: str, name: str) -> bool:
    answer = wire.invoke(address, wire.GET_REPLICA_INFO, {"brokerName": name})
    return answer.code == wire.SUCCESS and answer.ext.get("masterBrokerId") == "2"


def judge(seen: Seen) -> Finding:
    """One outage, not one after the other."""
    what = "the controllers' leader and a set's master were killed together:"
    if seen.after_s is None:
        return bug(f"{what} no other master in {PATIENCE_S:.0f} s")
    said = f"{what} another master {seen.after_s:.1f} s later"
    return right(said) if seen.after_s < SHORT_S else bug(said)


SCENARIO = Scenario(
    26, "leader and master die together: one outage after the other", "#5712", play, judge,
    Group(count=3),
)  # fmt: skip
