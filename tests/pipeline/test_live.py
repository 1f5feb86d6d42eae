"""The format ``rocketmq`` in a real Spark session, against a cluster in this process."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from rmqha.pipeline.live.pulling import SCHEMA
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.real.processes import wait_until
from tests.pipeline.live import BORN_MS, BROKER, Topic
from tests.pipeline.to_the_end import stream_to, to_the_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
FAILED = (PySparkException, Py4JJavaError)
STREAM_S = 60
MESSAGE = "body binary, topic string, tags string, keys string, properties map<string,string>"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RmqCluster]:
    """One controller and one replica: failovers are tested elsewhere."""
    with RmqCluster(tmp_path_factory.mktemp("live"), controllers=1, replicas=1) as made:
        yield made


def load(spark: SparkSession, source: Topic, **options: str) -> DataFrame:
    """A topic's rows."""
    return spark.read.format("rocketmq").options(**(source.options() | options)).load()


def bodies(rows: DataFrame) -> list[str]:
    """Bodies as text, sorted."""
    return sorted(bytes(row.body).decode() for row in rows.select("body").collect())


def numbered(topic: Topic, numbers: range) -> list[str]:
    """What ``Topic.fill`` sends."""
    return sorted(f"{topic.name} {number}" for number in numbers)


# -- batch -------------------------------------------------------------------------------------


def test_message_when_read_then_every_column_is_right(
    spark: SparkSession, cluster: RmqCluster
) -> None:
    """Names and types as a commit log's; a compressed body is read as its producer wrote it."""
    topic = Topic(cluster, "Columns")
    pairs = {"TAGS": "TagA", "KEYS": "k1 k2", "city": "Köln"}
    topic.send(0, b"plain", pairs)
    large = b"large " * 1000
    topic.send(1, zlib.compress(large), {}, sys_flag=1)
    found = load(spark, topic)
    assert found.columns == SCHEMA.names
    first, second = found.orderBy("queueId").collect()
    assert (first.topic, first.brokerName, first.queueId) == ("Columns", BROKER, 0)
    assert (first.tags, first.keys, first.properties["city"]) == ("TagA", "k1 k2", "Köln")
    assert (bytes(first.body), first.bodySize, first.crcOk, first.flag) == (b"plain", 5, True, 7)
    assert first.bornTimestamp.timestamp() == pytest.approx(BORN_MS / 1000)
    assert first.storeTimestamp.timestamp() > BORN_MS / 1000
    assert first.storeHost == cluster.brokers[0].address
    assert first.bornHost.startswith("127.0.0.1:")
    assert (first.reconsumeTimes, first.preparedTransactionOffset) == (0, 0)
    assert second.physicalOffset == first.physicalOffset + first.size
    assert (bytes(second.body), second.sysFlag, second.tags) == (large, 0, None)
    assert second.bodySize == len(zlib.compress(large))


def test_columns_when_named_then_only_these(spark: SparkSession, cluster: RmqCluster) -> None:
    """By a schema, or without the bodies; a column that no message has is named."""
    topic = Topic(cluster, "Named")
    topic.fill(40)
    reader = spark.read.format("rocketmq").options(**topic.options())
    rows = reader.schema("queueOffset bigint, brokerName string").load().collect()
    assert sorted(row.queueOffset for row in rows) == sorted([*range(20)] * 2)
    assert {row.brokerName for row in rows} == {BROKER}
    assert "body" not in load(spark, topic, includeBody="false").columns
    for schema, what in (("city string", "no column city"), ("queueId bigint", "queueId is int")):
        with pytest.raises(FAILED, match=what):
            reader.schema(schema).load().collect()


