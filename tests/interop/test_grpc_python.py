"""The real Python gRPC client through the real proxy 5.3.3, in front of a cluster of ours.

What Java's client is asked in ``test_grpc_clients``, as far as this one has it.
"""

from __future__ import annotations

import os
import subprocess
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqha.testing.cluster import RmqCluster
from rmqha.testing.real.processes import Child, allocate_ports, wait_until
from rmqha.testing.real.proxy import Proxy
from rmqha.testing.settings import CLUSTER_NAME
from tests.interop import required
from tests.interop.client_peer import ClientPeer
from tests.interop.our_mqadmin import our_mqadmin
from tests.interop.peers import PeerError

pytestmark = pytest.mark.timeout(300)

CLIENT = "rocketmq-python-client==5.1.2"
PROGRAM = Path(__file__).parent / "grpc_python_peer.py"
INSTALL_S = 240
WAIT_S = 60.0
INVISIBLE_S = 10
"""The least that this client takes."""


class PythonPeer(ClientPeer):
    """A process with Python clients of one proxy."""

    def __init__(self, python: Path, home: Path, endpoints: str) -> None:
        super().__init__(home, name="grpc-python")
        # It writes its log below HOME, and would ask a collector of metrics.
        command = ["env", f"HOME={home}", str(python), str(PROGRAM), endpoints]
        self.child = Child("grpc-python", command, home / "grpc-python.log", piped=True)

    def take(self, line: str) -> list[tuple[int, str]]:
        """Attempts and bodies that a line's answer lists."""
        found = (one.split(":", 1) for one in filter(None, self.ask(line).split(",")))
        return [(int(attempt), body) for attempt, body in found]


class Stage(NamedTuple):
    """The cluster and clients of its proxy."""

    cluster: RmqCluster
    clients: PythonPeer


def installed(folder: Path) -> Path:
    """An environment of its own with the client: it asks for releases of protobuf that may not
    be those of Spark's client."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", CLIENT],
        capture_output=True, text=True, timeout=INSTALL_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        reason = f"{CLIENT} cannot be installed: {done.stderr}"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    return python


def mqadmin(cluster: RmqCluster, *words: str) -> None:
    """Ours; it must succeed."""
    our_mqadmin(*words, "-n", cluster.namesrv_addr, "-c", CLUSTER_NAME)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Everything, running; two topics and a group for each test."""
    required.require_classpath("5.3.3", "proxy")
    folder = tmp_path_factory.mktemp("grpc-python")
    python = installed(folder / "client")
    with RmqCluster(folder / "cluster", processes=True) as cluster:
        for kind in ("Normal", "Fifo"):
            attribute = f"+message.type={kind.upper()}"
            mqadmin(cluster, "updateTopic", "-t", kind, "-r", "4", "-w", "4", "-a", attribute)
        for group in ("simple", "failing", "after"):
            mqadmin(cluster, "updateSubGroup", "-g", group)
        mqadmin(cluster, "updateSubGroup", "-g", "ordered", "-o", "true")
        proxy = Proxy(folder / "proxy", allocate_ports(), cluster.namesrv_addr, CLUSTER_NAME)
        try:
            proxy.start()
            with PythonPeer(python, folder / "clients", proxy.endpoints) as clients:
                for kind in ("Normal", "Fifo"):
                    clients.ask(f"producer {kind}")
                yield Stage(cluster, clients)
        finally:
            proxy.child.kill()


def bodies(prefix: str, count: int) -> list[str]:
    """What ``send`` makes."""
    return [f"{prefix}-{number}" for number in range(count)]


def received(stage: Stage, wanted: int, how: str) -> list[tuple[int, str]]:
    """What the simple consumer gets, until it has so many."""
    found: list[tuple[int, str]] = []

    def enough() -> bool:
        found.extend(stage.clients.take(f"receive simple 16 {INVISIBLE_S} {how}"))
        return len(found) >= wanted

    wait_until(enough, WAIT_S, f"{wanted} messages")
    return found


def test_simple_consumer_when_it_acknowledges_or_keeps_then_only_what_it_kept_comes_again(
    stage: Stage,
) -> None:
    """And it comes counted."""
    stage.clients.ask("simple simple Normal")
    assert len(stage.clients.ask("send Normal 20 one").split(",")) == 20
    found = received(stage, 20, "ack")
    assert sorted(body for _, body in found) == sorted(bodies("one", 20))
    stage.clients.ask("send Normal 1 kept")
    assert received(stage, 1, "keep") == [(1, "kept-0")]
    began = time.monotonic()
    assert received(stage, 1, "ack") == [(2, "kept-0")]
    assert time.monotonic() - began > INVISIBLE_S / 2


def test_push_consumer_when_a_message_fails_then_it_is_tried_again(stage: Stage) -> None:
    """Each of them once more, and no more."""
    stage.clients.ask("push failing Normal 1")
    stage.clients.ask("send Normal 3 tried")

    def tried() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {body: [] for body in bodies("tried", 3)}
        for attempt, body in stage.clients.take("got failing"):
            found.setdefault(body, []).append(attempt)
        return {body: found[body] for body in bodies("tried", 3)}

    wait_until(lambda: all(len(one) == 2 for one in tried().values()), WAIT_S, "second attempts")
    assert tried() == {body: [1, 2] for body in bodies("tried", 3)}


def test_fifo_when_two_groups_are_sent_then_each_comes_in_its_order(stage: Stage) -> None:
    """The client asks the proxy for ordered assignments, and the broker pops in order."""
    stage.clients.ask("push ordered Fifo 0")
    stage.clients.ask("send Fifo 8 left group=left")
    stage.clients.ask("send Fifo 8 right group=right")
    wait_until(lambda: len(stage.clients.take("got ordered")) >= 16, WAIT_S, "16 deliveries")
    got = [body for _, body in stage.clients.take("got ordered")]
    for side in ("left", "right"):
        assert [body for body in got if body.startswith(side)] == bodies(side, 8)


def test_clients_when_the_master_is_killed_then_they_go_on_and_nothing_is_lost(
    stage: Stage,
) -> None:
    """They know neither controllers nor brokers."""
    stage.clients.ask("push after Normal 0")
    stage.clients.ask("send Normal 20 before")
    old = stage.cluster.kill(stage.cluster.wait_for_master())
    stage.cluster.wait_for_master(other_than=old)

    def sent() -> bool:
        try:
            stage.clients.ask("send Normal 1 afterwards")
        except PeerError:
            return False
        return True

    wait_until(sent, WAIT_S, "a message through the proxy to the new master")
    wanted = {*bodies("before", 20), "afterwards-0"}
    wait_until(
        lambda: wanted <= {body for _, body in stage.clients.take("got after")},
        WAIT_S,
        "all of them",
    )
