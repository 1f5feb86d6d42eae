"""Answers that fit into no frame, and questions that take long: whoever asks, the controllers go on."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator

import pytest

from rmqha.controller import view
from rmqha.controller.aio import long_answers
from rmqha.controller.metadata import sync_state_data
from rmqha.controller.metadata.decision import Decision
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.settings import FRAME_BYTES_MAX
from rmqha.sim.cluster import SimOptions
from tests.controller.test_service import REPLICA_INFO, Cluster

TOO_MUCH = bytes(FRAME_BYTES_MAX)
SECOND_MS = 1_000


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three controllers, one set of three brokers, all well."""
    one = Cluster(7, SimOptions(broker_sets=1))
    yield one
    one.finish()


@pytest.mark.parametrize("lease", [True, False])
def test_answer_when_it_fits_into_no_frame_then_that_is_said_and_nobody_stops(
    cluster: Cluster, lease: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was an exception inside Raft's driver, which ended the leader, and then the next one."""
    leader = cluster.the_leader()
    service = cluster.controllers[leader]
    assert service.raft.core is not None
    service.raft.core.use_lease(lease)
    huge = Decision(ResponseCode.SUCCESS, body=TOO_MUCH)
    with monkeypatch.context() as patch:
        patch.setattr(service.machine, "read", lambda *_, **__: huge)
        answer = cluster.ask(leader, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, REPLICA_INFO)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "is over the limit" in (answer.remark or "")
    answer = cluster.ask(leader, RequestCode.CONTROLLER_GET_REPLICA_INFO, REPLICA_INFO)
    assert answer.code == ResponseCode.SUCCESS
    assert cluster.the_leader() == leader


def test_view_when_it_fits_into_no_frame_then_that_is_said(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = cluster.the_leader()
    monkeypatch.setattr(view.fastjson, "dumps", lambda _: TOO_MUCH)
    answer = cluster.ask(leader, RequestCode.GET_CONTROLLER_VIEW, {})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "is over the limit" in (answer.remark or "")


@pytest.mark.parametrize("lease", [True, False])
def test_question_when_it_is_about_many_sets_then_others_have_their_turns(
    cluster: Cluster, lease: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 10,000 sets of ten, one getSyncStateSet of all took so long that the leader was replaced."""
    leader = cluster.the_leader()
    service = cluster.controllers[leader]
    names = ("clusterName", "brokerName", "appliedBrokerId", "registerCheckCode")
    for name in ("more-1", "more-2"):
        values = ("SimCluster", name, "1", "h:1;1")
        asked = dict(zip(names, values, strict=True))
        assert cluster.ask(leader, RequestCode.CONTROLLER_APPLY_BROKER_ID, asked).code == 0
    assert service.raft.core is not None
    service.raft.core.use_lease(lease)
    body = b'["set-0","more-1","more-2"]'
    whole = service.machine.read(service._clock.now_ms(), 0, 1006, {}, body)
    read, seen = service.machine.read, list[str]()

    def part(now_ms: int, connection: int, *asked: object) -> Decision:
        seen.append("part")
        asyncio.get_running_loop().call_soon(seen.append, "others")
        return read(now_ms, connection, *asked)  # type: ignore[arg-type]

    monkeypatch.setattr(sync_state_data, "REPLICAS_A_PART", 1)
    monkeypatch.setattr(service.machine, "read", part)
    task = cluster.send(leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, {}, body)
    cluster.run_until(task.done, SECOND_MS)
    assert (task.result().code, task.result().body) == (ResponseCode.SUCCESS, whole.body)
    assert seen[:6] == ["part", "others"] * 3


def test_long_answers_when_very_many_are_asked_for_then_the_last_ones_are_told_to_come_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may keep a whole frame until it is sent."""
    leader = cluster.the_leader()
    monkeypatch.setattr(long_answers, "WAITING_MAX", 2)
    tasks = [cluster.send(leader, RequestCode.GET_CONTROLLER_VIEW, {}) for _ in range(5)]
    cluster.run_until(lambda: all(task.done() for task in tasks), SECOND_MS)
    codes = [task.result().code for task in tasks]
    assert sorted(codes) == [ResponseCode.SUCCESS] * 2 + [ResponseCode.SYSTEM_BUSY] * 3
    assert cluster.ask(leader, RequestCode.GET_CONTROLLER_VIEW, {}).code == ResponseCode.SUCCESS


def test_long_answer_when_it_cannot_be_made_then_that_is_said_and_the_next_ones_are_made(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who waited behind it waited until somebody asked again."""
    leader = cluster.the_leader()
    work = cluster.controllers[leader]._group
    honest, made = work._view, iter(range(3))

    def view() -> Generator[None, None, Decision | list[bytes]]:
        if next(made) == 0:
            yield
            raise ValueError("a fault")
        return (yield from honest())

    monkeypatch.setattr(work, "_view", view)
    tasks = [cluster.send(leader, RequestCode.GET_CONTROLLER_VIEW, {}) for _ in range(3)]
    cluster.run_until(lambda: all(task.done() for task in tasks), SECOND_MS)
    codes = [task.result().code for task in tasks]
    assert codes == [ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS, ResponseCode.SUCCESS]
    assert cluster.times("task_failed")
