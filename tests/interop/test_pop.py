"""Real Java consumers in pop mode, against one broker of ours.

``RMQHA_INTEROP_JAVA_BROKER=1`` runs the same against one of Java's as well, unchanged.

Lines that ``PopPeer`` takes, beside ``producer`` and ``send NAME TOPIC COUNT PREFIX``:
``pop NAME GROUP SERVERS TOPIC ok|later|stuck INVISIBLE_MS`` starts a consumer whose broker assigns
queues; it acknowledges everything, or wants each message once more, or hangs at the first
delivery. ``got NAME`` lists ``times:offset:body`` of every delivery.

``poporder P BROKER TOPIC GROUP QUEUE COUNT INVISIBLE_MS POLL_MS ATTEMPT`` pops in order, as proxies do
through the same client; ``ackorder P TOPIC GROUP OFFSET`` and ``laterorder P TOPIC GROUP OFFSET MS``
acknowledge what came last at an offset, or want it at another time.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqha.remoting import fastjson
from rmqha.testing.real import wire
from rmqha.testing.real.java import JavaBroker
from rmqha.testing.real.mqadmin import mqadmin
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import allocate_ports, wait_until
from tests.interop import required
from tests.interop.alone import BROKER, KINDS, AloneBroker, JavaAlone, is_active, new_topic
from tests.interop.client_peer import ClientPeer, Received

SOURCE = Path(__file__).parent / "java" / "PopPeer.java"
INVISIBLE_MS = 5_000
"""The shortest that Java's client takes."""

TAKEN_OVER_MS = 20_000
"""Longer than a take-over lasts.

Java delivers what is overdue when it starts in any order, and reads an acknowledgement that comes
before its check point as none: then what was acknowledged comes once more, from Java to Java, too.
"""

REVIVED_S = 60.0
_numbers = itertools.count(1)


@dataclass
class Stage:
    """One broker, its name server and a JVM of clients."""

    broker: JavaBroker
    servers: str
    clients: ClientPeer

    def topic(self) -> str:
        """A topic, and a group of the same name that pops it, as mqadmin setConsumeMode makes it."""
        name = f"Popped{next(_numbers)}"
        new_topic(self.broker, self.servers, name, 4)
        with wire.Connection(self.broker.address) as connection:
            group = json.dumps({"groupName": name}).encode()
            connection.ask(200, {}, group)
            mode = {"topic": name, "consumerGroup": name, "mode": "POP", "popShareQueueNum": 0}
            connection.ask(401, {}, json.dumps(mode).encode())
        return name

    def pop(self, name: str, topic: str, how: str = "ok", invisible_ms: int = 60_000) -> None:
        """Start a consumer of the topic's group."""
        self.clients.ask(f"pop {name} {topic} {self.servers} {topic} {how} {invisible_ms}")

    def got(self, name: str) -> list[Received]:
        """Every delivery; ``queue_id`` says how often the message came before."""
        return self.clients.messages(f"got {name}")

    def wait_for(self, name: str, wanted: set[str], times: int, timeout_s: float = 30.0) -> None:
        """Wait until each body has come with this count."""

        def all_there() -> bool:
            return wanted <= {one.body for one in self.got(name) if one.queue_id == times}

        wait_until(all_there, timeout_s, f"{len(wanted)} deliveries at {name}")

    def in_order(
        self, topic: str, count: int, *, invisible_ms: int = 60_000, poll_ms: int = 0,
        attempt: str = "-",
    ) -> list[Received]:  # fmt: skip
        """Pop queue 0 in order; ``queue_id`` as above."""
        return self.clients.messages(
            f"poporder P {BROKER} {topic} {topic} 0 {count} {invisible_ms} {poll_ms} {attempt}"
        )

    def ack_in_order(self, topic: str, offset: int) -> None:
        """Acknowledge what came last at an offset."""
        assert self.clients.ask(f"ackorder P {topic} {topic} {offset}") == "OK"


