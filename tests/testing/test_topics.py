"""Topics that the test's author made: they keep their queues, and all of them are read."""

from __future__ import annotations

import pytest

from rmqha.base.errors import RemoteProtocolError
from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.testing.client import ClusterClient, RefusedForGood
from rmqha.testing.ledger import Ledger
from rmqha.testing.plugin import Factory
from rmqha.testing.real.processes import wait_until
from rmqha.testing.sends import send_fields
from rmqha.testing.settings import Plan
from rmqha.testing.topics import Queues, queues_made, routed_queues
from tests.testing.asking import ask, make_topic, topic_at


@pytest.mark.costly
def test_topic_when_it_has_eight_queues_then_all_are_used_and_stay(
    rmq_cluster_factory: Factory,
) -> None:
    """It became one of four, and what was in the others was not read."""
    cluster = rmq_cluster_factory(controllers=1, replicas=1)
    make_topic(cluster, "Orders", Queues(8, 8), attributes="+message.type=FIFO", order="true")
    before = topic_at(cluster, "Orders")
    for queue in range(8):
        fields = send_fields("Orders", queue, 1, ("broker-a", queue))
        assert ask(cluster, RequestCode.SEND_MESSAGE_V2, fields, b"theirs").code == 0
    ours = cluster.produce(16, topic="Orders")
    assert {one.queue_id for one in ours} == set(range(8))
    assert len(cluster.consume("Orders")) == 24
    cluster.assert_nothing_lost("Orders")
    assert topic_at(cluster, "Orders") == before


@pytest.mark.costly
def test_topic_when_its_author_gives_it_more_queues_then_they_are_read(
    rmq_cluster_factory: Factory,
) -> None:
    """What a client has once heard of a topic is not true for ever."""
    cluster = rmq_cluster_factory(controllers=1, replicas=1)
    cluster.produce(4, topic="Grows")
    make_topic(cluster, "Grows", Queues(6, 6))
    fields = send_fields("Grows", 0, 1, ("broker-a", 5))
    assert ask(cluster, RequestCode.SEND_MESSAGE_V2, fields, b"theirs").code == 0
    wait_until(lambda: len(cluster.consume("Grows")) == 5, 5, "the message of the sixth queue")


@pytest.mark.costly
def test_topic_when_nobody_made_it_then_it_holds_nothing_and_is_not_made(
    rmq_cluster_factory: Factory,
) -> None:
    """That nothing was sent to a topic is what a test asks; asking must not make it."""
    cluster = rmq_cluster_factory(controllers=1, replicas=1)
    assert cluster.consume("Nobodys") == []
    assert cluster.missing("Nobodys") == []
    assert topic_at(cluster, "Nobodys") is None


async def test_topic_when_no_queue_takes_messages_then_it_is_refused_by_name() -> None:
    """Java's brokers make such a topic; its queues are no numbers to divide by."""

    class ReadOnly(ClusterClient):
        """At one master that has one topic."""

        async def master(self) -> str:
            return "m:1"

        async def find_topic(self, address: str, topic: str) -> Queues:
            return Queues(4, 0)

    client = ReadOnly(Plan((), (), ()), TcpNetwork(), SystemClock())
    with pytest.raises(RefusedForGood, match="topic 'Closed' has no queue to write to at broker-a"):
        await client.produce([b"x"], "Closed", 5, 1)


@pytest.mark.costly
@pytest.mark.parametrize("queues", [2, 7])
def test_workload_when_its_topic_has_other_than_four_queues_then_all_are_read(
    rmq_cluster_factory: Factory, queues: int
) -> None:
    """It had four places: others were never read, or asked for in vain."""
    cluster = rmq_cluster_factory(controllers=1, replicas=1)
    make_topic(cluster, "Load", Queues(queues, queues))
    workload = cluster.workload("Load")
    workload.wait_for_acks(3 * queues)
    ledger = workload.stop(drain_s=10)
    assert (ledger.lost, ledger.pending) == ([], 0)
    assert ledger.consumed == ledger.acknowledged >= 3 * queues
    assert len(ledger.ends) == queues
    assert all(ledger.ends)


def test_ledger_when_a_queue_is_new_to_it_then_it_has_room() -> None:
    """How many queues a topic has is known when it is sent to, not before."""
    ledger = Ledger()
    ledger.acked(0, 7, 0)
    ledger.read(0, 7, 0)
    ledger.passed(7, 1)
    assert (ledger.pending, ledger.lost, ledger.ends) == (0, [], (0,) * 7 + (1,))


def test_queues_when_told_by_a_broker_or_a_name_server_then_those_of_the_set() -> None:
    """Another set's queues are not ours, and a set without any has no such topic to send to."""
    assert queues_made(b'{"readQueueNums":8,"writeQueueNums":6,"perm":6}') == Queues(8, 6)
    route = {
        "brokerDatas": [],
        "queueDatas": [
            {"brokerName": name, "readQueueNums": number, "writeQueueNums": 3, "perm": 6}
            for number, name in enumerate(("broker-a", "broker-b"), start=5)
        ],
    }
    body = fastjson.dumps(route)
    assert routed_queues(body, "broker-b") == Queues(6, 3)
    assert routed_queues(body, "broker-c") is None
    with pytest.raises(RemoteProtocolError):
        queues_made(b"[]")
