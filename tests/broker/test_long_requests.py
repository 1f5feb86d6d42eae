"""One client's long request: others have their turn in between, and it ends like a short one."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.broker.groups.aio import client_requests
from rmqha.broker.groups.aio.client_requests import ClientProcessor
from rmqha.broker.pop.aio import ack_requests
from rmqha.broker.pop.aio.ack_requests import AckProcessor
from rmqha.remoting import fastjson
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.subscriber import Subscriber

GROUPS = [f"G{number}" for number in range(6)]
EVENTS = ["part", "others", "part", "others", "part"]


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica, which reigns."""
    with ReplicaCluster(seed=41, replicas=1) as one:
        one.boot_all()
        yield one


def noted(
    cluster: ReplicaCluster, patch: pytest.MonkeyPatch, owner: type, name: str
) -> list[str]:  # fmt: skip
    """What happens: a part of the work, or the next turn of the loop."""
    events: list[str] = []
    plain = getattr(owner, name)

    def part(*asked: Any) -> Any:
        events.append("part")
        cluster.loop.call_soon(events.append, "others")
        return plain(*asked)

    patch.setattr(owner, name, part)
    return events


def beat(*, consumers: bool) -> bytes:
    """A heartbeat for all groups."""
    named = [{"groupName": name} for name in GROUPS]
    body = {"clientID": "c1", "consumerDataSet": named if consumers else [],
            "producerDataSet": [] if consumers else named}  # fmt: skip
    return fastjson.dumps(body)


@pytest.mark.parametrize("consumers", [True, False])
def test_heartbeat_when_it_is_for_many_groups_then_others_have_their_turn(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, consumers: bool
) -> None:
    """That of a proxy for 10,000 stopped the loop for most of a second."""
    monkeypatch.setattr(client_requests, "MADE_MAX", 2)
    events = noted(cluster, monkeypatch, ClientProcessor, "_take_consumers")
    master = master_of(cluster)
    client = Subscriber(cluster, master.config.address)
    assert client.ask(34, body=beat(consumers=consumers)).code == 0
    assert events[:5] == EVENTS
    table: Any = master.consumers if consumers else master.producers
    assert [len(table.clients(name)) for name in GROUPS] == [1] * 6


def test_heartbeat_when_its_connection_ends_before_it_is_through_then_nobody_stays(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would take these members away for two minutes, and queues would be theirs."""
    monkeypatch.setattr(client_requests, "MADE_MAX", 2)
    master = master_of(cluster)
    client = Subscriber(cluster, master.config.address)
    plain = ClientProcessor._take_consumers

    def close(processor: ClientProcessor, *asked: Any) -> tuple[bool, bool]:
        found = plain(processor, *asked)
        for one in list(master._doors.servers.values()):
            for connection in list(one._connections.values()):
                connection.close()
        return found

    monkeypatch.setattr(ClientProcessor, "_take_consumers", close)
    client.tell(34, body=beat(consumers=True))
    cluster.until(lambda: client.closed, "the end", 500)
    cluster.run_for(100)
    assert master.consumers.groups == []


def acks(*entries: dict[str, object]) -> bytes:
    """The body of 200151."""
    one = {"c": "G", "t": TOPIC, "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 60_000,
           "b": base64.b64encode(b"\x01").decode()}  # fmt: skip
    return fastjson.dumps({"brokerName": "broker-a", "acks": [one | more for more in entries]})


def test_acks_when_very_many_come_at_once_then_others_have_their_turn(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 of them stopped the loop for half a second."""
    monkeypatch.setattr(ack_requests, "READ_A_TURN", 4)
    monkeypatch.setattr(ack_requests, "ACKS_A_TURN", 2)
    master = master_of(cluster)
    assert cluster.ask(master.config.address, 310, send_fields(0) | {"e": "0"}, b"x").code == 0
    events = noted(cluster, monkeypatch, AckProcessor, "_append")
    before = master.store.max_offset
    answer = cluster.ask(master.config.address, 200151, None, acks(*[{}] * 6))
    assert answer.code == 0
    assert events[:5] == EVENTS
    assert master.store.max_offset > before
    nothing_read = master.store.max_offset
    bad = acks(*[{}] * 4, {"q": "x"})
    assert cluster.ask(master.config.address, 200151, None, bad).code == 1
    assert master.store.max_offset == nothing_read, "a body counts as a whole"


@pytest.mark.costly
def test_members_when_some_are_silent_then_the_others_are_asked_at_once(
    cluster: ReplicaCluster,
) -> None:
    """223: each silent one held up mqadmin for 10 s, one behind the other."""
    master = master_of(cluster)
    clients = [Subscriber(cluster, master.config.address, f"c{number}") for number in range(3)]
    clients[2].reply = lambda request: request.reply(0, body=b'{"messageQueueTable":{}}')
    for one in clients:
        assert one.beat("G", TOPIC).code == 0
    asking = Subscriber(cluster, master.config.address, "asking")
    number = asking.tell(223, {"group": "G", "topic": TOPIC})
    cluster.until(lambda: number in asking.answers, "the answer", 11_000)
    assert fastjson.loads(asking.answers[number].body) == {"consumerTable": {"c2": {}}}
