"""How far a master has delivered is told to Java's slaves once its own slaves have what it tells of.

Java's slaves take such positions whatever their log holds; ours say that they wait, and are told at
once.
"""

from __future__ import annotations

import json

import pytest

from rmqha.broker.common.aio.held_answers import HELD_MAX, HOLD_MS, WAITS_FIELD
from rmqha.broker.common.aio.ports import Broker
from rmqha.broker.deferred.aio import copy_requests
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.test_positions_in_simulator import (
    cluster,
    hold_replication,
    slaves,
    wait_for_logs,
)
from tests.broker.test_producer_services import send, stored

__all__ = ["cluster"]

POSITIONS = (
    RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_TIMER_CHECK_POINT,
)  # fmt: skip


def resume_replication(one: ReplicaCluster) -> None:
    """The log flows again."""
    for slave in slaves(one):
        assert slave.ha is not None
        slave.ha._master[1]._transport.resume_reading()


def deliver_unreplicated(one: ReplicaCluster) -> str:
    """The slaves have a delayed message and lack its delivery; the master's address."""
    assert send(one, 1, "DELAY\x011\x02").code == 0
    wait_for_logs(one)
    hold_replication(one)
    one.until(lambda: stored(one, TOPIC), "the delivery")
    master = master_of(one)
    one.until(lambda: master.services.delay_offsets.offsets.kept.get(1) == 1, "the position")
    assert master.ha_core is not None
    assert master.ha_core.members.held_by_all < master.store.max_offset
    return str(master.config.address)


def asked(
    one: ReplicaCluster, address: str, code: RequestCode, **fields: str
) -> list[RemotingCommand]:
    """Ask, and go on: the answer is in the list once it has come."""
    answers: list[RemotingCommand] = []
    one.ask_later(address, code, fields, told=answers.append)
    return answers


@pytest.mark.parametrize("code", POSITIONS)
def test_answer_when_slaves_lack_what_it_tells_of_then_it_comes_once_they_have_it(
    cluster: ReplicaCluster, code: RequestCode
) -> None:
    """What is written while it waits is no part of it."""
    address = deliver_unreplicated(cluster)
    answers = asked(cluster, address, code)
    cluster.run_for(HOLD_MS // 2)
    assert answers == []
    resume_replication(cluster)
    cluster.until(lambda: answers, "the answer", 500)
    assert answers[0].code == ResponseCode.SUCCESS
    if code == RequestCode.GET_ALL_DELAY_OFFSET:
        assert json.loads(answers[0].body)["offsetTable"]["1"] == 1


@pytest.mark.costly
@pytest.mark.parametrize("code", POSITIONS)
def test_answer_when_slaves_never_have_it_then_the_question_is_refused(
    cluster: ReplicaCluster, code: RequestCode
) -> None:
    """Java's slaves give up after three seconds, and ask again later."""
    address = deliver_unreplicated(cluster)
    answers = asked(cluster, address, code)
    cluster.run_for(HOLD_MS - 100)
    assert answers == []
    cluster.until(lambda: answers, "the refusal", 500)
    assert answers[0].code == ResponseCode.SYSTEM_BUSY
    assert "not every replica" in str(answers[0].remark)


@pytest.mark.parametrize("code", POSITIONS)
def test_answer_when_the_asker_waits_by_itself_then_it_comes_at_once(
    cluster: ReplicaCluster, code: RequestCode
) -> None:
    """As our slaves ask."""
    address = deliver_unreplicated(cluster)
    answers = asked(cluster, address, code, **{WAITS_FIELD: "true"})
    cluster.until(lambda: answers, "the answer", 100)
    assert answers[0].code == ResponseCode.SUCCESS


@pytest.mark.costly
@pytest.mark.parametrize("code", POSITIONS)
def test_answer_when_the_broker_was_a_master_and_does_not_know_what_it_is_then_refused(
    cluster: ReplicaCluster, code: RequestCode
) -> None:
    """Seed 881000 of stories with a peer: a slave asked its old master, which had just come back, and took
    a position that the dead process alone had reached."""
    address = deliver_unreplicated(cluster)
    host = cluster.host_of(master_of(cluster))
    cluster.run_for(500)
    for other in (*cluster.controller_hosts, *map(cluster.host_of, slaves(cluster))):
        cluster.kill(other)
    cluster.kill(host)
    cluster.boot(host)
    again = cluster.replicas[host]
    cluster.until(lambda: again.store.max_offset > 0, "its store")
    assert again.role is None
    answers = asked(cluster, address, code)
    cluster.until(lambda: answers, "an answer", HOLD_MS + 500)
    assert answers[0].code != ResponseCode.SUCCESS


@pytest.mark.costly
def test_answer_when_a_member_of_the_set_is_gone_then_it_does_not_count_as_having_all(
    cluster: ReplicaCluster,
) -> None:
    """It may be elected, until the controllers have taken it out."""
    assert send(cluster, 1, "DELAY\x011\x02").code == 0
    cluster.until(lambda: stored(cluster, TOPIC), "the delivery")
    wait_for_logs(cluster)
    master = master_of(cluster)
    for host in (*cluster.controller_hosts, cluster.host_of(slaves(cluster)[0])):
        cluster.kill(host)
    assert master.ha_core is not None
    members = master.ha_core.members
    cluster.until(lambda: len(members.acks()) == 1, "the loss of a slave")
    assert len(members.sync_state_set.union) == 3
    answers = asked(cluster, str(master.config.address), RequestCode.GET_ALL_DELAY_OFFSET)
    cluster.until(lambda: answers, "an answer", HOLD_MS + 500)
    assert answers[0].code == ResponseCode.SYSTEM_BUSY


@pytest.mark.costly
def test_answers_when_very_many_would_be_held_then_the_rest_is_refused_at_once(
    cluster: ReplicaCluster,
) -> None:
    """Each looks at the log every few milliseconds: strangers must not make thousands of them."""
    address = deliver_unreplicated(cluster)
    code, more = RequestCode.GET_ALL_DELAY_OFFSET, 10
    answers: list[RemotingCommand] = []
    for _ in range(HELD_MAX + more):
        cluster.ask_later(address, code, {}, told=answers.append)
    cluster.run_for(HOLD_MS // 2)
    assert [one.code for one in answers] == [ResponseCode.SYSTEM_BUSY] * more
    resume_replication(cluster)
    cluster.until(lambda: len(answers) == HELD_MAX + more, "all answers", 500)
    assert [one.code for one in answers[more:]] == [ResponseCode.SUCCESS] * HELD_MAX
    assert master_of(cluster).answers.held == 0


@pytest.mark.costly
def test_slaves_of_ours_when_they_ask_then_they_say_that_they_wait(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or they would be told as late as Java's."""
    seen: dict[int, set[bool]] = {}
    honest = copy_requests.tells_at_once

    def noted(broker: Broker, request: RemotingCommand) -> bool:
        seen.setdefault(request.code, set()).add(WAITS_FIELD in (request.ext_fields or {}))
        return honest(broker, request)

    monkeypatch.setattr(copy_requests, "tells_at_once", noted)
    cluster.run_for(3_000)
    assert seen == {
        RequestCode.GET_ALL_DELAY_OFFSET: {True},
        RequestCode.GET_TIMER_CHECK_POINT: {True},
    }
