"""Thousands who wait for the same: served in turns, and each looks only as often as it helps."""

from __future__ import annotations

from typing import Any

import pytest

from rmqha.broker.pop.aio.waiting_pops import POPS_A_TURN, WaitingPops
from rmqha.broker.pull.aio.waiting_pulls import PULLS_A_TURN
from tests.broker.backlogs import turns
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.subscriber import Subscriber
from tests.broker.test_consumer_requests import put
from tests.broker.test_pop_in_simulator import cluster

__all__ = ["cluster", "turns"]

GROUP = "Crowd"
HELD = 3 * PULLS_A_TURN + 1
POPPING = 40


def held_pulls(cluster: ReplicaCluster, client: Subscriber, **more: Any) -> list[int]:
    """So many that the broker needs several turns for them."""
    numbers = [client.pull(f"{GROUP}{at}", TOPIC, 1, **more) for at in range(HELD)]
    cluster.until(lambda: len(master_of(cluster)._pull.waiting) == HELD, "the pulls held")
    return numbers


# -- pulls -------------------------------------------------------------------------------------------


def test_pulls_when_very_many_wait_for_a_queue_then_few_are_served_in_a_turn(
    cluster: ReplicaCluster, turns: list[int]
) -> None:
    """A thousand consumers that each get every message would hold everybody up for 0.1 s."""
    put(cluster)
    client = Subscriber(cluster, master_of(cluster).config.address)
    numbers = held_pulls(cluster, client)
    turns.clear()
    put(cluster)
    cluster.until(lambda: all(number in client.answers for number in numbers), "all answers", 1_000)
    assert {client.answers[number].code for number in numbers} == {0}
    assert (max(turns), sum(turns)) == (PULLS_A_TURN, HELD)
    assert len(master_of(cluster)._pull.waiting) == 0


@pytest.mark.parametrize("why", ["time", "role"])
def test_pulls_when_very_many_are_over_at_once_then_few_are_answered_in_a_turn(
    cluster: ReplicaCluster, turns: list[int], why: str
) -> None:
    """After a failover all consumers ask at the same moment, and their time is over at the same."""
    put(cluster)
    client = Subscriber(cluster, master_of(cluster).config.address)
    numbers = held_pulls(cluster, client, suspendTimeoutMillis=2_000)
    turns.clear()
    if why == "role":
        cluster.loop.call_soon(master_of(cluster)._pull.waiting.ask_again)
    cluster.until(lambda: all(number in client.answers for number in numbers), "all answers", 3_000)
    assert {client.answers[number].code for number in numbers} == {19}
    assert (max(turns), sum(turns)) == (PULLS_A_TURN, HELD)


@pytest.mark.parametrize("first", ["answers", "looks"])
def test_pulls_when_a_message_and_their_end_come_together_then_each_is_answered_once(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Each waits for two turns then; ``Subscriber`` refuses a second answer."""
    put(cluster)
    client = Subscriber(cluster, master_of(cluster).config.address)
    numbers = held_pulls(cluster, client)
    pulls = master_of(cluster)._pull.waiting
    with monkeypatch.context() as unseen:
        unseen.setattr(pulls._to_look_at, "add", list)
        put(cluster)
    both = [pulls._to_answer, pulls._to_look_at]
    for backlog in both if first == "answers" else reversed(both):
        cluster.loop.call_soon(backlog.add, pulls._held.all())
    cluster.until(lambda: all(number in client.answers for number in numbers), "all answers", 1_000)
    assert {client.answers[number].code for number in numbers} == {0}
    assert len(pulls) == 0


# -- pops --------------------------------------------------------------------------------------------


POP = {
    "consumerGroup": GROUP, "topic": TOPIC, "queueId": -1, "maxMsgNums": 1,
    "invisibleTime": 60_000, "pollTime": 15_000, "bornTime": 0, "initMode": 0,
    "expType": "TAG", "exp": "*",
}  # fmt: skip


def popping(cluster: ReplicaCluster, client: Subscriber) -> list[int]:
    """Pops of one group that wait for the same, of a topic whose only message is with somebody."""
    put(cluster)
    assert client.ask(200050, POP).code == 0
    client.answers.clear()
    numbers = [client.tell(200050, POP) for _ in range(POPPING)]
    cluster.until(lambda: master_of(cluster).pop.pops.held_count == POPPING, "the pops held")
    return numbers


def test_pops_when_very_many_wait_and_one_message_comes_then_one_is_served_and_few_look(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look reads every queue of the topic: all looks for each message are the square."""
    client = Subscriber(cluster, master_of(cluster).config.address)
    numbers = popping(cluster, client)
    looks: list[object] = []
    real = WaitingPops._look
    monkeypatch.setattr(
        WaitingPops, "_look", lambda self, held: (looks.append(held), real(self, held))[1]
    )
    for served in (1, 2, 3):
        looks.clear()
        put(cluster)
        cluster.run_for(300)
        assert len(client.answers) == served
        assert len(looks) == 2, "who got it, and who found nothing more"
    assert [number in client.answers for number in numbers[:4]] == [True, True, True, False]
    put(cluster, POPPING - 3)
    cluster.until(lambda: len(client.answers) == POPPING, "everybody's answer", 5_000)
    assert {answer.code for answer in client.answers.values()} == {0}


def test_pops_when_one_finds_nothing_then_it_speaks_for_those_only_that_ask_for_the_same(
    cluster: ReplicaCluster,
) -> None:
    """A group in order waits for what it has in flight; that is no reason to keep others waiting."""
    client = Subscriber(cluster, master_of(cluster).config.address)
    put(cluster)
    in_order = {**POP, "order": True, "consumerGroup": "InOrder"}
    for fields in (in_order, POP):
        assert client.ask(200050, fields).code == 0
    blocked = client.tell(200050, in_order)
    cluster.until(lambda: master_of(cluster).pop.pops.held_count == 1, "the first pop held")
    waiting = client.tell(200050, POP)
    cluster.until(lambda: master_of(cluster).pop.pops.held_count == 2, "the pops held")
    put(cluster)
    cluster.until(lambda: waiting in client.answers, "the answer", 1_000)
    assert client.answers[waiting].code == 0
    assert blocked not in client.answers


@pytest.mark.parametrize("first", ["answers", "looks"])
def test_pops_when_messages_and_their_end_come_together_then_each_is_answered_once(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """A message that is handed out for an answer that was given already is late by its time."""
    client = Subscriber(cluster, master_of(cluster).config.address)
    popping(cluster, client)
    waiting = master_of(cluster).pop.pops._waiting
    with monkeypatch.context() as unseen:
        unseen.setattr(waiting._to_look_at, "add", list)
        put(cluster, POPPING)
    both = [waiting._to_answer, waiting._to_look_at]
    for backlog in both if first == "answers" else reversed(both):
        cluster.loop.call_soon(backlog.add, waiting._held.all())
    cluster.until(lambda: len(client.answers) == POPPING, "all answers", 1_000)
    assert {answer.code for answer in client.answers.values()} == {0}
    kept = master_of(cluster).pop.pops.popped_to((f"{TOPIC}@{GROUP}".encode(), 0))
    assert kept in (None, POPPING + 1)


@pytest.mark.costly
def test_pops_when_very_many_are_over_at_once_then_few_are_answered_in_a_turn(
    cluster: ReplicaCluster, turns: list[int]
) -> None:
    client = Subscriber(cluster, master_of(cluster).config.address)
    popping(cluster, client)
    turns.clear()
    cluster.until(lambda: len(client.answers) == POPPING, "all answers", 16_000)
    assert (max(turns), sum(turns)) == (POPS_A_TURN, POPPING)