def test_offsets_when_given_then_what_is_between(spark: SparkSession, cluster: RmqCluster) -> None:
    """By number, by edge, by time; the end is exclusive. Small pulls change nothing."""
    topic = Topic(cluster, "Between")
    topic.fill(20)

    def offsets(**options: str) -> list[tuple[int, int]]:
        rows = load(spark, topic, **options).collect()
        return sorted((row.queueId, row.queueOffset) for row in rows)

    assert offsets(pullBatchSize="3") == [(queue, n) for queue in (0, 1) for n in range(10)]
    start, end = '{"Between":{"broker-a":{"0":7}}}', '{"Between":{"broker-a":{"0":-1,"1":2}}}'
    assert offsets(startingOffsets=start, endingOffsets=end) == [
        (0, 7), (0, 8), (0, 9), (1, 0), (1, 1),
    ]  # fmt: skip
    stamps = {(r.queueId, r.queueOffset): r.storeTimestamp for r in load(spark, topic).collect()}
    moment = stamps[0, 5]
    expected = sorted(place for place, stamp in stamps.items() if stamp >= moment)
    time_ms = str(round(moment.timestamp() * 1000))
    assert offsets(startingTimestamp=time_ms) == expected
    assert offsets(endingTimestamp=time_ms) == sorted(set(stamps) - set(expected))


def test_queues_when_split_then_more_tasks_and_the_same_messages(
    spark: SparkSession, cluster: RmqCluster
) -> None:
    """One queue is one task only as long as nobody asks for more; some queues alone by assign."""
    topic = Topic(cluster, "Split")
    topic.fill(42)
    for options, tasks in (
        ({}, 2),
        ({"minPartitions": "5"}, 6),
        ({"maxRecordsPerPartition": "7"}, 6),
        ({"maxRecordsPerPartition": "10", "minPartitions": "3"}, 6),
    ):
        found = load(spark, topic, **options)
        assert found.rdd.getNumPartitions() == tasks, options
        assert bodies(found) == numbered(topic, range(42))
    options = topic.options(assign='{"Split":{"broker-a":[1]}}')
    del options["topic"]
    rows = spark.read.format("rocketmq").options(**options).load().collect()
    assert sorted(row.queueOffset for row in rows) == [*range(21)]
    assert {row.queueId for row in rows} == {1}


def test_headers_when_asked_for_then_as_kafka_has_them(
    spark: SparkSession, cluster: RmqCluster
) -> None:
    """A list of names and bytes, behind the other columns; also alone."""
    topic = Topic(cluster, "Headers", queues=1)
    topic.send(0, b"a", {"city": "Köln", "KEYS": "k"})
    topic.send(0, b"b", {})
    found = load(spark, topic, includeHeaders="true")
    assert found.columns == [*SCHEMA.names, "headers"]
    first, second = found.orderBy("queueOffset").collect()
    assert {one.key: bytes(one.value).decode() for one in first.headers} == first.properties
    assert {one.key: bytes(one.value).decode() for one in second.headers} == second.properties
    assert first.properties["city"] == "Köln"
    (row,) = found.select("headers").where("queueOffset = 0").collect()
    assert row.headers == first.headers


def test_times_when_given_for_queues_then_each_has_its_own(
    spark: SparkSession, cluster: RmqCluster
) -> None:
    """The others begin at their beginning, and end at their end."""
    topic = Topic(cluster, "Times")
    topic.fill(12)
    stamps = {
        (r.queueId, r.queueOffset): round(r.storeTimestamp.timestamp() * 1000)
        for r in load(spark, topic).collect()
    }

    def offsets(**options: str) -> list[tuple[int, int]]:
        rows = load(spark, topic, **options).collect()
        return sorted((row.queueId, row.queueOffset) for row in rows)

    moment = stamps[1, 3]
    each = f'{{"Times":{{"broker-a":{{"1":{moment}}}}}}}'
    expected = sorted(place for place in stamps if place[0] == 0 or stamps[place] >= moment)
    assert offsets(startingOffsetsByTimestamp=each) == expected
    strict = {"startingOffsetsByTimestampStrategy": "error"}
    assert offsets(startingOffsetsByTimestamp=each, **strict) == expected
    before = sorted(place for place in stamps if place[0] == 0 or stamps[place] < moment)
    assert offsets(endingOffsetsByTimestamp=each) == before


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (
            {"startingOffsets": '{"Wrong":{"broker-a":{"0":9}}}'},
            "startingOffsets: Wrong.*ends at 2",
        ),
        ({"topic": "NoSuchTopic"}, "topic NoSuchTopic does not exist"),
        (
            {"startingTimestamp": "9000000000000", "startingOffsetsByTimestampStrategy": "error"},
            "Wrong.* has no message since then",
        ),
        ({"nameServer": "127.0.0.1:1", "failoverTimeoutMs": "100"}, "127.0.0.1:1"),
    ],
)
def test_batch_when_asked_for_what_is_not_there_then_said(
    spark: SparkSession, cluster: RmqCluster, options: dict[str, str], what: str
) -> None:
    """Before any task runs."""
    topic = Topic(cluster, "Wrong", queues=1)
    if not topic.end(0):
        topic.fill(2)
    with pytest.raises(FAILED, match=f"(?s){what}"):
        load(spark, topic, **options).collect()


