"""A cluster in this process, broken in every way that the fixture offers; nothing acknowledged is lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from rmqha.testing.client import NotYet, RefusedForGood
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.plugin import Factory


@pytest.mark.costly
def test_the_master_is_killed_and_returns(rmq_cluster: RmqCluster) -> None:
    """The first thing that anybody will write: if this fails the fixture is of no use."""
    rmq_cluster.produce(20)
    old = rmq_cluster.kill(rmq_cluster.wait_for_master())
    assert not old.is_alive
    assert (old.store / "abort").exists(), "a killed broker has not closed its store"
    new = rmq_cluster.wait_for_master(other_than=old)
    rmq_cluster.produce(20)
    rmq_cluster.restart(old)
    rmq_cluster.wait_in_sync(3)
    assert rmq_cluster.master() is new, "a slave that returns takes nothing over"
    rmq_cluster.produce(20)
    rmq_cluster.assert_nothing_lost()
    assert len(rmq_cluster.acked) == 60


@pytest.mark.slow
def test_a_stopped_master_is_replaced_and_its_word_counts_no_more(rmq_cluster: RmqCluster) -> None:
    """A process that hangs keeps its connections: only silence tells."""
    rmq_cluster.produce(10)
    old = rmq_cluster.stop(rmq_cluster.wait_for_master())
    new = rmq_cluster.wait_for_master(other_than=old)
    rmq_cluster.produce(10)
    rmq_cluster.cont(old)
    rmq_cluster.wait_in_sync(3)
    assert rmq_cluster.master() is new
    rmq_cluster.assert_nothing_lost()


@pytest.mark.slow
def test_a_master_that_is_cut_off_loses_its_place(rmq_cluster: RmqCluster) -> None:
    """Nothing is refused and nothing arrives: what the old master still holds must not be heard."""
    rmq_cluster.produce(10)
    old = rmq_cluster.wait_for_master()
    rmq_cluster.isolate(old)
    new = rmq_cluster.wait_for_master(other_than=old)
    rmq_cluster.produce(10)
    rmq_cluster.heal()
    assert rmq_cluster.master() is new
    assert rmq_cluster.node(old).is_alive
    rmq_cluster.assert_nothing_lost()


@pytest.mark.slow
def test_a_node_that_is_cut_off_is_so_after_its_restart(rmq_cluster: RmqCluster) -> None:
    """The links of a new life were whole, and the test went on without its partition."""
    master = rmq_cluster.wait_for_master()
    slave = next(node for node in rmq_cluster.brokers if node is not master)
    rmq_cluster.isolate(slave)
    rmq_cluster.wait_in_sync(2)
    rmq_cluster.restart(slave)
    rmq_cluster.produce(5)
    with pytest.raises(NotYet):
        rmq_cluster.wait_in_sync(3, timeout_s=3)
    rmq_cluster.heal()
    rmq_cluster.wait_in_sync(3)
    rmq_cluster.assert_nothing_lost()


@pytest.mark.slow
def test_a_slave_that_is_cut_off_from_its_master_leaves_the_set(rmq_cluster: RmqCluster) -> None:
    """One cut link, both ends alive: puts wait for the slave until the set is without it."""
    master = rmq_cluster.wait_for_master()
    slave = next(node for node in rmq_cluster.brokers if node is not master)
    rmq_cluster.partition(master, slave)
    rmq_cluster.produce(3)
    info = rmq_cluster.wait_in_sync(2)
    assert rmq_cluster.master() is master
    assert len(info.sync_state_set) == 2
    rmq_cluster.heal()
    rmq_cluster.assert_nothing_lost()


@pytest.mark.slow
def test_the_leading_controller_is_killed_with_the_master(rmq_cluster: RmqCluster) -> None:
    """Raft comes first, then the election."""
    leader, master = rmq_cluster.wait_for_leader(), rmq_cluster.wait_for_master()
    rmq_cluster.produce(10)
    rmq_cluster.kill(leader)
    rmq_cluster.kill(master)
    rmq_cluster.wait_for_master(other_than=master)
    rmq_cluster.produce(10)
    rmq_cluster.heal()
    assert all(node.is_alive for node in rmq_cluster.nodes)
    rmq_cluster.assert_nothing_lost()


@pytest.mark.costly
def test_a_slow_disk_delays_what_must_reach_it(rmq_cluster_factory: Factory) -> None:
    """With SYNC_FLUSH an acknowledgement waits for the disk: a delay that nobody feels is none."""
    cluster = rmq_cluster_factory(
        controllers=1, replicas=1, broker_settings={"flushDiskType": "SYNC_FLUSH"}
    )
    cluster.produce(1)
    cluster.slow_disk("broker-0", 300)
    started = time.monotonic()
    cluster.produce(1)
    assert time.monotonic() - started >= 0.3
    cluster.heal()
    started = time.monotonic()
    cluster.produce(1)
    assert time.monotonic() - started < 0.3
    cluster.assert_nothing_lost()


@pytest.mark.costly
def test_everybody_dies_and_returns(rmq_cluster: RmqCluster) -> None:
    """What was acknowledged is in files, and the ports are still the cluster's own."""
    rmq_cluster.produce(10)
    addresses = [node.address for node in rmq_cluster.nodes]
    for node in rmq_cluster.nodes:
        rmq_cluster.kill(node)
    assert rmq_cluster.master() is None
    rmq_cluster.heal()
    assert [node.address for node in rmq_cluster.nodes] == addresses
    rmq_cluster.produce(10)
    rmq_cluster.assert_nothing_lost()