@pytest.fixture(scope="module", params=KINDS)
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """All of it runs on our name server."""
    required.require_classpath("5.3.3")
    folder = tmp_path_factory.mktemp("pop")
    name_server = PythonNameServer(folder / "namesrv", allocate_ports()[0])
    make = AloneBroker if request.param == "python" else JavaAlone
    broker = make(folder / "broker", name_server.address, timerWheelEnable=True)
    try:
        name_server.start()
        name_server.wait_ready()
        broker.start()
        broker.wait_ready()
        with ClientPeer(folder / "clients", "5.3.3", source=SOURCE) as clients:
            with wire.Connection(name_server.address) as connection:
                wait_until(
                    lambda: wire.broker_addresses(connection, BROKER, BROKER), 30.0, "the broker"
                )
            clients.ask(f"producer P PG {name_server.address}")
            yield Stage(broker, name_server.address, clients)
    finally:
        broker.child.kill()
        name_server.child.kill()


def expected(prefix: str, count: int) -> set[str]:
    """The bodies that were sent."""
    return {f"{prefix}-{number}" for number in range(count)}


def test_pop_consumers_when_two_share_a_topic_then_each_message_comes_to_one_once(
    stage: Stage,
) -> None:
    """No queue belongs to anybody; what is acknowledged never comes again."""
    topic = stage.topic()
    stage.pop("A", topic, invisible_ms=INVISIBLE_MS)
    stage.pop("B", topic, invisible_ms=INVISIBLE_MS)
    stage.clients.ask(f"send P {topic} 40 shared")

    def both() -> list[Received]:
        return stage.got("A") + stage.got("B")

    wait_until(lambda: len(both()) >= 40, 30.0, "40 messages")
    stage.clients.ask(f"send P {topic} 1 last")
    wait_until(lambda: len(both()) >= 41, 30.0, "the last one")
    assert sorted(one.body for one in both()) == sorted(expected("shared", 40) | {"last-0"})
    assert {one.queue_id for one in both()} == {0}
    stage.clients.ask("stop A")
    stage.clients.ask("stop B")


def test_pop_consumer_when_it_wants_messages_later_then_they_come_again_counted(
    stage: Stage,
) -> None:
    """RECONSUME_LATER changes the invisible time; the next delivery is from the retry topic."""
    topic = stage.topic()
    stage.pop("L", topic, "later")
    stage.clients.ask(f"send P {topic} 6 later")
    stage.wait_for("L", expected("later", 6), 0)
    stage.wait_for("L", expected("later", 6), 1, REVIVED_S)
    stage.clients.ask("stop L")


def test_pop_consumer_when_it_hangs_and_the_broker_is_killed_then_another_gets_its_messages(
    stage: Stage,
) -> None:
    """Nothing was acknowledged: the check points alone remember, over kill -9 and a restart."""
    topic = stage.topic()
    stage.pop("S", topic, "stuck", INVISIBLE_MS)
    stage.clients.ask(f"send P {topic} 5 stuck")
    stage.wait_for("S", expected("stuck", 5), 0)
    stage.broker.child.kill()
    stage.broker.start()
    stage.broker.wait_ready()
    stage.pop("T", topic)
    wait_until(
        lambda: expected("stuck", 5) <= {one.body for one in stage.got("S") + stage.got("T")
                                         if one.queue_id > 0 or one in stage.got("T")},
        REVIVED_S + 30,
        "the messages again",
    )  # fmt: skip
    stage.clients.ask("stop T")


def test_consume_mode_when_set_by_mqadmin_then_the_broker_assigns_pops(stage: Stage) -> None:
    """The real mqadmin setConsumeMode; before it the group pulls, and works as well."""
    topic = f"Popped{next(_numbers)}"
    with wire.Connection(stage.broker.address) as connection:
        wire.create_topic(connection, topic, 2)
        connection.ask(200, {}, json.dumps({"groupName": topic}).encode())
        asked = {
            "topic": topic, "consumerGroup": topic, "clientId": "me", "strategyName": "AVG",
            "messageModel": "CLUSTERING",
        }  # fmt: skip
        with wire.Connection(stage.servers) as names:
            wait_until(
                lambda: wire.broker_addresses(names, topic, BROKER), 15.0, f"a route of {topic}"
            )
        stage.pop("M", topic)
        stage.clients.ask(f"send P {topic} 3 pulled")
        stage.wait_for("M", expected("pulled", 3), 0, 40.0)
        said = mqadmin(
            "setConsumeMode", "-n", stage.servers, "-b", stage.broker.address, "-t", topic,
            "-g", topic, "-m", "POP",
        )  # fmt: skip
        assert f"set consume mode to {stage.broker.address} success." in said

        def assigned() -> list[object]:
            body = json.dumps(asked).encode()
            return list(connection.ask(400, {}, body).json().get("messageQueueAssignments") or ())

        wanted = {
            "messageQueue": {"brokerName": BROKER, "queueId": -1, "topic": topic}, "mode": "POP",
        }  # fmt: skip
        wait_until(lambda: assigned() == [wanted], 10.0, "an assignment to pop")
        stage.clients.ask("stop M")