def test_topics_when_several_then_all_by_pattern_or_list(
    spark: SparkSession, cluster: RmqCluster
) -> None:
    """In one DataFrame, with the columns saying which; tags choose messages."""
    one, two = Topic(cluster, "SeveralOne"), Topic(cluster, "SeveralTwo", queues=1)
    one.fill(3)
    two.send(0, b"a", {"TAGS": "TagA"})
    two.send(0, b"b", {"TAGS": "TagB"})
    two.send(0, b"c", {"TAGS": "TagC"})
    given = {"nameServer": cluster.namesrv_addr}
    for more in ({"subscribePattern": "Several.*"}, {"subscribe": "SeveralOne,SeveralTwo"}):
        found = spark.read.format("rocketmq").options(**given, **more).load()
        counts = {row.topic: row["count"] for row in found.groupBy("topic").count().collect()}
        assert counts == {"SeveralOne": 3, "SeveralTwo": 3}
    # "Aa" and "BB" have one hash in Java, which is what a broker compares.
    two.send(0, b"Aa", {"TAGS": "Aa"})
    two.send(0, b"BB", {"TAGS": "BB"})
    assert bodies(load(spark, two, subExpression="TagA || TagC || BB")) == ["BB", "a", "c"]
    assert bodies(load(spark, two, subExpression="None")) == []


# -- streams -----------------------------------------------------------------------------------


def run(spark: SparkSession, topic: Topic, folder: Path, **options: str) -> list[dict[str, Any]]:
    """Read what there is now to Parquet, and end; the progress of each batch that had rows."""
    given = {"startingOffsets": "earliest", **topic.options(**options)}
    stream = spark.readStream.format("rocketmq").options(**given).load()
    writer = stream.writeStream.format("parquet").option(
        "checkpointLocation", str(folder / "checkpoint")
    )
    query = stream_to(writer, str(folder / "lake"), STREAM_S)
    return [one for one in map(dict, query.recentProgress) if one["numInputRows"]]


def lose_the_last_commit(folder: Path) -> None:
    """As if the query had died before it wrote that."""
    commits = folder / "checkpoint" / "commits"
    newest = max(commits.glob("[0-9]*"), key=lambda one: int(one.name))
    newest.unlink()
    (commits / f".{newest.name}.crc").unlink(missing_ok=True)


def test_stream_when_limited_then_small_batches_to_the_end(
    spark: SparkSession, cluster: RmqCluster, tmp_path: Path
) -> None:
    """And from its checkpoint only what is new; a query that dies before it has written its commit
    plans the same batch again. Progress shows where it is, and where the end is."""
    topic = Topic(cluster, "Limited")
    topic.fill(12)
    progress = run(spark, topic, tmp_path, maxOffsetsPerTrigger="5")
    assert [one["numInputRows"] for one in progress] == [5, 5, 2]
    (source,) = progress[0]["sources"]
    assert '"queues": {"Limited": {"broker-a":' in str(source["endOffset"]).replace("'", '"')
    assert str(source["latestOffset"]) != str(source["endOffset"])
    assert run(spark, topic, tmp_path) == []
    topic.fill(4, first=12)
    (progress,) = run(spark, topic, tmp_path)
    assert progress["numInputRows"] == 4
    lose_the_last_commit(tmp_path)
    topic.fill(3, first=16)
    run(spark, topic, tmp_path)
    lake = spark.read.parquet(str(tmp_path / "lake"))
    assert bodies(lake) == numbered(topic, range(19))