@pytest.mark.slow
def test_a_broker_that_is_shut_down_leaves_a_clean_store(rmq_cluster: RmqCluster) -> None:
    """In order is not like a kill: the abort file goes, and the name server hears of it."""
    node = rmq_cluster.shut_down(rmq_cluster.wait_for_master())
    assert not (node.store / "abort").exists()
    assert rmq_cluster.wait_for_master() is not node


@pytest.mark.slow
def test_produce_says_why_nothing_is_acknowledged(rmq_cluster_factory: Factory) -> None:
    """A test that fails must tell what the cluster said last."""
    cluster = rmq_cluster_factory(controllers=1, replicas=1)
    cluster.kill("broker-0")
    with pytest.raises(NotYet, match=r"not acknowledged in .* attempts"):
        cluster.produce(1, timeout_s=0.3)
    with pytest.raises(NotYet, match=r"no master within 0\.2 s"):
        cluster.wait_for_master(timeout_s=0.2)
    with pytest.raises(KeyError, match="there are controller-0, namesrv-0, broker-0"):
        cluster.kill("broker-9")


@pytest.mark.slow
def test_missing_finds_a_message_that_is_not_there(rmq_cluster: RmqCluster) -> None:
    """The check behind every failover test must be able to fail."""
    (one,) = rmq_cluster.produce(b"here")
    core = rmq_cluster._core
    core.client.acked.append(
        type(one)(one.topic, b"gone", one.queue_id, one.queue_offset + 1, "", one.address, 1, 0, 0)
    )
    lost = rmq_cluster.missing(timeout_s=0.1)
    assert [message.body for message in lost] == [b"gone"]
    with pytest.raises(AssertionError, match="1 of 2 acknowledged messages lost"):
        rmq_cluster.assert_nothing_lost(timeout_s=0.1)


@pytest.mark.costly
@pytest.mark.parametrize("bodies", ["text", ["text"], [b"first", 7], True])
def test_produce_when_a_body_is_no_bytes_then_it_says_so_at_once(
    rmq_cluster: RmqCluster, bodies: object
) -> None:
    """It failed fourteen frames deep, or sent each letter."""
    with pytest.raises(TypeError, match="a body is bytes, not"):
        rmq_cluster.produce(bodies)  # type: ignore[arg-type]  # that is the point
    assert not rmq_cluster.consume()


@pytest.mark.costly
def test_produce_when_no_master_would_ever_take_it_then_it_is_tried_once(
    rmq_cluster: RmqCluster,
) -> None:
    """It was tried four thousand times, for thirty seconds."""
    began = time.monotonic()
    with pytest.raises(RefusedForGood, match="topic 'a b'"):
        rmq_cluster.produce(b"x", topic="a b")
    with pytest.raises(RefusedForGood, match=r"message 2 for .Fine.: .* 13: "):
        rmq_cluster.produce(bytes(5 << 20), topic="Fine")
    assert time.monotonic() - began < 10


def test_cluster_when_a_setting_is_misspelt_then_it_is_not_made(tmp_path: Path) -> None:
    """No thread is left behind either."""
    with pytest.raises(ValueError, match="is 'flushDiskType' meant"):
        RmqCluster(tmp_path, broker_settings={"flushDiskTyp": "SYNC_FLUSH"})


@pytest.mark.parametrize(
    "given",
    [
        {"controller_settings": {"statusPagePort": 0}},
        {"namesrv_settings": {"metricsExporterType": "PROM"}},
        {"node_settings": {"broker-1": {"statusPagePort": "5557"}}},
    ],
)
def test_cluster_when_its_nodes_would_open_no_page_then_it_is_not_made(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    """The key was read by nobody, and the test found no port."""
    with pytest.raises(ValueError, match="give processes=True"):
        RmqCluster(tmp_path, **given)


def test_messages_when_fewer_than_none_then_refused(rmq_cluster: RmqCluster) -> None:
    """A test that counted wrongly sent nothing, and went on."""
    for given in ({"messages": -1}, {"messages": 1, "in_flight": 0}):
        with pytest.raises(ValueError, match="too few"):
            rmq_cluster.produce(**given)
    assert rmq_cluster.produce(0) == []
