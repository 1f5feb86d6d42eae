"""Three controllers on a machine that has ten times the work it can do (row C12)."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.cli.process import collections_held
from rmqha.testing.real import wire
from tests.cli.nodes import (
    CLUSTER,
    GET_REPLICA_INFO,
    HEARTBEAT,
    Group,
    broker_address,
    group,
    join,
)

pytestmark = [pytest.mark.slow, pytest.mark.alone]

BUSY = 20
SECONDS = float(os.environ.get("RMQHA_BUSY_SECONDS", "25"))
SETTLE_S = 5.0
"""The nodes have to see how slow the machine is before they can know it."""


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that never wait."""
    work = "while True: pass"
    running = [subprocess.Popen([sys.executable, "-c", work]) for _ in range(count)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
        for one in running:
            one.wait()


def ask_everywhere(nodes: Group, name: str) -> list[tuple[str | None, str | None]]:
    """Master and epoch as each node that answers has them; only a leader does."""
    found = []
    for node in nodes.nodes:
        with contextlib.suppress(OSError):
            answer = node.ask(GET_REPLICA_INFO, {"brokerName": name})
            if answer.code == 0:
                found.append((answer.ext.get("masterBrokerId"), answer.ext.get("masterEpoch")))
    return found


def beat(connections: list[wire.Connection]) -> None:
    """A heartbeat of broker 1, as every broker sends one to each controller."""
    who = {"clusterName": CLUSTER, "brokerName": "broker-a", "brokerId": 1}
    alive = {"brokerAddr": broker_address(1), "epoch": 1, "maxOffset": 1}
    for one in connections:
        with contextlib.suppress(OSError):
            one.oneway(HEARTBEAT, {**who, **alive, "heartbeatTimeoutMills": 30_000})


@pytest.mark.timeout(300)
def test_leaders_when_twenty_busy_processes_run_beside_them_then_they_stay(tmp_path: Path) -> None:
    """Elections after 150 ms of silence changed the leader every few seconds, and nobody was told."""
    with group(tmp_path) as nodes:
        broker = join(nodes.wait_leader(), "broker-a", 1)
        (expected,) = ask_everywhere(nodes, "broker-a")
        answers = wrong = 0
        beats = [wire.Connection(node.address) for node in nodes.nodes]
        with busy(BUSY):
            time.sleep(SETTLE_S)
            before = terms(nodes)
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                beat(beats)
                for answer in ask_everywhere(nodes, "broker-a"):
                    answers += 1
                    wrong += answer != expected
            changes = terms(nodes) - before
        allowed = max(1, round(SECONDS / 60))
        slow = [one for node in nodes.nodes for one in node.events() if one["event"] == "raft_slow"]
        changed = [
            one for n in nodes.nodes for one in n.events() if one["event"] == "leader_changed"
        ]
        print(
            f"{SECONDS:.0f} s beside {BUSY} busy processes: {changes} changes of leader,"
            f" {answers} answers, {wrong} wrong, {len(slow)} times slower than ever before,"
            f" {len(changed)} leader_changed lines"
        )
        assert answers > SECONDS
        assert wrong == 0
        assert changes <= allowed
        assert all(one["level"] == "warning" for one in slow + changed)
        assert slow or changes == 0
        for connection in (broker, *beats):
            connection.close()


def terms(nodes: Group) -> int:
    """The newest term of any node."""
    return max(
        int(str(one["term"]))
        for node in nodes.nodes
        for one in node.events()
        if one["event"] == "raft_role_changed"
    )


def test_collections_when_a_start_fails_then_they_run_again() -> None:
    """A process that goes on without them would grow for ever."""
    with contextlib.suppress(OSError), collections_held():
        held = not gc.isenabled()
        raise OSError("the port is taken")
    assert (held, gc.isenabled()) == (True, True)