def test_stream_when_begun_then_only_what_comes(
    spark: SparkSession, cluster: RmqCluster, tmp_path: Path
) -> None:
    """The default, as with Kafka."""
    topic = Topic(cluster, "Coming")
    topic.fill(5)
    assert run(spark, topic, tmp_path, startingOffsets="latest") == []
    topic.fill(2, first=5)
    run(spark, topic, tmp_path, startingOffsets="latest")
    lake = spark.read.parquet(str(tmp_path / "lake"))
    assert bodies(lake) == numbered(topic, range(5, 7))


# -- the sink ----------------------------------------------------------------------------------


def write(rows: DataFrame, cluster: RmqCluster, mode: str = "append", **options: str) -> None:
    """Send rows."""
    given = {"nameServer": cluster.namesrv_addr, **options}
    rows.write.format("rocketmq").mode(mode).options(**given).save()


def test_rows_when_written_then_read_again(spark: SparkSession, cluster: RmqCluster) -> None:
    """All columns, topics in one write, rows of several tasks, each with an id of its own."""
    one, two = Topic(cluster, "SinkOne"), Topic(cluster, "SinkTwo")
    rows = [
        (
            f"body {n}".encode(),
            "SinkOne" if n % 3 else None,
            f"tag{n % 2}",
            f"key{n}",
            {"n": str(n)},
        )
        for n in range(300)
    ]
    frame = spark.createDataFrame(rows, MESSAGE).repartition(3)
    write(frame, cluster, topic="SinkTwo", batchMessages="16")
    found: list[Row] = [*load(spark, one).collect(), *load(spark, two).collect()]
    read = {
        (
            bytes(r.body),
            r.topic if r.topic == "SinkOne" else None,
            r.tags,
            r.keys,
            r.properties["n"],
        )
        for r in found
    }
    assert read == {(body, topic, tags, keys, p["n"]) for body, topic, tags, keys, p in rows}
    assert len(found) == len(rows)
    assert len({row.properties["DEDUP_ID"] for row in found}) == len(rows)
    assert len({row.properties["UNIQ_KEY"] for row in found}) == len(rows)
    assert {row.queueId for row in found} == {0, 1}


def test_rows_when_batches_are_small_then_every_queue_has_its_share(
    spark: SparkSession, cluster: RmqCluster
) -> None:
    """A task of one request chooses one queue: when all choose the same, consumers stand idle."""
    topic = Topic(cluster, "SinkSpread", queues=4)
    frame = spark.range(2000, numPartitions=8).selectExpr("CAST(id AS STRING) AS body")
    write(frame, cluster, topic="SinkSpread")
    found = load(spark, topic).groupBy("queueId").count().collect()
    counts = {row.queueId: row["count"] for row in found}
    assert counts == dict.fromkeys(range(4), 500)


def test_rows_when_they_have_keys_then_in_order_in_the_queue_of_javas_hash(
    spark: SparkSession, cluster: RmqCluster
) -> None:
    """Also over many small requests of several queues; a row may name its queue instead."""
    topic = Topic(cluster, "SinkKeys", queues=4)
    keys = ("a", "b", "c", "Köln")
    rows = [(f"{n:03}", keys[n % 4], None) for n in range(200)] + [("last", None, 2)]
    frame = spark.createDataFrame(rows, "body string, shardingKey string, queueId int").coalesce(1)
    write(frame, cluster, topic="SinkKeys", batchMessages="3")
    found = load(spark, topic).orderBy("queueId", "queueOffset").collect()
    (last,) = [row for row in found if bytes(row.body) == b"last"]
    assert last.queueId == 2
    for key in keys:
        own = [row for row in found if row.properties.get("__SHARDINGKEY") == key]
        # "a", "b" and "c" are 97 to 99 in Java, "Köln" is 2474189.
        assert {row.queueId for row in own} == {{"a": 1, "b": 2, "c": 3, "Köln": 1}[key]}
        assert [bytes(row.body).decode() for row in own] == [
            body for body, its, _ in rows if its == key
        ]


def test_row_when_its_queue_is_none_then_the_write_fails(
    spark: SparkSession, cluster: RmqCluster
) -> None:
    """It says which row."""
    topic = Topic(cluster, "SinkNoQueue", queues=1)
    frame = spark.createDataFrame([("x", 7)], "body string, queueId int").coalesce(1)
    with pytest.raises(FAILED, match=r"(?s)row .*/0/0/0: queueId 7 is not a queue"):
        write(frame, cluster, topic="SinkNoQueue")
    assert topic.end(0) == 0


