"""Mappings of static topics, as requests bring them."""

from __future__ import annotations

from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.mapping import LogicQueueMappingItem, Segments, TopicQueueMappingDetail
from tests.broker.replicas import NAME, ReplicaCluster, master_of

T = "Static"
FIELDS = {
    "topic": T, "readQueueNums": "4", "writeQueueNums": "4", "perm": "6", "order": "false",
    "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
}  # fmt: skip


def led(queue: int, gen: int = 0, name: str = NAME, begin: int = 0) -> LogicQueueMappingItem:
    """One segment."""
    return LogicQueueMappingItem(gen, queue, name, begin)


def detail(
    epoch: int = 1, queues: dict[int, Segments] | None = None, name: str = NAME, topic: str = T
) -> TopicQueueMappingDetail:
    """Four logical queues; without ``queues`` all are led here."""
    if queues is None:
        queues = {number: (led(number),) for number in range(4)}
    return TopicQueueMappingDetail(topic, 4, name, epoch, hosted_queues=queues)


def put_static(
    cluster: ReplicaCluster, mapping: TopicQueueMappingDetail, **fields: str
) -> RemotingCommand:
    """513 at the master."""
    address, body = master_of(cluster).config.address, fastjson.dumps(mapping.members())
    return cluster.ask(address, 513, {**FIELDS, **fields}, body)
