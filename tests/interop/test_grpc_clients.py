"""Real gRPC clients and the real proxy 5.3.3, in cluster mode, in front of a cluster of ours.

Controllers, name server and three replicas are ours, as processes; the master is killed at the end,
under the proxy. What the clients are asked is what RocketMQ's documents promise of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from rmqha.testing.cluster import RmqCluster
from rmqha.testing.real.processes import allocate_ports, wait_until
from rmqha.testing.real.proxy import Proxy
from rmqha.testing.settings import CLUSTER_NAME
from tests.interop import required
from tests.interop.grpc_peer import CLIENT, GrpcPeer
from tests.interop.our_mqadmin import our_mqadmin
from tests.interop.peers import PeerError

WAIT_S = 60.0
INVISIBLE_MS = 3000
TYPES = ("Normal", "Fifo", "Delay", "Transaction")


class Stage(NamedTuple):
    """The cluster, its proxy, and clients of it."""

    cluster: RmqCluster
    proxy: Proxy
    clients: GrpcPeer


def mqadmin(cluster: RmqCluster, *words: str) -> None:
    """Ours; it must succeed."""
    our_mqadmin(*words, "-n", cluster.namesrv_addr, "-c", CLUSTER_NAME)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Everything, running; a topic of each type and a group for each test."""
    for release in (("5.3.3", "proxy"), CLIENT):
        required.require_classpath(*release)
    folder = tmp_path_factory.mktemp("grpc")
    settings = {
        "timerWheelEnable": True,
        "transactionCheckInterval": 1000,
        "transactionTimeOut": 1000,
    }
    with RmqCluster(folder / "cluster", processes=True, broker_settings=settings) as cluster:
        for kind in TYPES:
            attribute = f"+message.type={kind.upper()}"
            mqadmin(cluster, "updateTopic", "-t", kind, "-r", "4", "-w", "4", "-a", attribute)
        for group in ("simple", "again", "moved", "pushed", "failing", "later", "decided", "after"):
            mqadmin(cluster, "updateSubGroup", "-g", group)
        mqadmin(cluster, "updateSubGroup", "-g", "ordered", "-o", "true")
        proxy = Proxy(folder / "proxy", allocate_ports(), cluster.namesrv_addr, CLUSTER_NAME)
        try:
            proxy.start()
            with GrpcPeer(folder / "clients", proxy.endpoints) as clients:
                for kind in TYPES:
                    clients.ask(f"producer {kind} {kind}")
                yield Stage(cluster, proxy, clients)
        finally:
            proxy.child.kill()


def received(stage: Stage, name: str, wanted: int, how: str = "ack") -> list[tuple[int, str]]:
    """What a simple consumer gets, until it has so many."""
    found: list[tuple[int, str]] = []

    def enough() -> bool:
        found.extend(stage.clients.take(f"receive {name} 16 {INVISIBLE_MS} {how}"))
        return len(found) >= wanted

    wait_until(enough, WAIT_S, f"{wanted} messages of {name}")
    return found


def bodies(prefix: str, count: int) -> list[str]:
    """What ``send`` makes."""
    return [f"{prefix}-{number}" for number in range(count)]


def test_simple_consumer_when_it_acknowledges_then_nothing_comes_twice(stage: Stage) -> None:
    """The proxy's receipt handles have nine parts, and ours had to be taken for one of eight."""
    stage.clients.ask("simple simple simple Normal")
    assert len(stage.clients.ask("send Normal Normal 20 one").split(",")) == 20
    found = received(stage, "simple", 20)
    assert sorted(body for _, body in found) == sorted(bodies("one", 20))
    # Longer than they were invisible for: what was not acknowledged would be there again.
    end = time.monotonic() + 2 * INVISIBLE_MS / 1000
    while time.monotonic() < end:
        assert stage.clients.take(f"receive simple 16 {INVISIBLE_MS} ack") == []
    stage.clients.ask("stop simple")


