"""A cluster of an older release becomes one of this release, and goes back, one process at a time.

A producer and a consumer work meanwhile. The order and the commands are those of docs/OPERATIONS.md,
"Upgrading".
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest

from rmqha.testing.cluster import RmqCluster
from rmqha.testing.nodes import Node
from rmqha.testing.processes import ProcessNode
from rmqha.testing.real import wire
from rmqha.testing.settings import CLUSTER_NAME
from rmqha.testing.verbs import RunningWorkload

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]
OLD = "8e7f31a50291ff69c0f63403e0d01012902b5bce"
"""Before heartbeats say writeLease, scrubs compare replicas (60051), and the status page remembers."""
COMPARE_LOG, NOT_SUPPORTED = 60051, 3
ACKS_BETWEEN = 100


@pytest.fixture(scope="module")
def old_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it was, out of this clone's history."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone, so no older release is at hand")
    folder = tmp_path_factory.mktemp("old-release")
    archive = folder / "old.tar"
    done = subprocess.run(
        ["git", "archive", "-o", archive, OLD, "rmqha"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        reason = f"commit {OLD} is not in this clone (git fetch --unshallow): {done.stderr}"
        (pytest.skip if is_shallow() else pytest.fail)(reason)
    subprocess.run(["tar", "-xf", archive, "-C", folder], timeout=60, check=True)
    imported = subprocess.run(
        [sys.executable, "-c", "import rmqha; print(rmqha.__file__)"], cwd=folder, timeout=60,
        env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert imported.stdout.strip() == str(folder / "rmqha" / "__init__.py")
    return folder


def is_shallow() -> bool:
    """Whether this clone was made without its history; a whole one has the older release."""
    command = ["git", "rev-parse", "--is-shallow-repository"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip() == "true"


def ours(node: Node) -> ProcessNode:
    """The node as what it is here."""
    return cast(ProcessNode, node)


def is_of(node: Node, release: Path | None) -> bool:
    """Whether the process that runs now was forked where that release is."""
    return Path(f"/proc/{ours(node).pid}/cwd").readlink() == (release or Path.cwd())


def move(cluster: RmqCluster, load: RunningWorkload, node: Node, release: Path | None) -> None:
    """Have one process run another release, and wait until all is well and messages went on."""
    cluster.shut_down(node)
    ours(node).source = release
    cluster.restart(node)
    assert is_of(node, release)
    cluster.wait_for_leader()
    cluster.wait_in_sync()
    load.wait_for_acks(ACKS_BETWEEN)


def hand_over(cluster: RmqCluster) -> None:
    """Give the mastership to a slave, with this release's tool."""
    found = cluster.replicas()
    assert found is not None
    target = next(
        o.broker_id for o in found.in_sync_replicas if o.broker_id != found.master_broker_id
    )
    command = [sys.executable, "-m", "rmqha.cli.mqadmin", "switchMaster"]
    command += ["-a", cluster.controller_addr, "-bn", "broker-a", "-c", CLUSTER_NAME]
    done = subprocess.run(
        [*command, "-b", str(target)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    cluster.wait_in_sync()


def move_all(cluster: RmqCluster, load: RunningWorkload, release: Path | None) -> None:
    """Controllers, the leader last; name servers; brokers, the master last and as a slave."""
    leader = cluster.wait_for_leader()
    for node in [*(o for o in cluster.controllers if o is not leader), leader]:
        move(cluster, load, node, release)
    for node in cluster.name_servers:
        move(cluster, load, node, release)
    master = cluster.master()
    assert master is not None
    for node in (one for one in cluster.brokers if one is not master):
        move(cluster, load, node, release)
    hand_over(cluster)
    move(cluster, load, master, release)


def knows_what_is_new(nodes: Iterable[Node]) -> set[bool]:
    """Whether brokers answer a request that came after the older release."""
    answers = (wire.invoke(node.address, COMPARE_LOG) for node in nodes)
    return {answer.code != NOT_SUPPORTED for answer in answers}


def test_cluster_when_upgraded_process_by_process_and_back_then_no_message_is_lost(
    old_release: Path, tmp_path: Path
) -> None:
    """Nobody stops all for an upgrade, and who cannot go back does not dare to go on."""
    cluster = RmqCluster(tmp_path, processes=True, namesrv=2)
    for node in cluster.nodes:
        ours(node).source = old_release
    with cluster:
        assert all(is_of(node, old_release) for node in cluster.nodes)
        assert knows_what_is_new(cluster.brokers) == {False}
        load = cluster.workload("Upgraded")
        load.wait_for_acks(ACKS_BETWEEN)
        move_all(cluster, load, None)
        assert knows_what_is_new(cluster.brokers) == {True}
        up = load.ledger.refused
        move_all(cluster, load, old_release)
        assert knows_what_is_new(cluster.brokers) == {False}
        ledger = load.stop()
        print(f"{up} sends were tried again on the way up, {ledger.refused - up} on the way down")
    # The producer sends each message until it is acknowledged, so none failed for good.
    assert (ledger.lost, ledger.pending) == ([], 0)
    assert ledger.acknowledged >= 2 * len(cluster.nodes) * ACKS_BETWEEN
    assert ledger.acknowledged == ledger.consumed
