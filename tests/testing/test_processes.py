"""The same verbs over child processes: real SIGKILL, SIGSTOP and SIGTERM, real exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rmqha.testing import launcher_handle, processes
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.nodes import NodeFailed
from rmqha.testing.processes import ProcessNode, launcher
from rmqha.testing.real.processes import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RmqCluster]:
    """One cluster for the module; each test begins with a whole one."""
    with RmqCluster(tmp_path_factory.mktemp("processes"), processes=True) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: RmqCluster) -> RmqCluster:
    """The cluster, mended."""
    shared.heal()
    return shared


def test_a_killed_master_is_gone_and_returns(cluster: RmqCluster) -> None:
    """kill -9: no process is left, no store closed, nothing acknowledged lost."""
    cluster.produce(50, in_flight=8)
    old = cluster.wait_for_master()
    assert isinstance(old, ProcessNode)
    pid = old.pid
    cluster.kill(old)
    assert not psutil.pid_exists(pid)
    assert (old.store / "abort").exists()
    cluster.wait_for_master(other_than=old)
    cluster.produce(50, in_flight=8)
    cluster.restart(old)
    cluster.wait_in_sync(3)
    cluster.assert_nothing_lost()


def test_kill_when_the_process_does_not_end_then_it_says_what_that_waits_for(
    cluster: RmqCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that stands still holds even a killed process; all that was told was that time was over."""
    node = cluster.wait_for_master()
    assert isinstance(node, ProcessNode)

    async def lost(number: signal.Signals) -> None:
        """As if the process could not take it."""

    with monkeypatch.context() as patch:
        patch.setattr(node, "_signal", lost)
        patch.setattr(processes, "KILLED_TIMEOUT_S", 0.2)
        with pytest.raises(NodeFailed, match=rf"process {node.pid}\) has not ended .*: [RSD] "):
            cluster.kill(node)
    cluster.kill(node)
    assert not psutil.pid_exists(node.pid)


def test_a_stopped_master_is_replaced(cluster: RmqCluster) -> None:
    """SIGSTOP: the kernel keeps its connections, the controllers its silence."""
    old = cluster.stop(cluster.wait_for_master())
    assert isinstance(old, ProcessNode)
    process = psutil.Process(old.pid)
    # The kernel stops one that runs on another core a moment after the signal is sent.
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED, 5.0, "the process to stand still")
    cluster.wait_for_master(other_than=old)
    cluster.produce(10)
    cluster.cont(old)
    cluster.wait_in_sync(3)
    cluster.assert_nothing_lost()


def test_a_master_that_is_cut_off_is_replaced(cluster: RmqCluster) -> None:
    """Links are cut in processes as they are in this one."""
    cluster.produce(10)
    old = cluster.wait_for_master()
    cluster.isolate(old)
    cluster.wait_for_master(other_than=old)
    assert old.is_alive
    cluster.produce(10)
    cluster.heal()
    cluster.assert_nothing_lost()


def test_a_slow_disk_of_the_master_delays_acknowledgements(tmp_path: Path) -> None:
    """Told to the process over its channel."""
    settings = {"flushDiskType": "SYNC_FLUSH"}
    with RmqCluster(
        tmp_path, controllers=1, replicas=1, processes=True, broker_settings=settings
    ) as one:
        one.produce(1)
        one.slow_disk("broker-0", 400)
        started = time.monotonic()
        one.produce(1)
        assert time.monotonic() - started >= 0.4
        one.shut_down("broker-0")
        assert not (one.brokers[0].store / "abort").exists()
        one.slow_disk("broker-0", 0)
        one.restart("broker-0")
        one.assert_nothing_lost()


def test_a_process_that_ends_by_itself_is_noticed(cluster: RmqCluster) -> None:
    """Somebody else's SIGKILL, or a crash: the report must say it."""
    node = cluster.name_servers[0]
    assert isinstance(node, ProcessNode)
    os.kill(node.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while node.is_alive:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert node.failure == "ended by itself with exit code -9"
    assert node.failure in cluster.report()


def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    """The end of its log is in the error, not somewhere in a directory."""
    settings = {"flushDiskType": "SOMETIMES"}
    cluster = RmqCluster(
        tmp_path, controllers=1, replicas=1, processes=True, broker_settings=settings
    )
    try:
        with pytest.raises(NodeFailed, match=r"exit code 2(.|\n)*flushDiskType=SOMETIMES"):
            cluster.start()
    finally:
        cluster.close()


@pytest.mark.parametrize("forks", [False, True])
def test_nodes_end_with_whoever_started_them(tmp_path: Path, *, forks: bool) -> None:
    """A test run that is killed must not leave seven processes behind, nor one whose fork lives on."""
    program = (
        "import os, sys, time, warnings\nfrom pathlib import Path\n"
        "from rmqha.testing.cluster import RmqCluster\n"
        "warnings.simplefilter('ignore')\n"
        "c = RmqCluster(Path(sys.argv[1]), controllers=1, replicas=1, processes=True).start()\n"
        "fork = os.fork() if sys.argv[2] == 'True' else 1\n"
        "if fork: print(fork, *(n.pid for n in c.nodes), flush=True)\n"
        "time.sleep(60)\nos._exit(0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path), str(forks)], stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        fork, *pids = (int(word) for word in run.stdout.readline().split())
        assert len(pids) == 3
        run.kill()
    try:
        gone = lambda: not any(psutil.pid_exists(pid) for pid in pids)  # noqa: E731
        wait_until(gone, 10.0, "nodes to end with the process that started them")
        assert not forks or psutil.pid_exists(fork)
    finally:
        if forks:
            os.kill(fork, signal.SIGKILL)


def test_launcher_when_another_process_has_its_socket_too_then_it_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its end was the end of that socket, which anybody could keep open."""
    monkeypatch.setattr(launcher_handle, "END_TIMEOUT_S", 5.0)
    handle = launcher_handle.LauncherHandle()
    with handle._control.dup():
        handle.close()
        assert handle.process.poll() == 0


def test_a_node_that_is_cut_off_is_so_from_the_first_moment_of_its_next_life(
    cluster: RmqCluster,
) -> None:
    """It was told when it had booted, and had got from its master by then what it lacked."""
    master = cluster.wait_for_master()
    slave = next(one for one in cluster.brokers if one is not master)
    cluster.kill(slave)
    cluster.wait_in_sync(2)
    cluster.produce([b"secret" * 9])
    cluster.isolate(slave)
    begins = slave.log.stat().st_size
    cluster.restart(slave)
    told = slave.log.read_bytes()[begins:]
    assert b"store_opened" in told
    assert b"role_taken_up" not in told
    log = b"".join(one.read_bytes() for one in (slave.store / "commitlog").glob("[0-9]*"))
    assert b"secret" not in log


def test_the_launcher_sends_no_signal_to_strangers() -> None:
    """A number that it has reaped may be anybody's by now."""
    assert launcher().request(do="signal", pid=os.getpid(), number=0) == {"sent": 0}
