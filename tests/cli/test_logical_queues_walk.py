"""The walk through docs/logical-queues.md, command by command, on three broker sets of ours."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.java import CLUSTER_NAME
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import allocate_ports, wait_until
from tests.cli.nodes import ROOT
from tests.interop.alone import AloneBroker

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "logical-queues.md"
TOPIC = "Orders"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[PythonNameServer]:
    """A name server."""
    server = PythonNameServer(tmp_path / "namesrv", allocate_ports()[0])
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.child.kill()


def start(name: str, folder: Path, server: PythonNameServer) -> AloneBroker:
    """A broker set of one broker, known to the name server."""
    broker = AloneBroker(folder / name, server.address, name)
    broker.start()
    broker.wait_ready()
    with wire.Connection(server.address) as connection:
        wait_until(lambda: wire.broker_addresses(connection, name, name), 20.0, name)
    return broker


def commands() -> list[list[str]]:
    """Every command of the page's walk, in order."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines() if line]


def run(words: list[str], server: PythonNameServer, *more: str) -> str:
    """Type a command; it must succeed."""
    done = subprocess.run(
        [ROOT / words[0], *words[1:], *more], capture_output=True, text=True, timeout=60,
        check=False, env={**os.environ, "NAMESRV_ADDR": server.address}, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def leaders(server: PythonNameServer) -> dict[int, str]:
    """Which broker set leads each logical queue, as clients are told."""
    with wire.Connection(server.address) as connection:
        route: Any = connection.ask(105, {"topic": TOPIC, "acceptStandardJsonOnly": "true"}).json()
    newest: dict[int, tuple[int, str]] = {}
    for name, info in (route.get("topicQueueMappingByBroker") or {}).items():
        for logical in info["currIdMap"]:
            newest[int(logical)] = max(newest.get(int(logical), (0, "")), (info["epoch"], name))
    return {logical: name for logical, (_, name) in sorted(newest.items())}


def test_page_when_it_is_typed_then_queues_are_where_it_says(
    servers: PythonNameServer, tmp_path: Path
) -> None:
    """A page whose commands fail is worse than none."""
    brokers = [start(name, tmp_path, servers) for name in ("broker-a", "broker-b")]
    try:
        create, query, rehearse, out, drain, again, grow = commands()
        assert CLUSTER_NAME in out
        run(create, servers)
        shown = run(query, servers)
        assert shown.count("Normal") == 6
        assert sorted(leaders(servers).values()) == ["broker-a"] * 3 + ["broker-b"] * 3
        brokers.append(start("broker-c", tmp_path, servers))
        before = leaders(servers)
        run(rehearse, servers)
        assert leaders(servers) == before
        run(out, servers)
        after = leaders(servers)
        assert sorted(after.values()) == sorted(["broker-a", "broker-b", "broker-c"] * 2)
        assert sum(before[queue] != after[queue] for queue in before) == 2
        run(drain, servers)
        assert set(leaders(servers).values()) == {"broker-b", "broker-c"}
        shown = run(again, servers)
        assert shown.count("Normal") == 6
        assert "Expired" in shown  # nothing was sent
        run(grow, servers)
        assert sorted(leaders(servers)) == list(range(8))
        rows = json.loads(run(query, servers, "--json"))
        assert rows
    finally:
        for broker in brokers:
            broker.child.kill()
