"""Groups under whose names a broker's own services keep their positions: no client may move them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.broker.deferred.transactions import GROUP as TRANSACTIONS
from rmqha.broker.pop.check_points import REVIVE_GROUP, REVIVE_TOPIC
from rmqha.broker.topics.group_table import OWN_GROUPS
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.test_pop_in_simulator import pop

FREE = "CID_RMQ_SYS_mqtt_event"
"""Of RocketMQ's MQTT, whose consumers it is shared among."""


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica, and a group that clones its offsets."""
    with ReplicaCluster(seed=21, replicas=1) as one:
        one.boot_all()
        one.send(0)
        assert ask(one, 15, consumerGroup="Source", topic=revive_topic(one), queueId=0,
                   commitOffset=7) == 26  # fmt: skip
        assert one.ask(address(one), 200, {}, b'{"groupName":"Source"}').code == 0
        assert ask(one, 15, consumerGroup="Source", topic=revive_topic(one), queueId=0,
                   commitOffset=7) == 0  # fmt: skip
        yield one


def address(cluster: ReplicaCluster) -> str:
    """Of the master."""
    return master_of(cluster).config.address


def revive_topic(cluster: ReplicaCluster) -> str:
    """Of the cluster."""
    return REVIVE_TOPIC + str(master_of(cluster).config.cluster_name)


def ask(cluster: ReplicaCluster, code: int, **fields: object) -> int:
    """The code of the answer."""
    texts = {name: str(value) for name, value in fields.items()}
    return cluster.ask(address(cluster), code, texts).code


def test_own_groups_when_named_then_they_are_those_of_the_services() -> None:
    """The names are here and there."""
    assert {REVIVE_GROUP, TRANSACTIONS} == OWN_GROUPS


@pytest.mark.parametrize("group", [REVIVE_GROUP, TRANSACTIONS])
def test_own_group_when_a_client_would_move_it_then_it_stays(
    cluster: ReplicaCluster, group: str
) -> None:
    """Beyond the queue's end, say: check points were passed over, and nothing revived."""
    topic, master = revive_topic(cluster), master_of(cluster)
    table, place = master.offsets.table, {"topic": topic, "queueId": 0}
    before = table.query(group, topic, 0)
    assert ask(cluster, 15, consumerGroup=group, commitOffset=7, **place) == 16
    assert ask(cluster, 222, group=group, topic=topic, timestamp=-1, isForce="true") == 16
    assert ask(cluster, 314, srcGroup="Source", destGroup=group, topic=topic, offline="true") == 16
    pulled = ask(
        cluster, 11, consumerGroup=group, queueOffset=0, maxMsgNums=1, sysFlag=5, commitOffset=7,
        suspendTimeoutMillis=0, subscription="*", subVersion=1, **place,
    )  # fmt: skip
    assert pulled in (0, 19)
    assert pop(cluster, consumerGroup=group, topic=topic) == (16, [])
    cluster.run_for(1_000)
    assert table.query(group, topic, 0) == before
    assert master.offsets.table._reset == {}


def test_group_when_it_has_the_prefix_alone_then_it_is_a_client_s(cluster: ReplicaCluster) -> None:
    """Java reserves nothing under it, and makes such groups by itself."""
    place = {"consumerGroup": FREE, "topic": TOPIC, "queueId": 0}
    assert len(pop(cluster, consumerGroup=FREE)[1]) == 1
    assert ask(cluster, 15, commitOffset=1, **place) == 0
    assert master_of(cluster).offsets.table.query(FREE, TOPIC, 0) == 1
