"""Brokers of the oldest and the newest release of the supported generation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.testing.real.cluster import Cluster
from rmqha.testing.real.mqadmin import fields, mqadmin
from rmqha.testing.real.producer import Producer, assert_nothing_lost
from tests.interop import required

NAME = "broker-a"


@pytest.fixture(scope="module", params=["5.1.4", "5.5.0"])
def shared_cluster(request: pytest.FixtureRequest, folder: Path, kind: str) -> Iterator[Cluster]:
    """Two brokers and a name server of another release under the same controllers."""
    version: str = request.param
    required.require_classpath(version)
    required.require_classpath()
    with Cluster(folder / version, kind, brokers=2, version=version) as cluster:
        cluster.start()
        yield cluster


def test_join_kill_and_return(cluster: Cluster, topic: str) -> None:
    """The whole life of a set: join, lose the master, take it back as a slave."""
    before = cluster.controllers.wait_for_master(NAME)
    assert [1, 2] == [broker.controller_id for broker in cluster.brokers]
    old = cluster.master()
    with Producer(cluster.name_server.address, topic) as producer:
        producer.wait_for_acks(100)
        moment = time.monotonic()
        old.child.kill()
        producer.wait_for_write_after(moment, not_by=old.address)
        after = cluster.controllers.wait_for_master(NAME, other_than=before.master_id)
        assert before.master_epoch + 1 == after.master_epoch
        producer.wait_for_acks(100)
        old.start()
        healed = cluster.wait_in_sync()
        assert after.master_id == healed.master_id
        producer.wait_for_acks(50)
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)


def test_its_own_mqadmin_reads_the_sync_state_set(cluster: Cluster) -> None:
    """Each release's tool parses the answers with its own classes."""
    address = cluster.controllers.addresses[0]
    output = mqadmin("getSyncStateSet", "-a", address, "-b", NAME, version=cluster.version)
    assert ["2"] == fields(output)["SyncStateSetNums"], output
