"""``isProcessReadEvent=true``: every answer about the state waits until a quorum was asked for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.controller.raft import events as ev
from rmqha.controller.raft.settings import RaftSettings
from rmqha.controller.settings import load_config
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.sim.cluster import SimOptions
from tests.controller.raft.cluster import Cluster as RaftCluster
from tests.controller.test_service import REPLICA_INFO
from tests.controller.test_service import Cluster as ServiceCluster

SECOND_MS = 1_000


@pytest.mark.parametrize("switched", ["at the start", "while it runs"])
def test_a_read_when_leases_are_off_waits_for_a_round_of_its_own(switched: str) -> None:
    """Where clocks are not trusted, a valid lease says nothing."""
    settings = RaftSettings(lease_reads=switched != "at the start")
    cluster = RaftCluster(3, settings=settings)
    leader = cluster.wait_leader()
    cluster.run(100)
    core = cluster.cores[leader]
    if switched == "while it runs":
        assert core.lease_valid(cluster.now_ms)
        core.use_lease(False)
    assert not core.lease_valid(cluster.now_ms)
    cluster.isolate(leader)
    cluster.give(leader, ev.ReadRequested(7))
    cluster.run(5)
    assert 7 not in cluster.reads_done, "answered although nobody could be asked"
    cluster.heal()
    cluster.run_until(lambda: 7 in cluster.reads_done or 7 in cluster.reads_refused)
    assert 7 in cluster.reads_done
    core.use_lease(True)
    cluster.run(100)
    assert core.lease_valid(cluster.now_ms)


def test_a_node_alone_when_leases_are_off_is_its_own_quorum() -> None:
    """Whoever has no peers need not ask any."""
    cluster = RaftCluster(1, settings=RaftSettings(lease_reads=False))
    cluster.wait_leader()
    cluster.run(20)
    cluster.give("n0", ev.ReadRequested(1))
    assert 1 in cluster.reads_done


def test_the_key_when_it_is_in_the_file_then_it_counts_from_the_start() -> None:
    """Java's own key, in any case of its letters."""
    given = {
        "controllerDLegerGroup": "g", "controllerDLegerPeers": "n0-a:1",
        "controllerDLegerSelfId": "n0",
    }  # fmt: skip

    def lease_reads(**more: str) -> bool:
        config = load_config(given | more, home="", user_home="/home/u")
        return config.raft_settings().lease_reads

    assert lease_reads()
    assert not lease_reads(isProcessReadEvent="TRUE")
    assert not lease_reads(processReadEvent="true")


@pytest.fixture
def cluster() -> Iterator[ServiceCluster]:
    """Three controllers, one set of three brokers, all well."""
    one = ServiceCluster(5, SimOptions(broker_sets=1))
    yield one
    one.finish()


def switch(cluster: ServiceCluster, value: str) -> None:
    """1009 at every controller."""
    for host in cluster.controller_hosts:
        body = f"isProcessReadEvent={value}\n".encode()
        task = cluster.send(host, RequestCode.UPDATE_CONTROLLER_CONFIG, {}, body)
        cluster.run_until(task.done, SECOND_MS)
        assert task.result().code == ResponseCode.SUCCESS


def is_answered_alone(cluster: ServiceCluster) -> bool:
    """Whether a leader that was cut off this moment still answers 1004."""
    leader = cluster.the_leader()
    assert cluster.ask(leader, RequestCode.CONTROLLER_GET_REPLICA_INFO, REPLICA_INFO).code == 0
    others = [host for host in cluster.controller_hosts if host != leader]
    cluster.cut_off(leader, *others)
    task = cluster.send(leader, RequestCode.CONTROLLER_GET_REPLICA_INFO, REPLICA_INFO)
    cluster.run_until(task.done, SECOND_MS)
    code = task.result().code
    cluster.net.heal()
    cluster.run_until(lambda: cluster.leader() is not None, 5 * SECOND_MS)
    cluster.run_for(SECOND_MS)
    assert code in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_NOT_LEADER)
    return code == ResponseCode.SUCCESS


@pytest.mark.costly
def test_controllers_when_the_key_is_changed_then_leases_end_and_come_back(
    cluster: ServiceCluster,
) -> None:
    """updateControllerConfig took the key, said success and changed nothing."""
    assert is_answered_alone(cluster)
    switch(cluster, "true")
    assert not is_answered_alone(cluster)
    switch(cluster, "false")
    assert is_answered_alone(cluster)
