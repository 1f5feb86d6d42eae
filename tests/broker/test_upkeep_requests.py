"""306, 316 and 329: what operators ask a broker to tidy up, against a whole replica, simulated."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest

from rmqha.broker.topics.topic_table import unused_topics
from rmqha.store.aio.queue_files import QueueFiles
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields

WALL_S = 1_700_000_000


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """Two replicas whose log has several files, all of them over but not at this hour."""
    hour = (datetime.fromtimestamp(WALL_S).astimezone().hour + 12) % 24
    with ReplicaCluster(
        seed=35, replicas=2, fileReservedTime="0", deleteWhen=f"{hour:02}",
        mappedFileSizeConsumeQueue="400",
    ) as one:  # fmt: skip
        one.boot_all()
        one.until(one.in_sync, "SyncStateSet of two")
        for number in range(100):
            fields = send_fields(number) | {"e": "0"}
            body = b"%04000d" % number
            assert one.ask(master_of(one).config.address, 310, fields, body).code == 0
        one.run_for(21_000)
        yield one


def ask(cluster: ReplicaCluster, code: int) -> int:
    """A tool's request to the master."""
    return cluster.ask(master_of(cluster).config.address, code).code


def queue_files(cluster: ReplicaCluster) -> list[str]:
    """The files of the queue that has messages."""
    files = master_of(cluster).store.queues.queues[TOPIC.encode(), 0].files
    return [str(offset) for offset in range(files.first, files.end, files.size)]


@pytest.mark.costly
def test_log_when_asked_to_tidy_up_then_files_that_are_over_go_at_any_hour(
    cluster: ReplicaCluster,
) -> None:
    """329: a disk that fills up cannot wait for deleteWhen; what is readable stays readable."""
    store = master_of(cluster).store
    assert store.min_offset == 0
    assert ask(cluster, 329) == 0
    first = store.min_offset
    assert 0 < first <= store.max_offset - store.commit_log.file_size // 4
    low = store.reader.min_offset(TOPIC, 0)
    assert 0 < low < store.reader.max_offset(TOPIC, 0) == 100
    assert store.reader.store_timestamp(TOPIC, 0, low) > 0


@pytest.mark.costly
def test_queues_when_asked_to_tidy_up_then_files_without_a_record_go(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """306: queues of a store that another release left untidy."""
    store = master_of(cluster).store
    before = queue_files(cluster)

    async def leave(log_min: int) -> list[QueueFiles]:
        """A release that deletes no files of queues."""
        return []

    with monkeypatch.context() as patch:
        patch.setattr(store.queues, "expire", leave)
        assert ask(cluster, 329) == 0
    assert queue_files(cluster) == before
    assert ask(cluster, 306) == 0
    assert 0 < len(queue_files(cluster)) < len(before)


@pytest.mark.costly
def test_topics_when_asked_to_tidy_up_then_queues_of_none_go_from_every_replica(
    cluster: ReplicaCluster,
) -> None:
    """316: a table that came without a topic leaves its queues, and messages of whoever makes it anew
    would stand behind them."""
    assert ask(cluster, 316) == 0
    master = master_of(cluster)
    assert master.store.reader.max_offset(TOPIC, 0) == 100
    for broker in cluster.brokers.values():
        broker.topics.table.delete(TOPIC, broker.clock.wall_ms())
    kept = {name for name in master.store.reader.topics() if name != TOPIC}
    assert ask(cluster, 316) == 0
    cluster.until(
        lambda: not any(one.store.reader.has_topic(TOPIC) for one in cluster.brokers.values()),
        "the queues to go",
    )
    assert set(master.store.reader.topics()) == kept
    assert "rmq_sys_METADATA" in kept


def test_topics_when_they_are_the_brokers_own_then_they_are_never_unused() -> None:
    """Queues of internal topics are there before, and without, a topic of theirs."""
    stored = ["%LMQ%a", "A", "B", "SCHEDULE_TOPIC_XXXX", "rmq_sys_METADATA"]
    assert unused_topics(stored, {"B"}) == ["A"]
