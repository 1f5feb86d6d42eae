"""One client's long request: others have their turn in between, and it ends like a short one."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.broker.groups.aio import client_requests, lock_requests
from rmqha.broker.groups.aio.client_requests import ClientProcessor
from rmqha.broker.pop.aio import ack_requests
from rmqha.broker.pop.aio.ack_requests import AckProcessor
from rmqha.broker.pop.request import ORDER_REVIVE_QUEUE
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.frame import encode
from rmqha.remoting.settings import FRAME_BYTES_MAX
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.subscriber import Subscriber, heartbeat

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


def together(cluster: ReplicaCluster, client: Subscriber, *asked: tuple[int, bytes]) -> list[int]:
    """Have the master read requests in one chunk; their numbers."""
    assert client.ask(34, body=heartbeat("c1", "")).code == 0
    (server,) = master_of(cluster).clients._connections.values()
    numbers = list(range(1, len(asked) + 1))
    frames = [
        encode(RemotingCommand(code, number, body=body), FRAME_BYTES_MAX)
        for number, (code, body) in zip(numbers, asked, strict=True)
    ]
    cluster.loop.call_soon(server.data_received, b"".join(frames))
    cluster.run_for(0)
    return numbers


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


def test_client_when_it_leaves_behind_its_long_heartbeat_then_nobody_stays(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the heartbeat brought it back for two minutes, and queues were its own."""
    monkeypatch.setattr(client_requests, "MADE_MAX", 2)
    master = master_of(cluster)
    client = Subscriber(cluster, master.config.address)
    numbers = [client.tell(34, body=beat(consumers=True))]
    numbers += [client.tell(35, {"clientID": "c1", "consumerGroup": name}) for name in GROUPS]
    cluster.until(lambda: len(client.answers) == len(numbers), "the answers", 500)
    assert list(client.answers) == numbers
    assert master.consumers.groups == []


def test_heartbeat_when_its_turn_comes_after_the_end_of_its_connection_then_nobody_stays(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited behind a long one; nothing would take its members away."""
    monkeypatch.setattr(client_requests, "MADE_MAX", 2)
    master = master_of(cluster)
    client = Subscriber(cluster, master.config.address)
    with monkeypatch.context() as patch:
        patch.setattr(master.answers, "_run_on", lambda: None)
        late = heartbeat("c1", "late", producers=("late",))
        together(cluster, client, (34, beat(consumers=False)), (34, late))
        assert len(master.answers) == 2
        cluster.loop.call_soon(master.answers._waiting[0].connection.abort)
        cluster.until(lambda: client.closed, "the end", 500)
        cluster.run_for(100)
    cluster.loop.call_soon(master.answers._run_on)
    cluster.until(lambda: not len(master.answers), "their turns", 500)
    assert master.consumers.groups == []
    assert master.producers.clients("late") == []
    assert master.clients._connections == {}


def test_heartbeat_when_only_its_first_part_finds_no_room_or_no_subscriptions_then_it_is_told(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client would leave its subscriptions out for good, or think itself a member."""
    monkeypatch.setattr(client_requests, "MADE_MAX", 2)
    found = [(False, True), (False, False), (False, False)]
    monkeypatch.setattr(ClientProcessor, "_take_consumers", lambda *_: found.pop(0))
    client = Subscriber(cluster, master_of(cluster).config.address)
    body = fastjson.loads(beat(consumers=True)) | {"heartbeatFingerprint": 7}
    answer = client.ask(34, body=fastjson.dumps(body))
    assert (answer.ext_fields or {})["IS_SUB_CHANGE"] == "true"
    found += [(True, False), (False, False), (False, False)]
    assert client.ask(34, body=fastjson.dumps(body)).code == 2


@pytest.mark.parametrize("apart", [False, True])
def test_unlock_when_a_long_lock_is_under_way_then_it_is_done_after_it(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    """The queues were locked for a minute for who had given them back."""
    monkeypatch.setattr(lock_requests, "QUEUES_A_TURN", 2)
    master = master_of(cluster)
    client = Subscriber(cluster, master.config.address)

    def body(*numbers: int) -> bytes:
        queues = [{"topic": TOPIC, "brokerName": "broker-a", "queueId": it} for it in numbers]
        return fastjson.dumps({"consumerGroup": "G", "clientId": "c1", "mqSet": queues})

    if apart:
        first = client.tell(41, body=body(*range(8)))
        second = client.tell(42, body=body(6, 7))
    else:
        first, second = together(cluster, client, (41, body(*range(8))), (42, body(6, 7)))
    cluster.until(lambda: second in client.answers, "the answers", 500)
    assert list(client.answers)[-2:] == [first, second]
    assert len(fastjson.loads(client.answers[first].body)["lockOKMQSet"]) == 8
    assert len(master.locks) == 6


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


def test_acks_when_the_last_of_them_write_nothing_then_the_answer_waits_for_the_others(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was safe to say at once, as if nothing had been written: the master could die with them."""
    monkeypatch.setattr(ack_requests, "ACKS_A_TURN", 2)
    master = master_of(cluster)
    assert cluster.ask(master.config.address, 310, send_fields(0) | {"e": "0"}, b"x").code == 0
    ends: list[int] = []
    writer = master.services.writer
    plain = writer.answer_when_safe

    def noted(connection: Any, request: Any, end: int, *more: Any) -> None:
        ends.append(end)
        plain(connection, request, end, *more)

    monkeypatch.setattr(writer, "answer_when_safe", noted)
    nowhere = {"so": 99}
    body = acks({}, {}, nowhere, nowhere)
    assert cluster.ask(master.config.address, 200151, None, body).code == 0
    assert ends == [master.store.max_offset]


def test_acks_when_all_of_a_part_were_popped_in_order_then_it_needs_no_open_log(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of them is written: a batch that is done was refused while the log could not be."""
    monkeypatch.setattr(ack_requests, "ACKS_A_TURN", 2)
    master = master_of(cluster)
    assert cluster.ask(master.config.address, 310, send_fields(0) | {"e": "0"}, b"x").code == 0
    appended = noted(cluster, monkeypatch, AckProcessor, "_append")
    in_order = {"rq": ORDER_REVIVE_QUEUE}
    cluster.ask(master.config.address, 200151, None, acks(*[in_order] * 4))
    assert appended == []


@pytest.mark.costly
def test_members_when_all_are_silent_then_who_asks_is_answered_in_time(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """223: 10,000 silent ones, 16 at a time, held it up for hours."""
    monkeypatch.setattr(client_requests, "ASKED_AT_A_TIME", 1)
    monkeypatch.setattr(client_requests, "PROXY_TIMEOUT_MS", 100)
    monkeypatch.setattr(client_requests, "ALL_ASKED_MS", 200)
    master = master_of(cluster)
    clients = [Subscriber(cluster, master.config.address, f"c{number}") for number in range(5)]
    for one in clients:
        assert one.beat("G", TOPIC).code == 0
    asking = Subscriber(cluster, master.config.address, "asking")
    number = asking.tell(223, {"group": "G", "topic": TOPIC})
    cluster.until(lambda: number in asking.answers, "the answer", 350)
    assert fastjson.loads(asking.answers[number].body) == {"consumerTable": {}}
    assert [len(one.told(221)) for one in clients] == [1, 1, 0, 0, 0]


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