def test_row_when_delayed_then_it_comes_later(spark: SparkSession, cluster: RmqCluster) -> None:
    """Level 1 is a second. A body may be text."""
    topic = Topic(cluster, "SinkDelay", queues=1)
    frame = spark.createDataFrame([("later", 1), ("now", None)], "body string, delayLevel int")
    write(frame.coalesce(1), cluster, topic="SinkDelay")
    found = wait_until(
        lambda: rows if (rows := load(spark, topic).collect())[1:] else None, 20, "both messages"
    )
    assert [bytes(row.body) for row in found] == [b"now", b"later"]
    assert found[1].storeTimestamp > found[0].storeTimestamp


def test_topic_when_copied_then_committed_messages_are_seen_and_wishes_are_kept(
    spark: SparkSession, cluster: RmqCluster
) -> None:
    """Each alone in its request, where the broker acts on what the properties say."""
    source, target = Topic(cluster, "CopyOld", queues=1), Topic(cluster, "CopyNew", queues=1)
    source.send(0, b"committed", {"TAGS": "a", "REAL_TOPIC": "CopyOld", "PGROUP": "p"})
    source.send(0, b"timed", {"TIMER_DELIVER_MS": "1"})
    copy = load(spark, source).selectExpr(
        "body", "tags", "keys",
        "map_concat(properties, if(tags = 'a', map('TRAN_MSG', 'true'), map('TIMER_DELAY_SEC', '2')))"
        " AS properties",
    )  # fmt: skip
    write(copy.coalesce(1), cluster, topic="CopyNew")
    assert bodies(load(spark, target)) == ["committed"]
    wait_until(lambda: bodies(load(spark, target))[1:] == ["timed"], 20, "the one with a timer")


@pytest.mark.parametrize(
    ("row", "options", "what"),
    [
        ((None, "SinkBad"), {}, "row .*/0/0/0: the body is null"),
        ((b"x", "SCHEDULE_TOPIC_XXXX"), {"failoverTimeoutMs": "100"}, "CODE: 16|forbidden|took no"),
    ],
)
def test_row_when_it_cannot_be_sent_then_the_write_fails(
    spark: SparkSession,
    cluster: RmqCluster,
    row: tuple[Any, ...],
    options: dict[str, str],
    what: str,
) -> None:
    """It says which row and why; nothing of it is in the topic."""
    topic = Topic(cluster, "SinkBad", queues=1)
    frame = spark.createDataFrame([row], "body binary, topic string").coalesce(1)
    with pytest.raises(FAILED, match=f"(?s){what}"):
        write(frame, cluster, **options)
    assert topic.end(0) == 0


def test_write_when_a_topic_is_to_be_overwritten_then_said(
    spark: SparkSession, cluster: RmqCluster
) -> None:
    """Before any row is looked at."""
    with pytest.raises(FAILED, match="cannot overwrite"):
        write(spark.createDataFrame([], "body string"), cluster, "overwrite", topic="t")


def test_stream_when_written_twice_then_a_query_keeps_one_of_each(
    spark: SparkSession, cluster: RmqCluster, tmp_path: Path
) -> None:
    """At least once: a batch whose commit is gone is sent again, with the same ids."""
    source, target = Topic(cluster, "CopyFrom"), Topic(cluster, "CopyTo")
    source.fill(9)

    def copy() -> None:
        stream = (
            spark.readStream.format("rocketmq")
            .options(**source.options(startingOffsets="earliest"))
            .schema("body binary, tags string")
            .load()
        )
        writer = (
            stream.writeStream.format("rocketmq")
            .options(nameServer=cluster.namesrv_addr, topic="CopyTo")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        to_the_end(writer.start, STREAM_S)

    copy()
    assert bodies(load(spark, target)) == numbered(source, range(9))
    lose_the_last_commit(tmp_path)
    copy()
    twice = load(spark, target)
    assert twice.count() == 18
    twice.createOrReplaceTempView("copies")
    once = spark.sql(
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY properties['DEDUP_ID']"
        " ORDER BY storeTimestamp, brokerName, physicalOffset) AS copy FROM copies) WHERE copy = 1"
    )
    assert bodies(once) == numbered(source, range(9))
