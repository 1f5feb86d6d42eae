"""Answers of others are data like any other: none of them ends or blocks a broker."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.groups.request_modes import ROUTE_QUEUES_MAX, route_queues
from rmqha.remoting.command import SERIALIZE_ROCKETMQ, RemotingCommand
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.subscriber import Subscriber

GROUP = "G"


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica, which reigns."""
    with ReplicaCluster(seed=41, replicas=1) as one:
        one.boot_all()
        yield one


@pytest.mark.costly
def test_clients_when_their_answers_make_no_frame_then_who_asked_is_told(
    cluster: ReplicaCluster,
) -> None:
    """223: two answers of 10 MiB ended the broker."""
    master = master_of(cluster)
    body = b'{"messageQueueTable":{"a":"' + b"x" * (10 << 20) + b'"}}'
    clients = [Subscriber(cluster, master.config.address, name) for name in ("c1", "c2")]
    for one in clients:
        one.reply = lambda request: request.reply(0, body=body)
        assert one.beat(GROUP, TOPIC).code == 0
    asking = Subscriber(cluster, master.config.address, "asking")
    answer = asking.ask(223, {"group": GROUP, "topic": TOPIC})
    assert answer.code == 1
    assert "over the limit" in (answer.remark or "")
    clients[1].reply = lambda request: request.reply(0, body=b'{"messageQueueTable":{}}')
    assert asking.ask(223, {"group": GROUP, "topic": TOPIC}).code == 0
    assert master_of(cluster) is master


def test_client_when_its_answers_code_fits_no_header_then_who_asked_is_told(
    cluster: ReplicaCluster,
) -> None:
    """307: a code of 70,000 has no place in the binary header of who asked."""
    master = master_of(cluster)
    client = Subscriber(cluster, master.config.address)
    client.reply = lambda request: request.reply(70_000)
    assert client.beat(GROUP, TOPIC).code == 0
    asking = Subscriber(cluster, master.config.address, "asking")
    fields = {"consumerGroup": GROUP, "clientId": "c1"}
    asking.connection.send(
        RemotingCommand(307, 5, ext_fields=fields, serialize_type=SERIALIZE_ROCKETMQ)
    )
    cluster.until(lambda: 5 in asking.answers, "an answer")
    assert asking.answers[5].code == 1
    assert asking.ask(307, fields).code == 70_000
    assert master_of(cluster) is master


def test_route_with_millions_of_queues_is_none() -> None:
    """40 brokers that somebody made up, of 65,536 queues each, blocked a broker for 36 s."""
    route = {
        "queueDatas": [
            {"brokerName": f"b{number}", "perm": 6, "readQueueNums": 65_536} for number in range(40)
        ]
    }
    began = time.process_time()
    with pytest.raises(RemoteProtocolError, match="more than"):
        route_queues(TOPIC, route)
    assert time.process_time() - began < 0.5
    route["queueDatas"] = [{"brokerName": "b", "perm": 6, "readQueueNums": ROUTE_QUEUES_MAX}]
    assert len(route_queues(TOPIC, route)) == ROUTE_QUEUES_MAX
