"""Real Java consumers in pop mode, against one broker of ours and, unchanged, one of Java's.

Lines that ``PopPeer`` takes, beside ``producer`` and ``send NAME TOPIC COUNT PREFIX``:
``pop NAME GROUP SERVERS TOPIC ok|later|stuck INVISIBLE_MS`` starts a consumer whose broker assigns
queues; it acknowledges everything, or wants each message once more, or hangs at the first
delivery. ``got NAME`` lists ``times:offset:body`` of every delivery.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.java import JavaBroker
from rmqha.testing.real.mqadmin import mqadmin
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import allocate_ports, wait_until
from tests.interop import required
from tests.interop.client_peer import ClientPeer, Received
from tests.interop.test_consumers import BROKER, AloneBroker

SOURCE = Path(__file__).parent / "java" / "PopPeer.java"
INVISIBLE_MS = 5_000
"""The shortest that Java's client takes."""

REVIVED_S = 40.0
_numbers = itertools.count(1)


class JavaAlone(JavaBroker):
    """A Java broker without controllers."""

    def __init__(self, home: Path, name_server: str, **settings: object) -> None:
        super().__init__(
            home, allocate_ports(), 1, name_server, "", broker_name=BROKER,
            settings={
                "enableControllerMode": False, "brokerRole": "ASYNC_MASTER", "brokerId": 0,
                "flushConsumerOffsetInterval": 500, **settings,
            },
        )  # fmt: skip


@dataclass
class Stage:
    """One broker, its name server and a JVM of clients."""

    broker: JavaBroker
    servers: str
    clients: ClientPeer

    def topic(self) -> str:
        """A topic, and a group of the same name that pops it, as mqadmin setConsumeMode makes it."""
        name = f"Popped{next(_numbers)}"
        with wire.Connection(self.broker.address) as connection:
            wire.create_topic(connection, name, 4)
            group = json.dumps({"groupName": name}).encode()
            connection.ask(200, {}, group)
            mode = {"topic": name, "consumerGroup": name, "mode": "POP", "popShareQueueNum": 0}
            connection.ask(401, {}, json.dumps(mode).encode())
        with wire.Connection(self.servers) as connection:
            wait_until(
                lambda: wire.broker_addresses(connection, name, BROKER), 15.0, f"a route of {name}"
            )
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


BOTH = pytest.mark.parametrize("stage", ["python", "java"], indirect=True)
OURS = pytest.mark.parametrize("stage", ["python"], indirect=True)
"""They pass against Java's broker, too; its start and its pauses cost CI a minute."""


@pytest.fixture(scope="module")
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


@BOTH
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


@OURS
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


@BOTH
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


@OURS
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
