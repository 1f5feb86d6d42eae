"""A subscription that no message can match: heartbeats may have it, as in Java, and nobody reads by it."""

from __future__ import annotations

from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.subscriber import Subscriber


def test_pull_when_the_heartbeat_names_no_tag_then_it_is_refused_and_moves_nowhere() -> None:
    """Each pull brought nothing and went on, past all messages that a mended client would want."""
    with ReplicaCluster(seed=21, replicas=1) as cluster:
        cluster.boot_all()
        cluster.send(0)
        one = Subscriber(cluster, master_of(cluster).config.address)
        assert one.beat("G", TOPIC, expression="||", version=1).code == 0
        fields = {
            "consumerGroup": "G", "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 8,
            "sysFlag": 1, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 1,
        }  # fmt: skip
        assert one.ask(11, fields).code == 23
        assert master_of(cluster).offsets.table.groups_of(TOPIC) == []
        assert one.beat("G", TOPIC, expression="TagA || ", version=2).code == 0
        assert one.ask(11, fields).code == 0
