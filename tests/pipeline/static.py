"""A static topic on broker sets of one broker each, made and moved by ``bin/mqadmin``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqha.store import properties as props
from rmqha.testing.real import wire
from rmqha.testing.real.java import JavaBroker, NameServer
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import allocate_ports, wait_until
from tests.cli.nodes import ROOT
from tests.interop.alone import AloneBroker

NAMES = ("broker-a", "broker-b")
LEADERS_S = 20.0
BORN_MS = 1_700_000_000_123


class StaticTopics:
    """Two broker sets and their name server, running while ``opened``.

    Attributes:
        server: the name server.
        brokers: by name.
    """

    def __init__(
        self, server: NameServer | PythonNameServer, brokers: Mapping[str, JavaBroker]
    ) -> None:
        self.server = server
        self.brokers = brokers

    @classmethod
    @contextmanager
    def opened(
        cls,
        folder: Path,
        make_server: type[NameServer | PythonNameServer] = PythonNameServer,
        makers: Sequence[type[JavaBroker]] = (AloneBroker, AloneBroker),
    ) -> Iterator[StaticTopics]:
        """Start everything, ours or Java's; kill it at the end."""
        server = make_server(folder / "namesrv", allocate_ports()[0])
        brokers: dict[str, JavaBroker] = {}
        try:
            server.start()
            server.wait_ready()
            for name, make in zip(NAMES, makers, strict=True):
                brokers[name] = make(folder / name, server.address, name)
                brokers[name].start()
            with wire.Connection(server.address) as connection:
                for name, broker in brokers.items():
                    broker.wait_ready()
                    wait_until(
                        lambda name=name: wire.broker_addresses(connection, name, name), 40.0, name
                    )
            yield cls(server, brokers)
        finally:
            for broker in brokers.values():
                broker.child.kill()
            server.child.kill()

    def admin(self, *words: str) -> None:
        """Run a command of mqadmin; it must succeed."""
        done = subprocess.run(
            [ROOT / "bin" / "mqadmin", *words], capture_output=True, text=True, timeout=60,
            check=False, env={**os.environ, "NAMESRV_ADDR": self.server.address},
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"

    def create(self, topic: str, queues: int = 2, on: str = NAMES[0]) -> None:
        """Make a topic whose queues all are on one broker set."""
        self.admin("updateStaticTopic", "-t", topic, "-qn", str(queues), "-b", on)
        wait_until(lambda: set(self.leaders(topic)) == {*range(queues)}, LEADERS_S, topic)

    def remap(self, topic: str, to: str) -> None:
        """Move all queues to a broker set."""
        self.admin("remappingStaticTopic", "-t", topic, "-b", to)
        wait_until(lambda: {*self.leaders(topic).values()} == {to}, LEADERS_S, f"{topic} at {to}")

    def leaders(self, topic: str) -> dict[int, str]:
        """Which broker set leads each logical queue, as clients are told."""
        with wire.Connection(self.server.address) as connection:
            fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
            route: Any = connection.ask(105, fields).json()
        newest: dict[int, tuple[int, str]] = {}
        for name, info in (route.get("topicQueueMappingByBroker") or {}).items():
            for logical in info["currIdMap"]:
                claim = (info["epoch"], name)
                newest[int(logical)] = max(newest.get(int(logical), (0, "")), claim)
        return {logical: name for logical, (_, name) in sorted(newest.items())}

    def send(self, topic: str, queue_id: int, body: bytes, tags: str = "TagA") -> int:
        """Send a message to a logical queue; its logical offset. It can be read on return."""
        fields = {
            "producerGroup": "tests", "topic": topic, "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4, "queueId": queue_id, "sysFlag": 0,
            "bornTimestamp": BORN_MS, "flag": 0, "properties": props.encode({"TAGS": tags}).decode(),
            "reconsumeTimes": 0, "unitMode": False, "batch": False,
        }  # fmt: skip
        address = self.brokers[self.leaders(topic)[queue_id]].address
        answer = wire.invoke(address, wire.SEND_MESSAGE, fields, body)
        assert answer.code == wire.SUCCESS, answer
        offset = int(answer.ext["queueOffset"])
        wait_until(lambda: self.end(topic, queue_id) > offset, LEADERS_S, f"{topic} at {offset}")
        return offset

    def fill(self, topic: str, numbers: range, queues: int = 2) -> dict[bytes, tuple[int, int]]:
        """Send numbered messages to the queues in turn; queue and offset of each body."""
        found = {}
        for number in numbers:
            queue_id, body = number % queues, b"%s %d" % (topic.encode(), number)
            found[body] = (queue_id, self.send(topic, queue_id, body))
        return found

    def end(self, topic: str, queue_id: int) -> int:
        """The logical offset behind a queue's last message."""
        address = self.brokers[self.leaders(topic)[queue_id]].address
        return int(wire.invoke(address, 30, {"topic": topic, "queueId": queue_id}).ext["offset"])

    def options(self, topic: str, **more: str) -> dict[str, str]:
        """What a reader needs."""
        return {"nameServer": self.server.address, "topic": topic, **more}
