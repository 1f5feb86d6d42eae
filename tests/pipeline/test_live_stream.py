"""The stream's reader as Spark's driver uses it: how much it takes at once, and what it tells of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from rmqha.pipeline.live.options import read_options
from rmqha.pipeline.live.stream import LiveStreamReader
from rmqha.testing.cluster import RmqCluster
from tests.pipeline.live import Topic

pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RmqCluster]:
    """One controller and one replica."""
    with RmqCluster(tmp_path_factory.mktemp("stream"), controllers=1, replicas=1) as made:
        yield made


class Stream:
    """A query's batches: each begins where the one before has ended.

    Attributes:
        reader: of them.
    """

    def __init__(self, topic: Topic, **options: str) -> None:
        self.reader = LiveStreamReader(read_options(topic.options(**options)), ("body",))
        self.at: dict[str, Any] = self.reader.initialOffset()

    def take(self) -> int:
        """How many offsets the next batch has."""
        limit = self.reader.getDefaultReadLimit()
        end = self.reader.latestOffset(self.at, limit)
        parts: list[Any] = list(self.reader.partitions(self.at, end))
        self.at = end
        return sum(one.wanted.stop - one.wanted.start for one in parts)


@pytest.mark.costly
def test_batch_when_it_would_be_small_then_waited_for(cluster: RmqCluster) -> None:
    """The first one is not, nor one that has waited for long enough, nor the last of a query that ends."""
    topic = Topic(cluster, "Small")
    least = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "4"}
    topic.fill(3)
    stream = Stream(topic, **least)
    assert stream.take() == 3
    assert stream.take() == 0
    topic.fill(3, first=3)
    assert stream.take() == 0
    behind = stream.reader.reportLatestOffset()
    assert behind is not None
    assert behind["maxOffsetsBehindLatest"] > 0
    topic.fill(1, first=6)
    assert stream.take() == 4
    topic.fill(2, first=7)
    assert stream.take() == 0
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.take() == 2
    stream.reader.stop()
    hasty = Stream(topic, **least, maxTriggerDelay="0ms")
    assert hasty.take() == 9
    topic.fill(1, first=9)
    assert hasty.take() == 1
    hasty.reader.stop()


def test_lag_when_a_batch_is_limited_then_told_by_kafkas_names(cluster: RmqCluster) -> None:
    """Behind the end of the batch, over all queues."""
    topic = Topic(cluster, "Behind")
    topic.fill(10)
    stream = Stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    assert stream.reader.reportLatestOffset() is None
    expected = [(4, 3.0), (4, 1.0), (2, 0.0), (0, 0.0)]
    for taken, average in expected:
        assert stream.take() == taken
        told = stream.reader.reportLatestOffset()
        assert told is not None
        names = ("minOffsetsBehindLatest", "avgOffsetsBehindLatest", "maxOffsetsBehindLatest")
        assert [told[name] for name in names] == [average] * 3
    stream.reader.stop()


def test_batch_when_unlimited_then_all_there_is(cluster: RmqCluster) -> None:
    """A query without options is not slowed down."""
    topic = Topic(cluster, "Unlimited")
    topic.fill(5)
    stream = Stream(topic, startingOffsets="earliest")
    assert isinstance(stream.reader.getDefaultReadLimit(), ReadAllAvailable)
    assert stream.take() == 5
    stream.reader.stop()
