"""Where messages go that a consumer has failed with: into queues that there are, and that it finds."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rmqha.broker.pop.aio import revive
from rmqha.broker.topics.topic_table import TopicTable
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.test_pop_in_simulator import INVISIBLE_MS, RETRY, ack, bodies, pop
from tests.broker.test_revive import kept
from tests.broker.test_write_lease_in_simulator import said


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica."""
    with ReplicaCluster(seed=21, replicas=1, messageDelayLevel="1s 5s 10s") as one:
        one.boot_all()
        yield one


def want_queues(cluster: ReplicaCluster, count: int) -> None:
    """An operator sets retryQueueNums (200)."""
    body = json.dumps({"groupName": "Pulls", "retryQueueNums": count}).encode()
    assert cluster.ask(master_of(cluster).config.address, 200, {}, body).code == 0


def send_back(cluster: ReplicaCluster) -> None:
    """36 for the first message of queue 0, to be delivered at once more after a second."""
    master = master_of(cluster)
    unit = master.store.reader.unit(TOPIC, 0, 0)
    assert unit is not None
    fields = {"offset": str(unit.physical_offset), "group": "Pulls", "delayLevel": "1"}
    assert cluster.ask(master.config.address, 36, fields).code == 0


def retried(cluster: ReplicaCluster) -> dict[int, int]:
    """Messages in the queues of the retry topic."""
    reader = master_of(cluster).store.reader
    found = {number: reader.max_offset("%RETRY%Pulls", number) for number in range(8)}
    return {number: count for number, count in found.items() if count > 0}


def test_messages_sent_back_when_the_group_wants_more_queues_then_they_go_where_they_are_read(
    cluster: ReplicaCluster,
) -> None:
    """A retry topic keeps the queues that it was made with: what lay behind them was read by nobody."""
    cluster.send(0)
    want_queues(cluster, 1)
    send_back(cluster)
    want_queues(cluster, 4)
    for _ in range(5):
        send_back(cluster)
    topic = master_of(cluster).topics.table.get("%RETRY%Pulls")
    assert topic is not None
    assert topic.read_queue_nums == 1
    cluster.until(lambda: sum(retried(cluster).values()) == 6, "all deliveries", 5_000)
    assert retried(cluster) == {0: 6}


def test_messages_sent_back_when_the_topic_has_many_queues_then_all_are_used(
    cluster: ReplicaCluster,
) -> None:
    """As many as the group wanted when the topic was made."""
    cluster.send(0)
    want_queues(cluster, 3)
    for _ in range(6):
        send_back(cluster)
    cluster.until(lambda: retried(cluster) == {0: 2, 1: 2, 2: 2}, "all deliveries", 5_000)


@pytest.mark.costly
def test_revive_when_no_retry_topic_can_be_made_then_the_messages_come_when_there_is_room(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They went into queues without a topic, where no pop looks; others need not wait for them."""
    cluster.send_many(4)
    cluster.run_for(100)
    popped = pop(cluster)[1]
    assert len(popped) == 4
    assert ack(cluster, popped[0]) == 0
    master = master_of(cluster)
    number = int(popped[0].key.split(" ")[3])
    monkeypatch.setattr(revive, "PUT_OFF_MS", 20_000)
    with monkeypatch.context() as full:
        full.setattr(TopicTable, "fits", lambda *_: False)
        cluster.until(lambda: said(cluster, "revival_put_off"), "a full table", 2 * INVISIBLE_MS)
        cluster.until(lambda: master.pop.revive.open_count == 0, "its end", 2_000)
        cluster.run_for(1_000)
    assert said(cluster, "revival_put_off") == 3, "each once"
    assert master.topics.table.get(RETRY) is None
    assert kept(master, number) is not None, "what is behind it need not wait"
    assert master.store.reader.max_offset(RETRY, 0) <= 0
    cluster.until(lambda: master.pop.revive.revived == 3, "the messages once more", 30_000)
    assert bodies(pop(cluster)[1]) == sorted(one.body for one in popped[1:])