def test_order_when_popped_by_javas_client_then_the_queue_waits_for_each_message(
    stage: Stage,
) -> None:
    """What proxies do for FIFO consumers: blocked, acknowledged, wanted later, over, attempts."""
    topic = stage.topic()
    with wire.Connection(stage.broker.address) as connection:
        for number in range(6):
            body, key = f"o-{number}".encode(), f"K{number}"
            wire.send_message(connection, topic, 0, body, keys=key, default_queues=1)
    stage.clients.ask(f"send P {stage.topic()} 1 route")  # then the client knows the broker

    def popped(*texts: str) -> list[tuple[int, int]]:
        found = stage.in_order(topic, 2)
        assert [one.body for one in found] == list(texts)
        return [(one.queue_id, one.queue_offset) for one in found]

    wait_until(lambda: stage.in_order(topic, 2, attempt="same"), 10.0, "the first two")
    assert popped() == []
    assert [one.queue_offset for one in stage.in_order(topic, 2, attempt="same")] == [0, 1]
    stage.ack_in_order(topic, 1)
    assert popped() == []
    stage.ack_in_order(topic, 0)
    assert popped("o-2", "o-3") == [(0, 2), (0, 3)]
    stage.ack_in_order(topic, 2)
    begun = time.monotonic()
    assert stage.clients.ask(f"laterorder P {topic} {topic} 3 1500") == "OK"
    assert popped() == []
    # What is held is answered when the time is over, and not when the poll is.
    (again, *_) = stage.in_order(topic, 2, poll_ms=8_000)
    assert (again.queue_id, again.queue_offset) == (1, 3)
    assert 1.4 < time.monotonic() - begun < 5.0
    stage.ack_in_order(topic, 3)
    stage.ack_in_order(topic, 4)
    assert popped("o-5") == [(0, 5)]
    kept = stage.broker.store / "config" / "consumerOrderInfo.json"

    def written() -> dict[str, object]:
        table = fastjson.loads(kept.read_bytes())["table"] if kept.exists() else {}
        return dict(table.get(f"{topic}@{topic}", {}).get("0", {}))

    wait_until(written, 20.0, f"{topic} in {kept}")
    assert set(written()) >= {"cm", "i", "l", "o", "popTime"}


def test_peek_when_asked_then_messages_are_shown_and_stay(stage: Stage) -> None:
    """200052 by hand, for no client of Java has it."""
    topic = stage.topic()
    fields = {"consumerGroup": topic, "topic": topic, "queueId": 0, "maxMsgNums": 2}
    with wire.Connection(stage.broker.address) as connection:
        nothing = connection.invoke(200052, fields)
        assert (nothing.code, nothing.remark) == (19, "NO_MESSAGE_IN_QUEUE")
        for number in range(3):
            body, key = f"p-{number}".encode(), f"K{number}"
            wire.send_message(connection, topic, 0, body, keys=key, default_queues=1)

        def shown() -> list[bytes]:
            answer = connection.invoke(200052, fields)
            assert answer.code in (0, 19)
            return [one.body for one in wire.parse_messages(answer.body)]

        wait_until(lambda: shown() == [b"p-0", b"p-1"], 10.0, "two messages")
        assert shown() == [b"p-0", b"p-1"]
        answer = connection.invoke(200052, fields)
        assert {name: answer.ext[name] for name in ("restNum", "popTime", "reviveQid")} == {
            "restNum": "3", "popTime": "0", "reviveQid": "0",
        }  # fmt: skip
        codes = [
            connection.invoke(200052, {**fields, **more}).code
            for more in ({"topic": "Nowhere"}, {"queueId": 9}, {"consumerGroup": "no group"})
        ]
        assert codes == [17, 29, 26]


