"""Real Java producers of every kind against one broker of ours: what they send is what is consumed.

``RMQHA_INTEROP_JAVA_BROKER=1`` runs the same against Java's name server and broker as well.
Lines of ``java/ProducerPeer.java``; sends answer ``queue:offset:msgId:offsetMsgId:recallHandle``:

=============================================  =================================================
start SERVERS                                  start the producers
sync TOPIC BODY [delay=LEVEL] [seconds=N]      send one message
  [at=MS]
async|oneway|batch TOPIC COUNT PREFIX          send PREFIX-0, PREFIX-1, ...
ordered TOPIC ORDERS STEPS                     bodies ORDER/STEP, one queue an order, by a selector
big TOPIC SIZE                                 a body that the client compresses
recall TOPIC HANDLE                            take a timer back
transaction TOPIC BODY commit|rollback|unknown send a half message and decide; later questions are
                                               answered by what BODY begins with
checks BODY                                    how often the client was asked about it
responder TOPIC; request TOPIC BODY            request and reply
push NAME GROUP TOPIC FAILURES; got NAME       consume, each message failing so often
=============================================  =================================================
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.java import CLUSTER_NAME, JavaBroker
from rmqha.testing.real.mqadmin import mqadmin
from rmqha.testing.real.processes import wait_until
from tests.interop import required
from tests.interop.alone import KINDS, Alone, new_topic
from tests.interop.client_peer import SOURCE, ClientPeer

QUEUES = 4
PROGRAM = SOURCE.with_name("ProducerPeer.java")
SETTINGS: dict[str, object] = {
    "messageIndexEnable": True, "timerWheelEnable": True, "recallMessageEnable": True,
    "messageDelayLevel": "1s 2s 3s 4s", "transactionTimeOut": 1000,
    "transactionCheckInterval": 2000,
}  # fmt: skip

_numbers = itertools.count(1)


class Sent(NamedTuple):
    """What a producer was answered."""

    queue_id: int
    queue_offset: int
    msg_id: str
    offset_msg_id: str
    recall_handle: str


class Consumed(NamedTuple):
    """One message as a consumer saw it; moments are ms."""

    queue_id: int
    queue_offset: int
    body: str
    reconsume_times: int
    stored_ms: int
    received_ms: int
    msg_id: str
    keys: str
    transaction_id: str


@dataclass
class Stage:
    """One broker, its name server, Java's clients of one release."""

    broker: JavaBroker
    servers: str
    peer: ClientPeer
    batch_shares_key: bool

    def topic(self) -> str:
        """A topic of its own for a test."""
        name = f"Produced{next(_numbers)}"
        new_topic(self.broker, self.servers, name, QUEUES)
        return name

    def send(self, line: str) -> Sent:
        """Send one message."""
        parts = self.peer.ask(line).split(":")
        return Sent(int(parts[0]), int(parts[1]), *parts[2:5])

    def consume(self, topic: str, *, failures: int = 0) -> str:
        """Start a consumer of a topic; its name."""
        name = f"C-{topic}-{next(_numbers)}"
        self.peer.ask(f"push {name} {name} {topic} {failures}")
        return name

    def got(self, name: str) -> list[Consumed]:
        """What a consumer has received."""
        found = []
        for one in self.peer.messages(f"got {name}"):
            body, times, stored, received, *texts = one.body.split("|")
            found.append(
                Consumed(
                    one.queue_id,
                    one.queue_offset,
                    body,
                    int(times),
                    int(stored),
                    int(received),
                    *texts,
                )
            )
        return found

    def wait_for(self, name: str, count: int, timeout_s: float = 30.0) -> list[Consumed]:
        """Wait until a consumer has received so many messages; returns them."""
        wait_until(lambda: len(self.got(name)) >= count, timeout_s, f"{count} messages at {name}")
        return self.got(name)


@pytest.fixture(scope="module", params=KINDS)
def alone(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Alone]:
    """All of one kind but the clients."""
    required.require_classpath()
    with Alone(request.param, tmp_path_factory.mktemp("producers"), **SETTINGS) as running:
        yield running


