"""Three broker sets of ours under one name server of ours, with Java's clients and both mqadmins."""

from __future__ import annotations

import base64
import itertools
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner

from rmqha.cli.mqadmin import main
from rmqha.testing.real import wire
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import Child, allocate_ports, wait_until
from tests.interop.alone import REGISTERED_S, JavaAlone
from tests.interop.client_peer import ClientPeer
from tests.interop.static_peer import Passed, StaticPeer

NAMES = ("broker-a", "broker-b", "broker-c")
LOGICAL = "__syslo__global__"
"""The broker name that Java's clients give all logical queues."""
BLOCK = 10_000
"""A remapped queue goes on at the next multiple of this."""
PRODUCER = "P"
SEEN_S = 40.0
ADMIN = Path(__file__).parent / "java" / "AdminPeer.java"
EVERY_HOUR = ";".join(f"{hour:02}" for hour in range(24))

_numbers = itertools.count(1)


class CleaningBroker(JavaAlone):
    """A broker of ours that looks every second for mappings to clean, at any hour."""

    def __init__(self, home: Path, name_server: str, broker_name: str) -> None:
        super().__init__(home, name_server, broker_name, deleteWhen=EVERY_HOUR)
        config = str(self.home / "broker.properties")
        command = [sys.executable, "-m", "tests.interop.cleaning_broker", "-c", config]
        self.child = Child(broker_name, command, self.home / "out.log")


@dataclass
class Stage:
    """The cluster, its clients, and whose mqadmin makes and moves topics."""

    servers: str
    java: StaticPeer
    real: ClientPeer
    addresses: dict[str, str]
    sent: dict[str, list[Passed]] = field(default_factory=dict)

    def admin(self, tool: str, command: str, topic: str, *args: str) -> str:
        """What mqadmin prints; ``tool`` is ``ours`` or ``real``. It must succeed."""
        words = [command, "-n", self.servers, "-t", topic, *args]
        if tool == "ours":
            result = CliRunner().invoke(main, words)
            assert result.exit_code == 0, f"{words}: {result.output}"
            return str(result.output)
        text = base64.b64decode(self.real.ask("\t".join(words))).decode()
        assert "Exception" not in text, f"{words}: {text}"
        return text

    def create(self, tool: str, queues: int, *where: str) -> str:
        """A new static topic, once the route has all its queues; ``where`` as mqadmin's words."""
        topic = f"Static{next(_numbers)}"
        self.admin(tool, "updateStaticTopic", topic, "-qn", str(queues), *where)
        wait_until(lambda: len(self.java.leaders(topic)) == queues, SEEN_S, f"the route of {topic}")
        return topic

    def remap(self, tool: str, topic: str, to: str) -> None:
        """Move all queues to one set, and wait until the route says so.

        After our tool no client need have asked for the route: whichever set it asks passes its
        requests on. Java's tool tells no set where the queues went on from the next one, so a
        client that has missed two moves would be refused.
        """
        self.admin(tool, "remappingStaticTopic", topic, "-b", to)
        self.wait_led(topic, to)
        if tool == "real":
            self.java.ask(f"refresh {PRODUCER} {topic}")

    def wait_led(self, topic: str, *names: str) -> None:
        """Wait until the queues are at these sets."""
        wait_until(
            lambda: {*self.java.leaders(topic).values()} == {*names}, SEEN_S, f"{topic} at {names}"
        )

    def send(self, topic: str, queues: int, count: int, begin: int) -> None:
        """Send ``count`` to each logical queue; from ``begin`` on offsets lie side by side."""
        known = self.java.ask(f"known {PRODUCER} {topic}")
        assert known == ",".join(f"{LOGICAL}:{queue}" for queue in range(queues))
        passed = self.java.passed(f"send {PRODUCER} {topic} {count} at{begin}")
        for queue in range(queues):
            offsets = [one.queue_offset for one in passed if one.queue_id == queue]
            assert offsets == [*range(begin, begin + count)], f"queue {queue}"
        # A producer is told which set it asked; that may be one that passed the message on.
        assert {one.broker_name for one in passed} <= {*NAMES}
        told = [one._replace(broker_name=LOGICAL) for one in passed]
        self.sent.setdefault(topic, []).extend(told)

    def ends_at(self, topic: str, queues: int, end: int) -> None:
        """Java's admin library finds all queues from 0 to ``end``, by either question."""
        expected = dict.fromkeys(range(queues), (0, end, 0, end))
        # Sends are answered before the queues have them.
        wait_until(lambda: self.java.ends(topic) == expected or None, SEEN_S, f"{end} in {topic}")

    def received(self, name: str, expected: list[Passed]) -> None:
        """A consumer gets exactly these, each once, under the offsets their producer was told."""
        wait_until(
            lambda: len(self.java.passed(f"got {name}")) >= len(expected), SEEN_S,
            f"{len(expected)} messages for {name}",
        )  # fmt: skip
        assert sorted(self.java.passed(f"got {name}")) == sorted(expected)


@contextmanager
def opened(folder: Path) -> Iterator[Stage]:
    """Start everything; kill it at the end."""
    server = PythonNameServer(folder / "namesrv", allocate_ports()[0])
    with ExitStack() as ends:
        ends.callback(server.child.kill)
        server.start()
        server.wait_ready()
        brokers: list[CleaningBroker] = []
        for name in NAMES:
            brokers.append(CleaningBroker(folder / name, server.address, name))
            ends.callback(brokers[-1].child.kill)
            brokers[-1].start()
        with wire.Connection(server.address) as connection:
            for broker in brokers:
                broker.wait_ready()
                name = broker.broker_name
                wait_until(
                    lambda name=name: wire.broker_addresses(connection, name, name),
                    REGISTERED_S, name,
                )  # fmt: skip
        clients = ends.enter_context(StaticPeer(folder / "clients"))
        plans = f"-Djava.io.tmpdir={folder}"
        mqadmin = ClientPeer(folder / "mqadmin", name="mqadmin", source=ADMIN, options=[plans])
        real = ends.enter_context(mqadmin)
        clients.ask(f"servers {server.address}")
        clients.ask(f"producer {PRODUCER}")
        addresses = {one.broker_name: one.address for one in brokers}
        yield Stage(server.address, clients, real, addresses)