class Handed(NamedTuple):
    """An answer to 200050."""

    messages: list[wire.Stored]
    fields: Mapping[str, str]


def pop_all(connection: wire.Connection, topic: str, invisible_ms: int = INVISIBLE_MS) -> Handed:
    """Pop without waiting."""
    answer = connection.invoke(200050, {
        "consumerGroup": topic, "topic": topic, "queueId": -1, "maxMsgNums": 32,
        "invisibleTime": invisible_ms, "pollTime": 0, "bornTime": int(time.time() * 1000),
        "initMode": 0, "expType": "TAG", "exp": "*",
    })  # fmt: skip
    return Handed(wire.parse_messages(answer.body) if answer.code == 0 else [], answer.ext)


@pytest.mark.parametrize("ours_first", [True, False], ids=["python then java", "java then python"])
def test_check_points_when_the_other_kind_takes_the_store_over_then_it_goes_on_with_them(
    ours_first: bool, tmp_path: Path
) -> None:
    """What replicas of a mixed set do to each other: the log is all that the next master has."""
    required.require_classpath("5.3.3")
    topic, store = "Handed", tmp_path / "store"
    name_server = PythonNameServer(tmp_path / "namesrv", allocate_ports()[0])
    kinds = (AloneBroker, JavaAlone) if ours_first else (JavaAlone, AloneBroker)
    brokers: list[JavaBroker] = [
        kind(
            tmp_path / kind.__name__, name_server.address, timerWheelEnable=True,
            storePathRootDir=store, storePathCommitLog=store / "commitlog",
            flushConsumerOffsetInterval=500,
        )
        for kind in kinds
    ]  # fmt: skip
    try:
        name_server.start()
        name_server.wait_ready()
        first, second = brokers
        first.start()
        first.wait_ready()
        with wire.Connection(first.address) as connection:
            wait_until(lambda: is_active(connection), 20.0, "the first broker")
            wire.create_topic(connection, topic, 1)
            connection.ask(200, {}, json.dumps({"groupName": topic}).encode())
            for number in range(4):
                body, key = f"handed-{number}".encode(), f"K{number}"
                wire.send_message(connection, topic, 0, body, keys=key, default_queues=1)
            end = {"topic": topic, "queueId": 0}
            # A queue shows what was sent a moment after the answer, with Java, too.
            wait_until(lambda: connection.ask(30, end).ext["offset"] == "4", 10.0, "all four")
            popped: list[Handed] = []

            def four() -> bool:
                popped.append(pop_all(connection, topic, TAKEN_OVER_MS))
                return sum(len(one.messages) for one in popped) == 4

            wait_until(four, 10.0, "four messages")
            acked = next(one for one in popped if one.messages)
            said = acked.fields
            start = said["startOffsetInfo"].split(" ")[2]
            key = f"{start} {said['popTime']} {said['invisibleTime']} {said['reviveQid']} 0"
            offset = acked.messages[0].queue_offset
            connection.ask(200051, {
                "consumerGroup": topic, "topic": topic, "queueId": 0, "offset": offset,
                "extraInfo": f"{key} {BROKER} 0 {offset}",
            })  # fmt: skip
        kept = store / "config" / "consumerOffset.json"
        wait_until(
            lambda: kept.exists() and "0:4" in "".join(kept.read_text().replace('"', "").split()),
            20.0,
            "the kept offset",
        )
        first.child.kill()
        second.start()
        second.wait_ready()
        found: list[str] = []
        with wire.Connection(second.address) as connection:
            wait_until(lambda: is_active(connection), 30.0, "the second broker")

            def again() -> bool:
                found.extend(one.body.decode() for one in pop_all(connection, topic).messages)
                return len(set(found)) >= 3

            wait_until(again, REVIVED_S, "what was not acknowledged", 0.3)
        assert set(found) == expected("handed", 4) - {acked.messages[0].body.decode()}
    finally:
        for broker in brokers:
            broker.child.kill()
        name_server.child.kill()
