"""One broker without controllers and its name server, ours or Java's, for tests of clients.

``RMQHA_INTEROP_JAVA_BROKER=1`` adds Java's: a test that passes with both asks for what RocketMQ
does, not for what we do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from rmqha.testing.real import wire
from rmqha.testing.real.java import JavaBroker, NameServer
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import Child, allocate_ports, wait_until

BROKER = "broker-a"
KINDS = ["python", "java"] if os.environ.get("RMQHA_INTEROP_JAVA_BROKER") else ["python"]
REGISTERED_S = 40.0
ALONE: dict[str, object] = {
    "enableControllerMode": False, "brokerRole": "ASYNC_MASTER", "brokerId": 0,
    "flushConsumerOffsetInterval": 500,
}  # fmt: skip


class JavaAlone(JavaBroker):
    """A Java broker without controllers."""

    def __init__(
        self, home: Path, name_server: str, broker_name: str = BROKER, **settings: object
    ) -> None:
        super().__init__(
            home, allocate_ports(), 1, name_server, "", broker_name=broker_name,
            settings={**ALONE, **settings},
        )  # fmt: skip


class AloneBroker(JavaAlone):
    """``bin/mqbroker`` with the same properties."""

    def __init__(
        self, home: Path, name_server: str, broker_name: str = BROKER, **settings: object
    ) -> None:
        super().__init__(home, name_server, broker_name, **settings)
        config = self.home / "broker.properties"
        command = [sys.executable, "-m", "rmqha.cli.mqbroker", "-c", str(config)]
        self.child = Child("python1", command, self.home / "out.log")


class Alone:
    """Both processes, running while the context is entered.

    Args:
        kind: ``python`` or ``java``, for both.
        folder: of their files.
        naming: further properties of a name server of ours.
        settings: further properties of the broker.
    """

    def __init__(
        self,
        kind: str,
        folder: Path,
        naming: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        self.kind = kind
        port = allocate_ports()[0]
        self.name_server: NameServer | PythonNameServer
        if kind == "java":
            self.name_server = NameServer(folder / "namesrv", port)
        else:
            self.name_server = PythonNameServer(folder / "namesrv", port, naming)
        self.servers = self.name_server.address
        make = JavaAlone if kind == "java" else AloneBroker
        self.broker: JavaBroker = make(folder / "broker", self.servers, **settings)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.child.kill()
        self.name_server.child.kill()

    def _start(self) -> None:
        self.name_server.start()
        self.name_server.wait_ready()
        self.broker.start()
        self.broker.wait_ready()
        with wire.Connection(self.servers) as connection:
            wait_until(
                lambda: wire.broker_addresses(connection, BROKER, BROKER),
                REGISTERED_S,
                "the broker",
            )


def new_topic(broker: JavaBroker, servers: str, name: str, queues: int) -> None:
    """Make a topic at the broker; its answer comes when the name server lists it."""
    with wire.Connection(broker.address) as connection:
        wire.create_topic(connection, name, queues)
    with wire.Connection(servers) as connection:
        assert wire.broker_addresses(connection, name, BROKER), f"no route of {name}"


def is_active(connection: wire.Connection) -> bool:
    """Whether a broker serves as a master."""
    try:
        table = connection.ask(28).json()["table"]
    except (OSError, wire.Refused):
        return False  # Java's is slow to answer right after its start
    return bool(table["brokerActive"] == "true")
