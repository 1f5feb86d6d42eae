"""Whoever pops several topics in turn gets messages of every queue, and what is to be retried."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.broker.replicas import ReplicaCluster, master_of, send_fields
from tests.broker.test_pop_in_simulator import GROUP, pop

TOPICS = ("A", "B", "C", "D", "E")
BACKLOG = 40
POPS = 120


def fill(cluster: ReplicaCluster, topic: str, queues: int) -> None:
    """A topic with so many messages in each of its queues that no pop empties one."""
    address = master_of(cluster).config.address
    wanted = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues),
        "writeQueueNums": str(queues), "perm": "6", "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    assert cluster.ask(address, 17, wanted).code == 0
    sends = [
        (send_fields(number, topic) | {"e": str(queue)}, b"body")
        for queue in range(queues)
        for number in range(BACKLOG * (2 if queues == 1 else 1))
    ]
    assert {answer.code for answer in cluster.ask_together(address, 310, sends)} == {0}


@pytest.mark.costly
@pytest.mark.parametrize("topics", [1, 2, 5])
def test_pops_when_topics_are_asked_in_turn_then_each_queue_is_served_and_retries_are(
    topics: int,
) -> None:
    """The pops of a broker were counted: a consumer of two topics had every second queue of each for as
    long as there was a backlog, one of five had no retries of four of them, and a topic with five
    queues had its first one behind the retries for ever."""
    with ReplicaCluster(seed=46, replicas=1) as cluster:
        cluster.boot_all()
        for topic in TOPICS[:topics]:
            fill(cluster, topic, 5)
            fill(cluster, f"%RETRY%{GROUP}_{topic}", 1)
        cluster.run_for(200)
        seen: dict[str, Counter[int]] = {topic: Counter() for topic in TOPICS[:topics]}
        for _ in range(POPS):
            for topic, counted in seen.items():
                code, (message,) = pop(cluster, 1, topic=topic, invisibleTime=600_000)
                assert code == 0
                counted[-1 if message.key.split(" ")[4] == "1" else message.queue_id] += 1
        for counted in seen.values():
            assert set(counted) == {-1, 0, 1, 2, 3, 4}
            assert all(8 < counted[queue] < 40 for queue in counted)
