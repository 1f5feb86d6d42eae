"""#9682: the controller has restarted, and the master's heartbeat comes later than its slave's."""

from __future__ import annotations

import time
from typing import NamedTuple

from tests.reproduce.door import Door
from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Group, Scenario
from tests.reproduce.stage import Broker, Stage

MASTER_COMES_S = 8.0
"""It was busy, or its name server was; its connection to the controller is new."""


class Seen(NamedTuple):
    """(master, epoch) before the restart, and when the master is back."""

    before: tuple[int | None, int]
    after: tuple[int | None, int]


def play(stage: Stage) -> Seen:
    """Only the slave is heard for eight seconds."""
    master, slave = stage.replicas(2)
    with Door() as door:
        # Whoever looks whether the master lives finds that it does.
        master.enter(brokerAddress=door.address)
        return _restarted(stage, master, slave)


def _restarted(stage: Stage, master: Broker, slave: Broker) -> Seen:
    before = stage.seen()
    stage.controllers.restart(0)
    stage.controllers.wait_for_leader()
    end = time.monotonic() + MASTER_COMES_S
    slave.connection.close()
    while time.monotonic() < end and stage.seen().master_epoch == before.master_epoch:
        slave.beat(epoch=1)
        time.sleep(0.1)
    master.connection.close()
    master.beat(epoch=1)
    after = stage.seen()
    return Seen((before.master_id, before.master_epoch), (after.master_id, after.master_epoch))


def judge(seen: Seen) -> Finding:
    """It lives, and it is master."""
    if seen.before != (1, 1):
        return unclear(f"the set began with master and epoch {seen.before}")
    if seen.after == seen.before:
        return right(
            "the controller restarted, and heard the slave 8 s before the master: it stayed master"
        )
    return bug(
        "the controller restarted, and heard the slave first: the master, alive all the time, lost"
        f" its office to {seen.after[0]} in epoch {seen.after[1]}"
    )


# A group of its own: the restart would end the connections of other scenarios' brokers.
SCENARIO = Scenario(
    5, "a restarted controller replaces masters that it has not heard yet", "#9682", play, judge,
    Group(own="restart"),
)  # fmt: skip
