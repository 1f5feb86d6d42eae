"""A master whose process stands still is replaced by its watcher: real processes, real signals.

SIGSTOP holds an event loop as a disk does that does not answer, and needs no root. ``bin/bench stall``
freezes a file system.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rmqha.testing.cluster import RmqCluster
from rmqha.testing.nodes import Node
from rmqha.testing.plugin import Factory
from rmqha.testing.processes import ProcessNode
from rmqha.testing.real.processes import wait_until

pytestmark = pytest.mark.slow

TIMEOUT_MS, STALL_MS = 30_000, 1_000
CONTROLLERS = {"activeProbeTimeoutMillis": 0}
"""They would find out by themselves as soon as the watcher does, and one of the two is first."""
MOVED_S = 15.0
"""On a busy machine, and well before the controllers would miss anybody."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RmqCluster]:
    """Three replicas with watchers, which would be missed after half a minute only."""
    settings = {"controllerHeartBeatTimeoutMills": TIMEOUT_MS, "diskStallMs": STALL_MS}
    folder = tmp_path_factory.mktemp("stall")
    with RmqCluster(
        folder, processes=True, broker_settings=settings, controller_settings=CONTROLLERS
    ) as cluster:
        yield cluster


def said(node: Node, event: str) -> list[dict[str, object]]:
    """What a node has logged of a kind."""
    lines = [json.loads(line) for line in Path(node.log).read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


def test_master_when_its_process_stands_still_then_another_reigns_and_nothing_is_lost(
    cluster: RmqCluster,
) -> None:
    """Java's set waits for the heartbeats' timeout, with every producer."""
    old = cluster.wait_for_master()
    load = cluster.workload("Stalled")
    load.wait_for_acks(50)
    cluster.stop(old)
    new = cluster.wait_for_master(other_than=old, timeout_s=MOVED_S)
    load.wait_for_acks(50)
    cluster.cont(old)
    cluster.wait_in_sync(3)
    load.wait_for_acks(50)
    ledger = load.stop()
    assert (ledger.lost, ledger.pending) == ([], 0)
    assert new is not old
    (handed,) = said(old, "mastership_handed_over")
    assert said(old, "broker_stalled")
    assert isinstance(handed["to"], int)


def test_watcher_when_its_broker_is_killed_then_it_ends_too(cluster: RmqCluster) -> None:
    """A watcher without a broker would speak for it for ever."""
    master = cluster.wait_for_master()
    assert isinstance(master, ProcessNode)
    (watcher,) = psutil.Process(master.pid).children()
    cluster.kill(master)
    watcher.wait(MOVED_S)
    cluster.heal()


def test_watcher_when_it_is_killed_then_its_broker_starts_another(cluster: RmqCluster) -> None:
    """And nobody is elected because of it."""
    master = cluster.wait_for_master()
    assert isinstance(master, ProcessNode)
    broker = psutil.Process(master.pid)
    (watcher,) = broker.children()
    epoch = cluster.set_info()
    watcher.kill()

    def others() -> list[psutil.Process]:
        return [one for one in broker.children() if one.pid != watcher.pid]

    wait_until(others, MOVED_S, "another watcher")
    assert cluster.set_info() == epoch


def test_watcher_when_controllers_take_tls_alone_then_it_acts_for_its_broker_all_the_same(
    rmq_cluster_factory: Factory,
) -> None:
    """It dials them by itself, with the broker's certificate."""
    cluster = rmq_cluster_factory(
        tls=True, processes=True, replicas=2, controller_settings=CONTROLLERS,
        broker_settings={"controllerHeartBeatTimeoutMills": TIMEOUT_MS, "diskStallMs": STALL_MS},
    )  # fmt: skip
    cluster.produce(10)
    old = cluster.wait_for_master()
    cluster.stop(old)
    cluster.wait_for_master(other_than=old, timeout_s=MOVED_S)
    cluster.cont(old)
    cluster.wait_in_sync(2)
    assert said(old, "mastership_handed_over")
    cluster.assert_nothing_lost()
