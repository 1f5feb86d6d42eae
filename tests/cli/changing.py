"""A group of controller processes that changes, and a client that asks it meanwhile."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from pathlib import Path

from click.testing import CliRunner, Result

from rmqha.cli.mqadmin import main
from rmqha.testing.real import wire
from tests.cli.nodes import GET_METADATA_INFO, GET_REPLICA_INFO, Group, Node


def joiner(trio: Group, folder: Path, number: int) -> Node:
    """A node more, whose file names the founders and itself."""
    port = trio.spare_ports.pop()
    name = f"n{number}"
    founders = trio.nodes[0].properties["controllerDLegerPeers"]
    node = Node(folder, name, port, {
        **trio.nodes[0].properties,
        "controllerDLegerPeers": f"{founders};{name}-127.0.0.1:{port}",
        "controllerDLegerSelfId": name,
        "controllerStorePath": str(folder / f"store{number}"),
        "configStorePath": str(folder / f"stored{number}" / "controller.properties"),
    })  # fmt: skip
    trio.nodes.append(node)
    return node.start().wait_boot()


def mqadmin(*line: str) -> Result:
    return CliRunner().invoke(main, [*line])


def done(*line: str) -> dict[str, str]:
    result = mqadmin(*line, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, str] = json.loads(result.stdout)
    return found


class Reader(threading.Thread):
    """Asks for a set's master again and again, as a broker does: of whoever leads."""

    def __init__(self, addresses: list[str], name: str) -> None:
        super().__init__()
        self.addresses = addresses
        self.set_name = name
        self.over = threading.Event()
        self.answers = 0
        self.refused = 0
        self.wrong: list[str] = []
        self.longest_s = 0.0

    def take_longest_s(self) -> float:
        """The longest time between two answers since this was asked last."""
        longest_s, self.longest_s = self.longest_s, 0.0
        return longest_s

    def run(self) -> None:
        """Until ``over`` is set."""
        last_s = time.monotonic()
        while not self.over.is_set():
            for address in self._leaders():
                last_s = self._read_from(address, last_s)

    def _leaders(self) -> list[str]:
        for address in [*self.addresses]:
            try:
                ext = wire.invoke(address, GET_METADATA_INFO).ext
            except OSError:
                continue
            if ext.get("controllerLeaderAddress"):
                return [ext["controllerLeaderAddress"]]
        return []

    def _read_from(self, address: str, last_s: float) -> float:
        try:
            with contextlib.closing(wire.Connection(address)) as connection:
                return self._ask(connection, last_s)
        except OSError:
            return last_s

    def _ask(self, connection: wire.Connection, last_s: float) -> float:
        while not self.over.is_set():
            answer = connection.invoke(GET_REPLICA_INFO, {"brokerName": self.set_name})
            if answer.code == 2007:
                break
            now_s = time.monotonic()
            self.answers += 1
            self.longest_s = max(self.longest_s, now_s - last_s)
            last_s = now_s
            if answer.code != 0 or answer.ext.get("masterBrokerId") != "1":
                self.wrong.append(str(answer))
        return last_s