def test_simple_consumer_when_it_keeps_a_message_then_it_comes_again_and_is_counted(
    stage: Stage,
) -> None:
    """And one whose time is changed comes again when that is over."""
    stage.clients.ask("simple again again Normal")
    received(stage, "again", 20)
    stage.clients.ask("send Normal Normal 1 kept")
    assert received(stage, "again", 1, "keep") == [(1, "kept-0")]
    assert received(stage, "again", 1, "change=1000") == [(2, "kept-0")]
    assert received(stage, "again", 1) == [(3, "kept-0")]
    stage.clients.ask("stop again")


def test_push_consumer_when_a_message_fails_then_it_is_tried_again(stage: Stage) -> None:
    """Through the group's retry topic, which the proxy reads by pop."""
    stage.clients.ask("push failing failing Normal 1")
    stage.clients.ask("send Normal Normal 3 tried")

    def tried() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for attempt, body in stage.clients.take("got failing"):
            found.setdefault(body, []).append(attempt)
        return {body: found.get(body, []) for body in bodies("tried", 3)}

    wait_until(lambda: all(len(one) == 2 for one in tried().values()), WAIT_S, "second attempts")
    assert tried() == {body: [1, 2] for body in bodies("tried", 3)}


def test_fifo_when_a_message_fails_then_its_group_waits_for_it(stage: Stage) -> None:
    """Two message groups, each in its order, also around failures."""
    stage.clients.ask("push ordered ordered Fifo 1")
    stage.clients.ask("send Fifo Fifo 8 left group=left")
    stage.clients.ask("send Fifo Fifo 8 right group=right")
    wait_until(lambda: len(stage.clients.take("got ordered")) >= 32, WAIT_S, "32 deliveries")
    got = [body for _, body in stage.clients.take("got ordered")]
    for side in ("left", "right"):
        mine = [body for body in got if body.startswith(side)]
        assert mine == [body for body in bodies(side, 8) for _ in range(2)]


def test_delay_when_a_time_is_given_then_the_message_comes_then(stage: Stage) -> None:
    """By the timer of RocketMQ 5, not by levels.

    A delivery time is rounded down to ``timerPrecisionMs``, a second by default and as Java
    does, so they may come up to a second before the delay is over.
    """
    stage.clients.ask("push later later Delay 0")
    began = time.monotonic()
    stage.clients.ask("send Delay Delay 3 due delay=6000")
    assert time.monotonic() - began < 5
    wait_until(lambda: len(stage.clients.take("got later")) == 3, WAIT_S, "delayed messages")
    assert time.monotonic() - began >= 5


def test_transaction_when_decided_or_asked_about_then_what_was_committed_comes(
    stage: Stage,
) -> None:
    """The question goes from the broker through the proxy to the client that began it."""
    stage.clients.ask("push decided decided Transaction 0")
    for body, how in (
        ("now", "commit"), ("never", "rollback"), ("yes-later", "leave"), ("no-later", "leave"),
    ):  # fmt: skip
        stage.clients.ask(f"transaction Transaction Transaction {body} {how}")
    wait_until(lambda: stage.clients.ask("asked no-later") != "0", WAIT_S, "a question")
    wait_until(lambda: len(stage.clients.take("got decided")) >= 2, WAIT_S, "what was committed")
    assert sorted(body for _, body in stage.clients.take("got decided")) == ["now", "yes-later"]


def test_clients_when_the_master_is_killed_then_they_go_on_and_nothing_is_lost(
    stage: Stage,
) -> None:
    """They know neither controllers nor brokers: the proxy must find the new master."""
    stage.clients.ask("push after after Normal 0")
    acknowledged = bodies("before", 20)
    stage.clients.ask("send Normal Normal 20 before")
    old = stage.cluster.kill(stage.cluster.wait_for_master())
    stage.cluster.wait_for_master(other_than=old)

    def sent() -> bool:
        try:
            stage.clients.ask("send Normal Normal 1 afterwards")
        except PeerError:
            return False
        return True

    wait_until(sent, WAIT_S, "a message through the proxy to the new master")
    wanted = {*acknowledged, "afterwards-0"}
    wait_until(
        lambda: wanted <= {body for _, body in stage.clients.take("got after")},
        WAIT_S,
        "all of them",
    )