@pytest.fixture(scope="module", params=["5.3.3", "4.9.8"])
def stage(
    alone: Alone, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """Clients of one release."""
    version = request.param
    required.require_classpath(version)
    home = tmp_path_factory.mktemp("clients")
    with ClientPeer(home, version, "producers", PROGRAM) as peer:
        peer.ask(f"start {alone.servers}")
        # #9416: brokers up to 5.3.3 give each message the key of its batch, which 5.x clients set.
        shares_key = alone.kind == "java" and version == "5.3.3"
        yield Stage(alone.broker, alone.servers, peer, shares_key)


def test_sync_when_sent_then_the_answer_names_where_it_is(stage: Stage) -> None:
    """Ids and offsets of the answer are those that the consumer sees, and mqadmin finds both."""
    topic = stage.topic()
    sent = [stage.send(f"sync {topic} body{n}") for n in range(8)]
    name = stage.consume(topic)
    got = {one.body: one for one in stage.wait_for(name, 8)}
    for number, one in enumerate(sent):
        seen = got[f"body{number}"]
        assert (seen.queue_id, seen.queue_offset) == (one.queue_id, one.queue_offset)
        assert (seen.msg_id, seen.keys) == (one.msg_id, f"key-body{number}")
    by_key = mqadmin("queryMsgByKey", "-n", stage.servers, "-t", topic, "-k", "key-body3")
    assert sent[3].msg_id in by_key
    by_id = mqadmin("queryMsgById", "-n", stage.servers, "-t", topic, "-i", sent[3].msg_id)
    assert "key-body3" in by_id
    by_place = mqadmin(
        "queryMsgById", "-n", stage.servers, "-t", topic, "-i", sent[3].offset_msg_id
    )
    assert "key-body3" in by_place


def test_topic_when_unknown_then_the_first_send_makes_it(stage: Stage) -> None:
    """Auto-created from TBW102, and consumable at once."""
    topic = f"Made{next(_numbers)}"
    stage.send(f"sync {topic} first")
    assert [one.body for one in stage.wait_for(stage.consume(topic), 1)] == ["first"]


@pytest.mark.parametrize("kind", ["async", "oneway", "batch"])
def test_many_when_sent_then_each_is_consumed_once(stage: Stage, kind: str) -> None:
    """64 and more in flight; one-way without answers; a batch as single messages with own ids."""
    topic = stage.topic()
    answer = stage.peer.ask(f"{kind} {topic} 100 m")
    got = stage.wait_for(stage.consume(topic), 100)
    assert sorted(one.body for one in got) == sorted(f"m-{n}" for n in range(100))
    shares_key = kind == "batch" and stage.batch_shares_key
    assert len({one.msg_id for one in got}) == (1 if shares_key else 100)
    if kind == "batch":
        first = int(answer.split(":")[1])
        ordered = sorted(got, key=lambda one: one.queue_offset)
        assert [one.queue_offset for one in ordered] == list(range(first, first + 100))
        assert [one.body for one in ordered] == [f"m-{n}" for n in range(100)]


def test_ordered_when_selected_by_key_then_each_order_keeps_its_steps(stage: Stage) -> None:
    """The selector's queue is the one that the message lands in."""
    topic = stage.topic()
    stage.peer.ask(f"ordered {topic} 6 5")
    got = stage.wait_for(stage.consume(topic), 30)
    for order in range(6):
        own = sorted(
            (o for o in got if o.body.startswith(f"{order}/")), key=lambda o: o.queue_offset
        )
        assert [one.body for one in own] == [f"{order}/{step}" for step in range(5)]
        assert len({one.queue_id for one in own}) == 1


def test_large_body_when_compressed_by_the_client_then_untouched(stage: Stage) -> None:
    """The broker must not look into a body."""
    topic = stage.topic()
    stage.peer.ask(f"big {topic} 500000")
    assert [one.body for one in stage.wait_for(stage.consume(topic), 1)] == ["500000x"]


def test_delayed_when_sent_then_not_before_its_level(stage: Stage) -> None:
    """Level 3 is 3 s here."""
    topic = stage.topic()
    name = stage.consume(topic)
    began_ms = time.time() * 1000
    stage.send(f"sync {topic} later delay=3")
    (one,) = stage.wait_for(name, 1)
    assert 3_000 <= one.stored_ms - began_ms < 4_500


@pytest.mark.parametrize("stage", ["5.3.3"], indirect=True)  # 4.9.8 has neither
def test_timer_when_sent_then_at_its_time_unless_recalled(stage: Stage) -> None:
    """Seconds and moments; what is recalled in time never comes."""
    topic = stage.topic()
    name = stage.consume(topic)
    began_ms = time.time() * 1000
    recalled = stage.send(f"sync {topic} recalled seconds=4")
    stage.send(f"sync {topic} seconds seconds=3")
    moment = int(began_ms) + 5_000
    stage.send(f"sync {topic} moment at={moment}")
    assert stage.peer.ask(f"recall {topic} {recalled.recall_handle}") == recalled.msg_id
    got = {one.body: one for one in stage.wait_for(name, 2)}
    assert set(got) == {"seconds", "moment"}
    assert 2_000 <= got["seconds"].stored_ms - began_ms < 4_000
    assert moment - 1_000 <= got["moment"].stored_ms < moment + 1_000


def test_transactions_when_decided_at_once_then_committed_ones_only(stage: Stage) -> None:
    """37 right after the send."""
    topic = stage.topic()
    name = stage.consume(topic)
    stage.send(f"transaction {topic} good commit")
    stage.send(f"transaction {topic} bad rollback")
    stage.send(f"transaction {topic} fine commit")
    got = stage.wait_for(name, 2)
    assert sorted(one.body for one in got) == ["fine", "good"]
    assert all(one.transaction_id == one.msg_id for one in got)


def test_transactions_when_undecided_then_the_producer_is_asked(stage: Stage) -> None:
    """39, and 37 in answer to it: commit, rollback, and commit at the second question."""
    topic = stage.topic()
    name = stage.consume(topic)
    for body in ("yes1", "no1", "second1"):
        stage.send(f"transaction {topic} {body} unknown")
    got = stage.wait_for(name, 2)
    assert sorted(one.body for one in got) == ["second1", "yes1"]
    assert [stage.peer.ask(f"checks {body}") for body in ("yes1", "no1", "second1")] == [
        "1", "1", "2",
    ]  # fmt: skip
    # Another round of questions asks about none of them again.
    stage.send(f"transaction {topic} yes2 unknown")
    stage.wait_for(name, 3)
    assert stage.peer.ask("checks yes1") == "1"
    assert len(stage.got(name)) == 3


def test_request_when_sent_then_the_reply_comes_back(stage: Stage) -> None:
    """324 or 325 of the responder, 326 to the requester, and a record for whoever looks later."""
    topic, body = stage.topic(), f"question{next(_numbers)}"
    stage.peer.ask(f"responder {topic}")
    assert stage.peer.ask(f"request {topic} {body}") == f"re:{body}"
    with wire.Connection(stage.broker.address) as connection:
        replies = f"{CLUSTER_NAME}_REPLY_TOPIC"

        def stored() -> list[bytes]:
            return [one.body for one in wire.pull_queue(connection, replies, 0)]

        wait_until(lambda: f"re:{body}".encode() in stored(), 10.0, "the reply in its topic")


def test_message_when_it_keeps_failing_then_retries_and_the_dead_letters(stage: Stage) -> None:
    """36 with a growing count; after two retries it is in %DLQ%."""
    topic = stage.topic()
    name = stage.consume(topic, failures=9)
    stage.send(f"sync {topic} poison")
    got = stage.wait_for(name, 3)
    assert [one.reconsume_times for one in got] == [0, 1, 2]
    dead = stage.consume(f"%DLQ%{name}")
    assert [one.body for one in stage.wait_for(dead, 1)] == ["poison"]
    assert len(stage.got(name)) == 3
