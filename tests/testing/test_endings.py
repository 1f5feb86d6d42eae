"""How clusters end: when their start fails, twice, and what is said of one that has ended."""

from __future__ import annotations

import asyncio
import threading
import warnings
from pathlib import Path

import psutil
import pytest

from rmqha.base.errors import LocalProtocolError
from rmqha.client.aio.master_client import MasterClient
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.nodes import NodeFailed
from rmqha.testing.processes import ProcessNode


@pytest.mark.costly
def test_cluster_when_its_start_fails_in_a_with_statement_then_nothing_runs_on(
    tmp_path: Path,
) -> None:
    """Its end is never reached: threads, ports and processes stayed until the interpreter ended."""
    cluster = RmqCluster(
        tmp_path, controllers=1, replicas=1, broker_settings={"flushDiskType": "SOMETIMES"}
    )
    with pytest.raises(NodeFailed, match="flushDiskType"), cluster:
        pytest.fail("it started")
    assert [node for node in cluster.nodes if node.is_alive] == []
    assert "rmqha cluster" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.slow
def test_processes_when_their_clusters_start_fails_then_they_end(tmp_path: Path) -> None:
    """Each of them is some megabytes, and holds its ports."""
    cluster = RmqCluster(
        tmp_path, controllers=1, replicas=1, processes=True,
        broker_settings={"flushDiskType": "SOMETIMES"},
    )  # fmt: skip
    with pytest.raises(NodeFailed, match="flushDiskType"), cluster:
        pytest.fail("it started")
    pids = [node.pid for node in cluster.nodes if isinstance(node, ProcessNode) and node.pid]
    assert pids
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


@pytest.mark.costly
@pytest.mark.filterwarnings("error")
def test_verbs_when_the_cluster_is_closed_then_they_say_so(tmp_path: Path) -> None:
    """Not that some event loop is, and that some coroutine was never awaited."""
    cluster = RmqCluster(tmp_path, controllers=1, replicas=1).start()
    workload = cluster.workload("Load")
    cluster.close()
    cluster.close()
    for verb in (lambda: cluster.produce(b"x"), cluster.master, workload.stop, cluster.start):
        with pytest.raises(ValueError, match=r"^the rmqha cluster is closed$"):
            verb()
    with pytest.raises(ValueError, match=r"^the rmqha cluster is closed$"):
        asyncio.run(cluster.aio.produce(b"x"))
    assert "seed 0" in cluster.report()


def test_client_when_closed_twice_then_that_is_fine_and_a_call_is_refused() -> None:
    """A with statement around a client that somebody has closed failed at its end."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with MasterClient(
            ["127.0.0.1:1"], timeout_ms=100, failover_timeout_ms=100, group="g"
        ) as client:
            client.close()
            with pytest.raises(LocalProtocolError, match="the client is closed"):
                client.topics()


@pytest.mark.costly
def test_cluster_when_it_is_closed_while_a_node_is_cut_off_then_no_connection_is_left(
    tmp_path: Path,
) -> None:
    """What was held back until the link is mended was held for ever, and the loop could not end."""
    cluster = RmqCluster(tmp_path, controllers=1, replicas=1).start()
    cluster.isolate("namesrv-0")
    ports = {port for node in cluster.nodes for port in node.place.ports}
    cluster.close()
    open_still = psutil.Process().net_connections("tcp")
    assert [one for one in open_still if one.raddr and one.raddr.port in ports] == []


@pytest.mark.costly
def test_folder_when_a_cluster_with_certificates_comes_again_then_they_are_new(
    tmp_path: Path,
) -> None:
    """Its messages are there; so were its certificates, which was an error."""
    shape = {"controllers": 1, "replicas": 1, "tls": True}
    with RmqCluster(tmp_path, **shape) as first:
        first.produce(b"one", topic="Kept")
        before = (tmp_path / "certificates" / "authority.pem").read_bytes()
    with RmqCluster(tmp_path, **shape) as second:
        second.produce(b"two", topic="Kept")
        assert [one.body for one in second.consume("Kept")].count(b"one") == 1
        assert (tmp_path / "certificates" / "authority.pem").read_bytes() != before
