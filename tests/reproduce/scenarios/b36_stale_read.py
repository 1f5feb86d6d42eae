"""A leader stands still (a pause of its machine, SIGSTOP), another one is elected, it goes on."""

from __future__ import annotations

from typing import NamedTuple

from rmqha.testing.real import wire
from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Group, Scenario
from tests.reproduce.stage import Stage

ASKERS = 24
ROUNDS = 3
"""How many it answers before it hears of its successor is chance; none in so many rounds is not."""


class Seen(NamedTuple):
    """The master by the new leader, and what the old one told each asker: its code and master."""

    master: int | None
    told: list[tuple[int, str | None]]


def play(stage: Stage) -> Seen:
    """Brokers ask it for their master while it stands still; it answers when it goes on."""
    seen = Seen(None, [])
    for number in range(ROUNDS):
        seen = _round(stage, f"{stage.name}-{number}")
        if seen.master != 2 or _stale(seen):
            break
    return seen


def _round(stage: Stage, name: str) -> Seen:
    old = stage.calm()
    stage.replicas(2, name)
    askers = [wire.Connection(stage.controllers.addresses[old], 20.0) for _ in range(ASKERS)]
    try:
        for one in askers:
            one.invoke(wire.GET_METADATA_INFO)
        stage.controllers.stop(old)
        stage.controllers.wait_for_leader(other_than=old)
        for number in (1, 2):
            stage.broker(number, name).beat(epoch=1)
        stage.broker(2, name).elect(designate=True)
        master = stage.seen(name).master_id
        for one in askers:
            one.send(wire.GET_REPLICA_INFO, {"brokerName": name})
        stage.controllers.cont(old)
        told = [one.receive() for one in askers]
        return Seen(master, [(one.code, one.ext.get("masterBrokerId")) for one in told])
    finally:
        for one in askers:
            one.close()


def _stale(seen: Seen) -> int:
    return sum(code == 0 and master == "1" for code, master in seen.told)


def judge(seen: Seen) -> Finding:
    """It is leader no more, and may say nothing else."""
    if seen.master != 2 or not seen.told:
        return unclear(f"the new leader's master was {seen.master}; answers: {seen.told}")
    stale = _stale(seen)
    what = f"a leader stood still while another was elected and made 2 master; of {len(seen.told)}"
    if stale:
        return bug(f"{what} brokers that asked it {stale} were told that 1 is master")
    return right(f"{what} brokers that asked it none was told that 1 is master")


SCENARIO = Scenario(
    36, "a leader that stood still tells of a master that is none", "", play, judge, Group(count=3)
)
