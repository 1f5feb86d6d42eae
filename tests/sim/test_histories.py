"""The answers of a leader that was replaced, while its brokers still ask it: none may be stale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rmqha.base.errors import InvariantBroken, RmqhaError
from rmqha.controller.raft import events as ev
from rmqha.controller.raft import reads
from rmqha.controller.raft.node import Node, Role
from rmqha.remoting.codes import RequestCode
from rmqha.sim.broker_agent import BrokerAgent
from rmqha.sim.calls import CallLog
from rmqha.sim.cluster import CONTROLLER_PORT, SimCluster, SimOptions
from rmqha.sim.swarm import run_seed
from rmqha.verify.history import EpochHistory
from rmqha.verify.raft import RaftWatch

pytestmark = pytest.mark.sim

SEEDS = range(1, 9)
ASK_EVERY_MS = 5


def _settle(cluster: SimCluster) -> None:
    for host in [*cluster.controller_hosts, *cluster.broker_hosts]:
        cluster.boot(host)
    for _ in range(200):
        if cluster.is_settled():
            return
        cluster.run_for(100)
    pytest.fail("the cluster does not settle")


async def _asked(agent: BrokerAgent, code: RequestCode, fields: dict[str, str]) -> None:
    try:
        await agent.ask(code, {"brokerName": agent.name, "clusterName": agent.cluster, **fields})
    except InvariantBroken:
        raise
    except RmqhaError:
        return


def _elect(agent: BrokerAgent) -> dict[str, str]:
    return {"brokerId": str(agent.broker_id), "designateElect": "true"}


@contextmanager
def old_leader_and_new(seed: int) -> Iterator[SimCluster]:
    """The leader and one broker are cut off from all others; both sides are asked all the time."""
    cluster = SimCluster(seed, SimOptions(broker_sets=1, replicas=2))
    try:
        _settle(cluster)
        _play(cluster)
        yield cluster
    finally:
        cluster.close()


def _play(cluster: SimCluster) -> None:
    leader = str(cluster.leader())
    inside, outside = cluster.broker_hosts
    others = {*cluster.controller_hosts, outside} - {leader}
    for one in (leader, inside):
        for other in sorted(others):
            cluster.net.cut(one, other)
            cluster.net.cut(other, one)
    reader, writer = cluster.brokers[inside], cluster.brokers[outside]
    reader._leader = f"{leader}:{CONTROLLER_PORT}"
    heir = next(one for one in (reader, writer) if one.role == "slave")
    for _ in range(140):
        asks = [(reader, RequestCode.CONTROLLER_GET_REPLICA_INFO, {})]
        new_leader = cluster.leader()
        if new_leader != leader:
            writer._leader = f"{new_leader}:{CONTROLLER_PORT}"
            asks.append((writer, RequestCode.CONTROLLER_ELECT_MASTER, _elect(heir)))
        for agent, code, fields in asks:
            cluster.loop.create_task(_asked(agent, code, fields), name="asks")
        cluster.run_for(ASK_EVERY_MS)


def _without_a_round(patch: pytest.MonkeyPatch) -> None:
    def vain(target: Node, now_ms: int, token: int) -> bool:
        leads = target.role is Role.LEADER
        target.immediate.append(ev.ReadReady((token,)) if leads else ev.Refused((), (token,)))
        return False

    patch.setattr(reads, "request", vain)
    patch.setattr(reads, "lease_valid", lambda one, now_ms: one.ready)


def _with_a_lease_of_four_times(patch: pytest.MonkeyPatch) -> None:
    def long(one: Node, now_ms: int) -> bool:
        held = now_ms - one.quorum_round_ms < 4 * one.settings.lease_ms
        return one.ready and one.quorum_round > 0 and held

    patch.setattr(reads, "lease_valid", long)


@pytest.mark.costly
def test_reads_of_a_leader_that_was_replaced_are_never_stale() -> None:
    """A broker that still talks to the old leader would follow a master that was replaced."""
    elected = 0
    for seed in SEEDS:
        with old_leader_and_new(seed) as cluster:
            cluster.calls.check()
            assert cluster.calls.tally.given_up == 0
            elected += max(epoch for _, epoch in cluster.elections) > 1
    assert elected > 0, "no new leader elected while the old one was asked"


@pytest.mark.costly
@pytest.mark.parametrize("mutant", [_without_a_round, _with_a_lease_of_four_times])
def test_a_leader_that_trusts_itself_is_found_by_the_history(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history that accepts stale reads shows nothing about those of the real controller."""
    mutant(monkeypatch)
    # The other checks, of epochs, leases and reads, would end the story before this one is asked.
    monkeypatch.setattr(RaftWatch, "lease_held", lambda *_: None)
    monkeypatch.setattr(RaftWatch, "read_served", lambda *_, by: None)
    monkeypatch.setattr(EpochHistory, "returned", lambda self, name, floor, epoch: None)
    for seed in SEEDS:
        with old_leader_and_new(seed) as cluster:
            found = _verdict(cluster)
        if found is not None:
            assert "no order of the calls explains their answers" in found
            return
    pytest.fail(f"{len(SEEDS)} seeds found nothing wrong with {mutant.__name__}")


def _verdict(cluster: SimCluster) -> str | None:
    try:
        cluster.calls.check()
    except InvariantBroken as error:
        return str(error)
    return None


@pytest.mark.slow
def test_every_story_of_the_simulator_ends_with_a_look_at_its_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A recorder that nobody asks would let a broken history pass."""
    looked: list[tuple[int, int]] = []
    honest = CallLog.check

    def watched(self: CallLog) -> None:
        honest(self)
        looked.append((self.tally.calls, self.tally.given_up))

    monkeypatch.setattr(CallLog, "check", watched)
    run_seed(11)
    ((calls, given_up),) = looked
    assert calls > 50
    assert given_up == 0
