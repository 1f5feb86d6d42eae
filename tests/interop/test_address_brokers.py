"""Brokers of 5.0.0 and 5.1.0 under our controllers: they have no ids, only addresses."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.testing.real import producer as producer_of_tests
from rmqha.testing.real import wire
from rmqha.testing.real.cluster import FAST_BROKER, Cluster
from rmqha.testing.real.java import CLUSTER_NAME, JavaBroker
from rmqha.testing.real.maven import ADDRESS_VERSIONS
from rmqha.testing.real.processes import allocate_ports, wait_until
from rmqha.testing.real.producer import Producer, assert_nothing_lost
from tests.interop import required
from tests.interop.our_mqadmin import our_mqadmin

NAME = "broker-a"
ACKS = 10
"""A master of these releases looks once a second at what its slaves have, so each takes a second."""
PATIENCE_S = 3.0
LOST_TIMEOUT_S = 30.0


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
            producer.wait_for_write_after(moment, not_by=old.address)
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


def test_set_when_brought_to_a_later_release_then_it_keeps_its_messages_and_fails_over(
    cluster: Cluster, topic: str
) -> None:
    """The set stops in sync, the controllers forget its ids and keep its epoch, the old master starts
    first and the others copy everything from it.

    RocketMQ's own way is to remove the epoch files and start all on their stores. A slave of 5.3.3 that
    has messages but no epochs was seen to lose them here.
    """
    with Producer(cluster.name_server.address, topic) as producer:
        producer.wait_for_acks(ACKS)
    before = cluster.wait_in_sync()
    first = cluster.broker(before.master_id)
    old = [first, *(one for one in cluster.brokers if one is not first)]
    for broker in reversed(old):
        # A slave of 5.0.0 does not always end by itself, and is killed then.
        broker.child.terminate(60.0)
    wait_until(lambda: _is_masterless(cluster), LOST_TIMEOUT_S, "the set to have no master")
    _forget_set(cluster)
    cluster.brokers[:] = [_later(cluster, broker) for broker in old]
    for number, broker in enumerate(cluster.brokers, 1):
        if number > 1:
            shutil.rmtree(broker.store)
        broker.start()
        after = cluster.wait_in_sync() if number > 1 else cluster.controllers.wait_for_master(NAME)
    assert after.master_address == first.address
    assert after.master_epoch > before.master_epoch
    assert [broker.controller_id for broker in cluster.brokers] == [1, 2]
    assert_nothing_lost(cluster, producer, replicas=cluster.brokers)
    # A slave of Java's copies topics every so often: one that dies before takes them with it.
    wait_until(lambda: all(_has_topic(one, topic) for one in cluster.brokers), 30.0, topic)
    with Producer(cluster.name_server.address, topic) as later:
        later.wait_for_acks(ACKS)
        victim, moment = cluster.master(), time.monotonic()
        victim.child.kill()
        # What the victim had still acknowledged itself says nothing of who reigns now.
        later.wait_for_write_after(moment, not_by=victim.address)
    for one in (producer, later):
        assert_nothing_lost(cluster, one)


def _has_topic(broker: JavaBroker, topic: str) -> bool:
    return wire.invoke(broker.address, 351, {"topic": topic}).code == wire.SUCCESS


def _is_masterless(cluster: Cluster) -> bool:
    info = cluster.controllers.replica_info(NAME)
    return info is not None and info.master_id is None


def _forget_set(cluster: Cluster) -> None:
    """``mqadmin cleanBrokerMetadata`` of all its brokers, as an operator types it."""
    our_mqadmin(
        "cleanBrokerMetadata",
        "-a", cluster.controllers.address_list, "-bn", NAME, "-c", CLUSTER_NAME, "-l",
    )  # fmt: skip


def _later(cluster: Cluster, old: JavaBroker) -> JavaBroker:
    """The same broker in the default release: its folder, store and ports."""
    return JavaBroker(
        old.home, range(old.port - 2, old.port + 2), old.number, cluster.name_server.address,
        cluster.controllers.address_list, settings=FAST_BROKER,
    )  # fmt: skip
