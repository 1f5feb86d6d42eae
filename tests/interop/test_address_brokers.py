"""Brokers of 5.0.0 and 5.1.0 under our controllers: they have no ids, only addresses."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.testing.real import producer as producer_of_tests
from rmqha.testing.real.cluster import FAST_BROKER, Cluster
from rmqha.testing.real.java import JavaBroker
from rmqha.testing.real.maven import ADDRESS_VERSIONS
from rmqha.testing.real.processes import allocate_ports
from rmqha.testing.real.producer import Producer, assert_nothing_lost
from tests.interop import required

NAME = "broker-a"
ACKS = 10
"""A master of these releases looks once a second at what its slaves have, so each takes a second."""
PATIENCE_S = 3.0


class AddressBroker(JavaBroker):
    """A broker that keeps no id; the controllers know which one they gave it."""

    def __init__(self, cluster: Cluster, number: int, version: str) -> None:
        super().__init__(
            cluster.folder / f"old{number}", allocate_ports(), number, cluster.name_server.address,
            cluster.controllers.address_list, version=version, settings=FAST_BROKER,
        )  # fmt: skip
        self._controllers = cluster.controllers
        # 5.0.0 looks for its logging nowhere else, and does not start without.
        conf = self.home / "conf" / "logback_broker.xml"
        conf.parent.mkdir()
        shutil.copyfile(self.home / "logback.xml", conf)

    @property
    def controller_id(self) -> int | None:
        """The id at its address."""
        data = self._controllers.sync_state_set(NAME) or {}
        both = [*data.get("inSyncReplicas", ()), *data.get("notInSyncReplicas", ())]
        found = [one["brokerId"] for one in both if one["brokerAddress"] == self.address]
        return found[0] if found else None


@pytest.fixture(scope="module", params=ADDRESS_VERSIONS)
def shared_cluster(request: pytest.FixtureRequest, folder: Path) -> Iterator[Cluster]:
    """Two brokers of one of these releases; Java's controllers since 5.1.1 refuse them."""
    version: str = request.param
    required.require_classpath(version)
    required.require_classpath()
    with Cluster(folder / version, "rmqha", brokers=0) as cluster:
        for number in (1, 2):
            cluster.brokers.append(AddressBroker(cluster, number, version))
        cluster.start()
        yield cluster


def test_set_when_its_masters_die_then_it_fails_over_and_takes_them_back(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Join, two kills in a row, and both return as slaves."""
    monkeypatch.setattr(producer_of_tests, "SEND_TIMEOUT_S", PATIENCE_S)
    before = cluster.controllers.wait_for_master(NAME)
    assert [broker.controller_id for broker in cluster.brokers] == [1, 2]
    with Producer(cluster.name_server.address, topic) as producer:
        for _ in range(2):
            producer.wait_for_acks(ACKS)
            old = cluster.master()
            moment = time.monotonic()
            old.child.kill()
            producer.wait_for_write_after(moment)
            after = cluster.controllers.wait_for_master(NAME, other_than=before.master_id)
            assert after.master_epoch > before.master_epoch
            old.start()
            healed = cluster.wait_in_sync()
            assert (healed.master_id, healed.master_epoch) == (after.master_id, after.master_epoch)
            before = healed
        producer.wait_for_acks(ACKS)
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)


def test_controllers_when_restarted_then_addresses_keep_their_ids(cluster: Cluster) -> None:
    """They are in the log like everybody's."""
    before = cluster.wait_in_sync()
    ids = {broker.address: broker.controller_id for broker in cluster.brokers}
    for node in range(len(cluster.controllers.nodes)):
        cluster.controllers.restart(node)
        cluster.controllers.wait_for_agreement()
    after = cluster.wait_in_sync()
    assert {broker.address: broker.controller_id for broker in cluster.brokers} == ids
    assert (after.master_id, after.master_epoch) == (before.master_id, before.master_epoch)
