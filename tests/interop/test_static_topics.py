"""Static topics: the real mqadmin on clusters of ours and mixed ones, ours on a cluster of Java's.

Real clients of 5.3.3 send and consume through remaps. ``RMQHA_INTEROP_JAVA_BROKER=1`` runs the same
with the real mqadmin on Java's brokers.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.java import JavaBroker, NameServer
from rmqha.testing.real.mqadmin import mqadmin
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import allocate_ports, wait_until
from tests.interop import required
from tests.interop.alone import AloneBroker, JavaAlone
from tests.interop.client_peer import ClientPeer
from tests.interop.our_mqadmin import our_mqadmin
from tests.interop.peers import PeerError

QUEUES = 4
NAMES = ("broker-a", "broker-b")
KINDS = {
    "python": (PythonNameServer, AloneBroker, AloneBroker),
    "mixed": (NameServer, JavaAlone, AloneBroker),
    "java": (NameServer, JavaAlone, JavaAlone),
    "java, our mqadmin": (NameServer, JavaAlone, JavaAlone),
}
SHOWN = ["python", "mixed", "java, our mqadmin"] + ["java"] * bool(
    os.environ.get("RMQHA_INTEROP_JAVA_BROKER")
)
ROUTE_S = 40.0
"""Clients look at routes every 30 s."""

_numbers = itertools.count(1)


@dataclass
class Stage:
    """Two broker sets of one broker each, a name server, and clients of 5.3.3."""

    kind: str
    servers: str
    brokers: tuple[JavaBroker, JavaBroker]
    clients: ClientPeer

    def admin(self, command: str, topic: str, *args: str) -> str:
        """What mqadmin prints."""
        words = (command, "-n", self.servers, "-t", topic, *args)
        if self.kind.endswith("our mqadmin"):
            return our_mqadmin(*words)
        text = mqadmin(*words)
        assert "Exception" not in text, text
        return text

    def static_topic(self, on: str = NAMES[0]) -> str:
        """A topic of four logical queues on one broker set."""
        topic = f"Static{next(_numbers)}"
        self.admin("updateStaticTopic", topic, "-b", on, "-qn", str(QUEUES))
        self.wait_for_leaders(topic, {on})
        return topic

    def remap(self, topic: str, *to: str) -> None:
        """Have mqadmin move the queues."""
        self.admin("remappingStaticTopic", topic, "-b", ",".join(to))
        self.wait_for_leaders(topic, set(to))

    def wait_for_leaders(self, topic: str, names: set[str]) -> None:
        """Wait until the name server has every logical queue at these sets."""

        def known() -> bool:
            with wire.Connection(self.servers) as connection:
                route = connection.ask(
                    105, {"topic": topic, "acceptStandardJsonOnly": "true"}
                ).json()
            mapped = route.get("topicQueueMappingByBroker") or {}
            ids = {
                int(logical): name
                for name, info in mapped.items()
                for logical in (info.get("currIdMap") or {})
            }
            return len(ids) == QUEUES and set(ids.values()) == names

        wait_until(known, 20.0, f"{topic} at {names}")


@pytest.fixture(scope="module", params=SHOWN)
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """A cluster of one kind."""
    required.require_classpath()
    folder: Path = tmp_path_factory.mktemp("static")
    make_server, *makers = KINDS[request.param]
    server = make_server(folder / "namesrv", allocate_ports()[0])
    brokers = [
        make(folder / name, server.address, name) for make, name in zip(makers, NAMES, strict=True)
    ]
    clients = ClientPeer(folder / "clients")
    started: list[JavaBroker] = []
    try:
        server.start()
        server.wait_ready()
        for broker in brokers:
            broker.start()
            started.append(broker)
        for broker in brokers:
            broker.wait_ready()
            with wire.Connection(server.address) as connection:
                wait_until(
                    lambda broker=broker: wire.broker_addresses(
                        connection, broker.broker_name, broker.broker_name
                    ),
                    40.0,
                    "the broker",
                )
        with clients:
            clients.ask(f"producer P PG {server.address}")
            yield Stage(request.param, server.address, (brokers[0], brokers[1]), clients)
    finally:
        for broker in started:
            broker.child.kill()
        server.child.kill()


def test_topic_when_made_by_mqadmin_then_java_clients_use_it(stage: Stage) -> None:
    """Logical numbers for producer and consumer, whatever lies below."""
    topic = stage.static_topic()
    for queue in range(QUEUES):
        stage.clients.ask(f"send P {topic} {queue} 5 q{queue}")
    stage.clients.ask(
        f"push C-{topic} G-{topic} {stage.servers} {topic} * clustering orderly first"
    )
    expected = {f"q{queue}-{number}" for queue in range(QUEUES) for number in range(5)}
    wait_until(
        lambda: set(stage.clients.bodies(f"got C-{topic}")) == expected, 40.0, "all messages"
    )
    stage.clients.ask(f"stop C-{topic}")


def test_queues_when_remapped_by_mqadmin_then_nothing_is_lost_or_reordered(
    stage: Stage,
) -> None:
    """There and back again, with messages between, and a consumer that is restarted."""
    topic = stage.static_topic()
    name, group = f"C-{topic}", f"G-{topic}"
    start = f"push {name} {group} {stage.servers} {topic} * clustering orderly first"
    stage.clients.ask(start)
    sent: list[str] = []
    for number, to in enumerate(("", NAMES[1], NAMES[0], "both")):
        if to:
            stage.remap(topic, *(NAMES if to == "both" else (to,)))
        for queue in range(QUEUES):
            prefix = f"r{number}q{queue}"
            _send(stage, topic, queue, prefix)
            sent += [f"{prefix}-{one}" for one in range(5)]
        wait_for(stage, name, len(sent), f"after remap {number}")
    got = stage.clients.messages(f"got {name}")
    assert sorted({one.body for one in got}) == sorted(sent)
    for queue in range(QUEUES):
        offsets = [one.queue_offset for one in got if one.queue_id == queue]
        bodies = [one.body for one in got if one.queue_id == queue]
        assert offsets == sorted(offsets), f"queue {queue}: {offsets}"
        assert bodies == [one for one in sent if one[3] == str(queue)], f"queue {queue}"
    stage.clients.ask(f"stop {name}")
    # Whoever comes back goes on where the group was.
    stage.clients.ask(start)
    _send(stage, topic, 2, "more")
    wait_until(
        lambda: len(stage.clients.bodies(f"got {name}")) >= 5, ROUTE_S, "messages after a restart"
    )
    assert stage.clients.bodies(f"got {name}") == [f"more-{number}" for number in range(5)]
    stage.clients.ask(f"stop {name}")


def wait_for(stage: Stage, name: str, count: int, when: str) -> None:
    """Wait until a consumer has received so many different bodies."""
    wait_until(
        lambda: len(set(stage.clients.bodies(f"got {name}"))) >= count, ROUTE_S + 20,
        f"{count} messages {when}",
    )  # fmt: skip


def _send(stage: Stage, topic: str, queue: int, prefix: str) -> None:
    """Send by a producer that may have heard of a remap or not.

    Java's brokers refuse the first message of those who have not; brokers of ours refuse nobody.
    """

    def is_sent() -> bool:
        try:
            stage.clients.ask(f"send P {topic} {queue} 5 {prefix}")
        except PeerError as error:
            if stage.kind == "python" or "CODE: 501" not in str(error):
                raise
            return False
        return True

    wait_until(is_sent, ROUTE_S, f"the producer to find queue {queue}")
