"""Operators move masterships and remove brokers with the real mqadmin."""

from __future__ import annotations

from rmqha.admin.bodies import decode_table
from rmqha.remoting.codes import RequestCode
from rmqha.testing.real import wire
from rmqha.testing.real.cluster import Cluster
from rmqha.testing.real.java import CLUSTER_NAME, JavaBroker
from rmqha.testing.real.mqadmin import fields, mqadmin
from rmqha.testing.real.processes import wait_until
from rmqha.testing.real.producer import Producer, assert_nothing_lost
from tests.interop.our_mqadmin import our_mqadmin

NAME = "broker-a"


def test_elect_master_moves_the_mastership_without_loss(cluster: Cluster, topic: str) -> None:
    """A designated election of a healthy replica in sync replaces a healthy master."""
    before = cluster.controllers.wait_for_master(NAME)
    chosen = cluster.slaves()[0]
    with Producer(cluster.name_server.address, topic) as producer:
        producer.wait_for_acks(100)
        output = _elect(cluster, chosen.controller_id)
        shown = fields(output)
        assert [chosen.address] == shown["BrokerMasterAddr"], output
        assert [str(before.master_epoch + 1)] == shown["MasterEpoch"]
        after = cluster.controllers.wait_for_master(NAME, master_id=chosen.controller_id)
        assert before.master_epoch + 1 == after.master_epoch
        cluster.wait_in_sync()
        producer.wait_for_acks(100)
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)


def test_switch_master_when_java_is_held_then_it_refuses_sends_and_takes_them_again(
    cluster: Cluster, topic: str
) -> None:
    """Producers are told a reason that they try again for, and nothing is lost; twice."""
    with Producer(cluster.name_server.address, topic) as producer:
        producer.wait_for_acks(100)
        for _ in range(2):
            chosen = cluster.slaves()[0]
            old = cluster.master()
            switch_master(cluster, chosen.controller_id)
            cluster.controllers.wait_for_master(NAME, master_id=chosen.controller_id)
            cluster.wait_in_sync()
            assert held_until(old) == 0, "it would take no sends as master for a while"
            producer.wait_for_acks(100)
        reasons = [one for one in producer.reasons if "broker unable to service, until" in one]
        assert reasons, producer.reasons
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)


def test_elect_master_of_the_master_is_refused(cluster: Cluster) -> None:
    """2011: nothing changes, no epoch is spent."""
    before = cluster.controllers.wait_for_master(NAME)
    assert "CODE: 2011" in _elect(cluster, before.master_id)
    assert before == cluster.controllers.replica_info(NAME)


def test_elect_master_of_an_unknown_id_is_refused(cluster: Cluster) -> None:
    """2012: an id that nobody has cannot lead, and the master stays."""
    before = cluster.controllers.wait_for_master(NAME)
    assert "CODE: 2012" in _elect(cluster, 99)
    assert before == cluster.controllers.replica_info(NAME)


def test_clean_broker_metadata_forgets_a_dead_broker_only(cluster: Cluster) -> None:
    """A living broker is protected; a dead one leaves the tables and its id is not reused."""
    extra = cluster.add_broker()
    try:
        extra.start()
        cluster.wait_in_sync()
        gone = extra.controller_id
        assert gone is not None
        assert "CODE: 2009" in _clean(cluster, gone)
        extra.child.kill()
    finally:
        cluster.brokers.remove(extra)
        extra.child.kill()
    cluster.wait_in_sync()
    wait_until(lambda: not _is_alive(cluster, gone), 20.0, f"broker {gone} to count as dead")
    output = _clean(cluster, gone)
    assert f"clear broker {NAME} metadata from controller success!" in output
    assert gone not in _known_ids(cluster)
    assert {b.controller_id for b in cluster.brokers} == _known_ids(cluster)


def test_clean_broker_metadata_of_an_unknown_set_is_refused(cluster: Cluster) -> None:
    """2009 with the reason."""
    output = mqadmin(
        "cleanBrokerMetadata", "-a", cluster.controllers.addresses[0], "-bn", "nobody",
        "-c", CLUSTER_NAME, "-b", "1",
    )  # fmt: skip
    assert "CODE: 2009" in output
    assert "is not existed" in output


def switch_master(cluster: Cluster, controller_id: int | None) -> None:
    """By our command: Java's has none."""
    our_mqadmin(
        "switchMaster", "--hold-java", "-a", cluster.controllers.address_list,
        "-b", str(controller_id), "-bn", NAME, "-c", CLUSTER_NAME,
    )  # fmt: skip


def held_until(broker: JavaBroker) -> int:
    """startAcceptSendRequestTimeStamp, by the broker's own word."""
    with wire.Connection(broker.address, 5.0) as connection:
        answer = connection.invoke(RequestCode.GET_BROKER_RUNTIME_INFO, {})
    return int(decode_table(answer.body)["startAcceptSendRequestTimeStamp"])


def _elect(cluster: Cluster, controller_id: int | None) -> str:
    return mqadmin(
        "electMaster", "-a", cluster.controllers.addresses[0], "-b", str(controller_id),
        "-bn", NAME, "-c", CLUSTER_NAME,
    )  # fmt: skip


def _clean(cluster: Cluster, controller_id: int) -> str:
    return mqadmin(
        "cleanBrokerMetadata", "-a", cluster.controllers.addresses[0], "-b", str(controller_id),
        "-bn", NAME, "-c", CLUSTER_NAME,
    )  # fmt: skip


def _replicas(cluster: Cluster) -> list[dict[str, object]]:
    data = cluster.controllers.sync_state_set(NAME)
    return [] if data is None else [*data["inSyncReplicas"], *data["notInSyncReplicas"]]


def _known_ids(cluster: Cluster) -> set[object]:
    return {replica["brokerId"] for replica in _replicas(cluster)}


def _is_alive(cluster: Cluster, controller_id: int) -> bool:
    states = [r["alive"] for r in _replicas(cluster) if r["brokerId"] == controller_id]
    return not states or bool(states[0])
