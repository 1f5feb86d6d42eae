"""A stream from a live cluster whose master is killed five times: every message once in Parquet."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from rmqha.base.errors import RmqhaError
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.real import wire
from rmqha.testing.real.processes import wait_until
from tests.pipeline.live import Topic
from tests.pipeline.to_the_end import to_the_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore"),
]
GET_MAX_OFFSET = 30
KILLS = 5
BETWEEN_KILLS = 40
ROWS = 3000
WAIT_S = 60.0
STREAM_S = 90


class Producer:
    """Sends without an end, each message until it is acknowledged.

    Attributes:
        error: what ended it, if something did.
    """

    def __init__(self, cluster: RmqCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._is_over = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        try:
            while not self._is_over.is_set():
                bodies = [b"%06d" % one + b"x" * 100 for one in range(number, number + 10)]
                self._cluster.produce(bodies, topic=self._topic, in_flight=2)
                number += 10
        except (AssertionError, RmqhaError) as error:
            self.error = error

    def wait_for(self, more: int) -> None:
        """Until so many more are acknowledged."""
        goal = len(self._cluster.acked) + more

        def there() -> bool:
            assert self.error is None, self.error
            return len(self._cluster.acked) >= goal

        wait_until(there, WAIT_S, f"{more} acknowledged messages")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RmqCluster]:
    """Three replicas, each a process of its own."""
    with RmqCluster(tmp_path / "cluster", processes=True) as made:
        yield made


def start(spark: SparkSession, topic: Topic, folder: Path, *, ends: bool) -> StreamingQuery:
    """The query, from its checkpoint if it has one."""
    given = topic.options(startingOffsets="earliest", maxOffsetsPerTrigger="500")
    stream = spark.readStream.format("rocketmq").options(**given).load()
    writer = stream.writeStream.format("parquet").option(
        "checkpointLocation", str(folder / "checkpoint")
    )
    writer = (
        writer.trigger(availableNow=True)
        if ends
        else writer.trigger(processingTime="300 milliseconds")
    )
    return writer.start(str(folder / "lake"))


def batches_of(query: StreamingQuery) -> int:
    """Batches with messages that a running query has done; what has broken it is raised."""
    error = query.exception()
    assert error is None, error
    last = query.lastProgress
    return 0 if last is None else int(last["batchId"]) + 1


def check(spark: SparkSession, cluster: RmqCluster, topic: str, lake: Path) -> int:
    """Parquet holds what the topic holds: every place once, all acknowledged messages in theirs."""
    rows = spark.read.parquet(str(lake)).select("queueId", "queueOffset", "body").collect()
    places = Counter((row.queueId, row.queueOffset) for row in rows)
    assert [place for place, count in places.items() if count > 1] == []
    written = {(row.queueId, row.queueOffset): bytes(row.body) for row in rows}
    acked = {(one.queue_id, one.queue_offset): one.body for one in cluster.acked}
    lost = [place for place, body in acked.items() if written.get(place) != body]
    assert lost == [], f"{len(lost)} of {len(acked)} acknowledged messages"
    stored = {(one.queue_id, one.queue_offset): one.body for one in cluster.consume(topic)}
    assert written == stored
    return len(acked)


def kill_the_master(cluster: RmqCluster) -> None:
    """And let it return as a slave."""
    old = cluster.kill(cluster.wait_for_master())
    cluster.wait_for_master(other_than=old)
    cluster.restart(old)
    cluster.wait_in_sync(3)


def test_stream_when_the_master_is_killed_five_times_then_every_message_once(
    spark: SparkSession, cluster: RmqCluster, tmp_path: Path
) -> None:
    """While a producer sends; and so from the checkpoint, after a kill that nobody was reading at."""
    topic = Topic(cluster, "Killed", queues=4)
    with Producer(cluster, "Killed") as producer:
        query = start(spark, topic, tmp_path, ends=False)
        for _ in range(KILLS):
            before = batches_of(query)
            producer.wait_for(BETWEEN_KILLS)
            wait_until(lambda before=before: batches_of(query) > before, WAIT_S, "another batch")
            kill_the_master(cluster)
        producer.wait_for(BETWEEN_KILLS)
        query.stop()
        kill_the_master(cluster)
        producer.wait_for(BETWEEN_KILLS)
    assert producer.error is None
    to_the_end(lambda: start(spark, topic, tmp_path, ends=True), STREAM_S)
    assert check(spark, cluster, "Killed", tmp_path / "lake") >= (KILLS + 2) * BETWEEN_KILLS
    info = cluster.set_info()
    assert info is not None
    assert info.master_epoch > KILLS


def test_sink_when_the_master_is_killed_then_no_row_misses(
    spark: SparkSession, cluster: RmqCluster
) -> None:
    """Sends are repeated at the new master; what is there twice has one id."""
    topic = Topic(cluster, "Sunk", queues=4)
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS body").repartition(2)
    master = cluster.wait_for_master().address
    place = {"topic": "Sunk", "queueId": 0}
    seen: list[int] = []

    def kill_after_the_first_rows() -> None:
        def begun() -> bool:
            seen.append(int(wire.invoke(master, GET_MAX_OFFSET, place).ext["offset"]))
            return seen[-1] > 20

        wait_until(begun, WAIT_S, "the first rows")
        kill_the_master(cluster)

    killer = threading.Thread(target=kill_after_the_first_rows)
    killer.start()
    sink = rows.write.format("rocketmq").mode("append")
    sink.options(**topic.options(batchMessages="1")).save()
    killer.join()
    assert 20 < seen[-1] < ROWS // 4, "the master is to be killed in the middle"
    reader = spark.read.format("rocketmq").options(**topic.options())
    found = reader.schema("body binary, properties map<string,string>").load().collect()
    assert {int(bytes(row.body)) for row in found} == set(range(ROWS))
    assert len({row.properties["DEDUP_ID"] for row in found}) == ROWS
