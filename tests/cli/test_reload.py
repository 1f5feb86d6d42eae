"""SIGHUP: controllers, brokers and name servers read their files again."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.processes import Child, wait_until
from tests.bench.fortress import OPEN, Fortress

pytestmark = pytest.mark.slow

SEEN_S = 10.0
GET_NAMESRV_CONFIG, GET_BROKER_CONFIG, GET_CONTROLLER_CONFIG = 319, 26, 1010


@pytest.fixture(scope="module")
def fortress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    """Servers that were started by their commands."""
    with Fortress(tmp_path_factory.mktemp("reload"), OPEN, replicas=1) as made:
        yield made


def lines(node: Child, event: str) -> list[dict[str, Any]]:
    """What a process's log says of an event."""
    found = [json.loads(line) for line in node.log.read_text().splitlines() if line[:1] == "{"]
    return [one for one in found if one["event"] == event]


def file_of(node: Child) -> Path:
    """The properties file that it was started with."""
    command = Path(f"/proc/{node.pid}/cmdline").read_bytes().split(b"\0")
    return Path(command[command.index(b"-c") + 1].decode())


def reloaded(node: Child, event: str = "config_reloaded") -> dict[str, Any]:
    """Have a process read its file; the line that says what came of it."""
    before = len(lines(node, event))
    os.kill(node.pid, signal.SIGHUP)
    wait_until(lambda: len(lines(node, event)) > before, SEEN_S, f"{event} of {node.name}")
    return lines(node, event)[-1]


def counts(address: str, code: int) -> dict[str, str]:
    """The values that count, by the server's own word."""
    with wire.Connection(address) as connection:
        text = connection.ask(code, {}).body.decode()
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


@pytest.mark.parametrize(
    ("name", "code", "key", "value", "fixed"),
    [
        ("rmqha-n0", GET_CONTROLLER_CONFIG, "enableElectUncleanMaster", "true", "raftLeaseMs"),
        ("namesrv", GET_NAMESRV_CONFIG, "enableTopicList", "false", "routesMax"),
        ("broker1", GET_BROKER_CONFIG, "shortPollingTimeMills", "777", "heldPullsMax"),
    ],
)
def test_file_when_changed_then_what_may_change_counts_and_the_rest_is_named(
    fortress: Fortress, name: str, code: int, key: str, value: str, fixed: str
) -> None:
    """A value that cannot be, and a file that cannot be read, change nothing and end nobody."""
    (node,) = [one for one in fortress.children if one.name == name]
    address = {
        "rmqha-n0": fortress.controllers.addresses[0], "namesrv": fortress.name_server.address,
        "broker1": fortress.brokers[0].address,
    }[name]  # fmt: skip
    path = file_of(node)
    original = path.read_text()
    assert reloaded(node)["changed"] == {}
    before = counts(address, code)
    path.write_text(f"{original}\n{key}={value}\n{fixed}=4321\nlogLevel=warning\n")
    line = reloaded(node)
    assert line["changed"] == {key: value, "logLevel": "warning"}
    assert line["needs_restart"] == [fixed]
    assert counts(address, code) == {**before, key: value, "logLevel": "warning"}

    path.write_text(f"{original}\n{key}=maybe\nlogLevel=warning\n{fixed}=4321\n")
    (reason,) = reloaded(node)["refused"]
    assert "maybe" in reason
    assert counts(address, code)[key] == value
    path.write_text(f"{original}\nlogLevel=loud\n")
    assert "loud" in reloaded(node, "config_not_reloaded")["reason"]
    path.unlink()
    assert str(path) in reloaded(node, "config_not_reloaded")["reason"]
    path.write_text(original)
    assert node.alive
