"""Spark reads from and writes to real Java brokers under controllers, over the death of a master."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.cluster import Cluster
from rmqha.testing.real.processes import wait_until
from tests.interop import required
from tests.interop.client_peer import SOURCE, ClientPeer

if os.environ.get("CI") != "true":
    pytest.importorskip("pyspark")
if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.conftest import SMALL
from tests.pipeline.to_the_end import stream_to

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
PRODUCERS = SOURCE.with_name("ProducerPeer.java")
QUEUES = 4
STREAM_S = 90
MASTER_S = 30.0
BIG = 100_000


@pytest.fixture(scope="module")
def cluster(folder: Path, kind: str) -> Iterator[Cluster]:
    """Two 5.3.3 brokers."""
    required.require_classpath()
    with Cluster(folder, kind, brokers=2) as made:
        made.start()
        yield made


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Two cores, in this process."""
    from rmqha.pipeline import session

    made = session("interop", master="local[2]", settings=SMALL)
    yield made
    made.stop()


class Topic:
    """A topic of the cluster, by Spark and by plain pulls."""

    def __init__(self, spark: SparkSession, cluster: Cluster, name: str, folder: Path) -> None:
        self._spark = spark
        self._cluster = cluster
        self._folder = folder
        self.name = name
        self.options = {"nameServer": cluster.name_server.address, "topic": name}
        with wire.Connection(cluster.master().address) as master:
            wire.create_topic(master, name, QUEUES)
        with wire.Connection(cluster.name_server.address) as server:
            broker = cluster.broker_name
            wait_until(lambda: wire.broker_addresses(server, name, broker).get(0), MASTER_S, name)

    def write(self, numbers: range) -> None:
        """By the sink: batches, and messages that go alone."""
        rows = [(f"body {n}", f"tag{n % 2}", f"k{n}", {"n": str(n)}) for n in numbers]
        schema = "body string, tags string, keys string, properties map<string,string>"
        frame = self._spark.createDataFrame(rows, schema).repartition(2)
        for part, more in (("n % 5 > 0", {}), ("n % 5 = 0", {"batchMessages": "1"})):
            chosen = frame.where(part.replace("n", "CAST(properties['n'] AS INT)"))
            chosen.write.format("rocketmq").mode("append").options(**self.options, **more).save()

    def read(self, **more: str) -> DataFrame:
        """All of it."""
        return self._spark.read.format("rocketmq").options(**self.options, **more).load()

    def stream(self) -> DataFrame:
        """What is new goes to Parquet; all that is there."""
        given = {**self.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "150"}
        stream = self._spark.readStream.format("rocketmq").options(**given).load()
        writer = stream.writeStream.format("parquet").option(
            "checkpointLocation", str(self._folder / "checkpoint")
        )
        stream_to(writer, str(self._folder / "lake"), STREAM_S)
        return self._spark.read.parquet(str(self._folder / "lake"))

    def newest_offsets(self) -> dict[str, Any]:
        """Of the checkpoint."""
        files = (self._folder / "checkpoint" / "offsets").glob("[0-9]*")
        newest = max(files, key=lambda one: int(one.name))
        found: dict[str, Any] = json.loads(newest.read_text().splitlines()[-1])
        return found

    def stored(self) -> list[wire.Stored]:
        """By plain pulls."""
        with wire.Connection(self._cluster.master().address) as master:
            return [
                one for queue in range(QUEUES) for one in wire.pull_queue(master, self.name, queue)
            ]


def bodies(rows: DataFrame) -> list[str]:
    """As text, sorted."""
    return sorted(bytes(row.body).decode() for row in rows.select("body").collect())


def expected(numbers: range) -> list[str]:
    """What ``Topic.write`` sends."""
    return sorted(f"body {n}" for n in numbers)


def test_java_brokers_when_written_read_and_killed_then_every_message_once(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """Batches are what Java takes apart, epochs what Java answers, and nothing misses after a kill."""
    topic = Topic(spark, cluster, "SparkJava", tmp_path)
    topic.write(range(300))
    assert sorted(one.body.decode() for one in topic.stored()) == expected(range(300))
    found = topic.read()
    assert bodies(found) == expected(range(300))
    assert bodies(topic.read(subExpression="tag1")) == expected(range(1, 300, 2))
    row = found.where("keys = 'k7'").collect()[0]
    assert (row.tags, row.properties["n"], row.crcOk) == ("tag1", "7", True)
    assert row.brokerName == cluster.broker_name
    ids = [one.properties["DEDUP_ID"] for one in found.select("properties").collect()]
    assert len(set(ids)) == 300
    assert bodies(topic.stream()) == expected(range(300))
    first = topic.newest_offsets()["logs"][cluster.broker_name]

    old = cluster.master()
    old.child.kill()
    wait_until(lambda: cluster.master() is not old, MASTER_S, "another master")
    topic.write(range(300, 400))
    old.start()
    cluster.wait_in_sync()
    lake = topic.stream()
    assert bodies(lake) == expected(range(400))
    places = Counter((row.queueId, row.queueOffset) for row in lake.collect())
    assert set(places) == {(one.queue_id, one.queue_offset) for one in topic.stored()}
    assert set(places.values()) == {1}
    second = topic.newest_offsets()["logs"][cluster.broker_name]
    assert second["epoch"] > first["epoch"]
    assert second["offset"] > second["epochStart"] >= first["offset"]


@pytest.mark.parametrize("compression", ["ZLIB", "LZ4", "ZSTD"])
def test_body_when_a_java_producer_compressed_it_then_read_as_it_was(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, compression: str
) -> None:
    """Java's clients compress what is larger than 4 KiB, without being asked."""
    topic = Topic(spark, cluster, f"SparkBig{compression}", tmp_path)
    options = [f"-Drocketmq.message.compressType={compression}"]
    with ClientPeer(tmp_path / "peer", source=PRODUCERS, options=options) as peer:
        peer.ask(f"start {cluster.name_server.address}")
        peer.ask(f"big {topic.name} {BIG}")
    (row,) = topic.read().collect()
    assert len(row.body) == BIG > row.bodySize
    assert (row.sysFlag & 1, row.crcOk) == (0, True)
    assert row.sysFlag >> 8 & 7 == {"LZ4": 1, "ZSTD": 2, "ZLIB": 3}[compression]
