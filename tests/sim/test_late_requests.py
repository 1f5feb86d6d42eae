"""Requests that are out of date: each check of the controllers is reached, and lies are found."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import orjson
import pytest

from rmqha.base.errors import InvariantBroken
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.coverage import REFUSED
from rmqha.sim.late_requests import LateRequests, PaperSet
from rmqha.sim.swarm import make_swarm

ALTER = int(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET)
TOLD = RemotingCommand(
    0,
    ext_fields={"masterBrokerId": "1", "masterEpoch": "7"},
    body=b'{"syncStateSet":[1],"syncStateSetEpoch":9}',
)


class Leader:
    """Answers every alter alike, and notes it."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.alters: list[tuple[dict[str, str], dict[str, object]]] = []
        self.slept_ms = 0.0
        self.applied: list[str] = []

    async def ask(
        self, code: RequestCode, fields: dict[str, str], body: bytes = b""
    ) -> RemotingCommand:
        if code == ALTER:
            self.alters.append((fields, orjson.loads(body)))
            return RemotingCommand(self.code)
        if code == RequestCode.CONTROLLER_APPLY_BROKER_ID:
            self.applied.append(fields["appliedBrokerId"])
            return RemotingCommand(int(ResponseCode.CONTROLLER_BROKER_ID_INVALID))
        return TOLD if code == RequestCode.CONTROLLER_GET_REPLICA_INFO else RemotingCommand(0)

    async def take_id(self, one: PaperSet) -> int | None:
        one.ids.append(max(one.ids) + 1)
        return one.ids[-1]

    async def sleep(self, ms: float) -> None:
        self.slept_ms += ms


def sent(code: int, one: PaperSet, times: int = 60) -> tuple[Leader, Counter[str]]:
    """What a leader that answers alters with ``code`` got, and what was counted."""
    leader, counts = Leader(code), Counter[str]()
    late = LateRequests(
        leader.ask, leader.take_id, lambda name, broker_id: {"brokerName": name}, leader.sleep,
        random.Random(1), counts,
    )  # fmt: skip
    late.sent(one.name, {"brokerName": one.name, "masterEpoch": "3"}, b'{"old":true}')

    async def send_all() -> None:
        for _ in range(times):
            await late.send(one)

    asyncio.run(send_all())
    return leader, counts


def test_alters_when_they_are_late_then_each_kind_is_sent() -> None:
    """Old ones as they were, old epochs with the set of now, and members that have just died."""
    code = int(ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH)
    leader, counts = sent(code, PaperSet("p", [1, 2], [3, 4]))
    bodies = [body for _, body in leader.alters]
    assert {"old": True} in bodies
    of_now = [(f, b) for f, b in leader.alters if b.get("syncStateSetEpoch") == 9]
    assert [f for f, _ in of_now if int(f["masterEpoch"]) < 7]
    assert [b for f, b in of_now if f["masterEpoch"] == "7"]
    assert leader.slept_ms > 0
    assert counts[REFUSED[0]] == len(leader.alters)
    assert {*leader.applied} == {"3", "4"}
    assert counts["cleaned id refused"] == len(leader.applied)
    assert counts["id of an older cleaning refused"] == leader.applied.count("3")


def test_alter_when_it_takes_a_dead_replica_in_then_that_is_found() -> None:
    """Who is in the SyncStateSet may be elected, and must be there to be."""
    with pytest.raises(InvariantBroken, match="a dead replica was taken into a SyncStateSet"):
        sent(0, PaperSet("p", [1, 2], []))


@pytest.mark.slow
@pytest.mark.sim
def test_stories_when_the_operator_is_late_then_his_requests_are_refused() -> None:
    """A story of which each check is reached; the ones without late requests reach none."""
    counts: Counter[str] = Counter()
    without: Counter[str] = Counter()
    for seed in range(1, 21):
        swarm = make_swarm(seed)
        (counts if swarm._late is not None else without).update(swarm.tell(seed).counts)
    assert [name for name in REFUSED if not counts[name]] == []
    assert [name for name in REFUSED if without[name]] == []
