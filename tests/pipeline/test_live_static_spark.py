"""Static topics in a real Spark session: batches, streams over remaps, and the sink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqha.testing.real.processes import wait_until
from tests.pipeline.static import NAMES, StaticTopics
from tests.pipeline.test_live import lose_the_last_commit
from tests.pipeline.to_the_end import stream_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
STREAM_S = 60
MOCK = "__syslo__global__"


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StaticTopics]:
    """Two broker sets."""
    with StaticTopics.opened(tmp_path_factory.mktemp("static")) as made:
        yield made


def writer(
    spark: SparkSession, sets: StaticTopics, topic: str, folder: Path, **more: str
) -> DataStreamWriter:
    """A stream of a topic to Parquet, not started."""
    options = {"startingOffsets": "earliest", **sets.options(topic, **more)}
    stream = spark.readStream.format("rocketmq").options(**options).load()
    return stream.writeStream.format("parquet").option(
        "checkpointLocation", str(folder / "checkpoint")
    )


def run(
    spark: SparkSession, sets: StaticTopics, topic: str, folder: Path, **more: str
) -> list[int]:
    """Read what there is now; how many rows each batch had."""
    begun = writer(spark, sets, topic, folder, **more)
    query = stream_to(begun, str(folder / "lake"), STREAM_S)
    return [one["numInputRows"] for one in query.recentProgress]


def places(rows: DataFrame) -> list[tuple[Any, ...]]:
    """Body, queue and offset of every row."""
    found = rows.select("body", "queueId", "queueOffset").collect()
    return sorted((bytes(row.body), (row.queueId, row.queueOffset)) for row in found)


def test_stream_when_queues_move_between_its_batches_then_every_message_once(
    spark: SparkSession, sets: StaticTopics, tmp_path: Path
) -> None:
    """Also when the query dies before it has written its commit, and plans the batch again after
    the remap; a limit is not spent on offsets that have no messages."""
    sets.create("Moves")
    sent = sets.fill("Moves", range(10))
    assert run(spark, sets, "Moves", tmp_path, maxOffsetsPerTrigger="4")[:3] == [4, 4, 2]
    sent |= sets.fill("Moves", range(10, 14))
    assert sum(run(spark, sets, "Moves", tmp_path)) == 4
    lose_the_last_commit(tmp_path)
    sets.remap("Moves", NAMES[1])
    sent |= sets.fill("Moves", range(14, 20))
    counts = run(spark, sets, "Moves", tmp_path, maxOffsetsPerTrigger="4")
    assert len(counts) < 10
    lake = spark.read.parquet(str(tmp_path / "lake"))
    assert places(lake) == sorted(sent.items())
    rows = spark.read.format("rocketmq").options(**sets.options("Moves")).load()
    assert places(rows) == sorted(sent.items())
    assert {row.brokerName for row in rows.collect()} == {MOCK}
    assert {row.storeHost for row in rows.collect()} == {
        one.address for one in sets.brokers.values()
    }
    start = f'{{"Moves":{{"{MOCK}":{{"0":-1,"1":10001}}}}}}'
    late = spark.read.format("rocketmq").options(**sets.options("Moves", startingOffsets=start))
    assert [place for _, place in places(late.load())] == [(1, 10_001), (1, 10_002)]


def test_query_when_it_runs_and_queues_move_then_it_goes_on(
    spark: SparkSession, sets: StaticTopics, tmp_path: Path
) -> None:
    """One query, micro batch after micro batch, there and back."""
    sets.create("Running")
    sent = sets.fill("Running", range(6))
    query: StreamingQuery = writer(spark, sets, "Running", tmp_path).start(str(tmp_path / "lake"))

    def read() -> int:
        assert query.isActive, query.exception()
        return sum(one["numInputRows"] for one in query.recentProgress)

    def wait_for(count: int, what: str) -> None:
        wait_until(lambda: read() >= count, STREAM_S, what)

    try:
        wait_for(6, "the first messages")
        for name, numbers in ((NAMES[1], range(6, 11)), (NAMES[0], range(11, 16))):
            sets.remap("Running", name)
            sent |= sets.fill("Running", numbers)
            wait_for(numbers.stop, f"what was sent to {name}")
    finally:
        query.stop()
    assert places(spark.read.parquet(str(tmp_path / "lake"))) == sorted(sent.items())


def test_rows_when_written_to_a_static_topic_then_in_its_logical_queues(
    spark: SparkSession, sets: StaticTopics
) -> None:
    """The sink takes the leaders in turn, also after they have changed."""
    sets.create("Written")
    rows = spark.createDataFrame([(f"row {one}",) for one in range(8)], "body string")
    given = {"nameServer": sets.server.address, "topic": "Written"}
    for name in (NAMES[0], NAMES[1]):
        if name != NAMES[0]:
            sets.remap("Written", name)
        sink = rows.write.format("rocketmq").mode("append")
        sink.options(**given, batchMessages="2").save()
    found = places(spark.read.format("rocketmq").options(**given).load())
    assert sorted(body for body, _ in found) == sorted([b"row %d" % one for one in range(8)] * 2)
    assert {place[0] for _, place in found} == {0, 1}
    assert {place[1] >= 10_000 for _, place in found} == {False, True}
