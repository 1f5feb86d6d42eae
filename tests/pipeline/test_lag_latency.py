"""Latency and lag: known answers, and a store with all that can be wrong in it."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from rmqha.cli.pipeline import main
from rmqha.pipeline.jobs import lag_latency as job
from rmqha.pipeline.jobs.lag_unknown import CONFIGURED, unknown
from rmqha.pipeline.lake.rows import whole
from tests.pipeline.stores import TOPICS, messages, written
from tests.pipeline.test_export import drop_files
from tests.pipeline.test_progress import write_offsets
from tests.pipeline.test_reading import FILE_BYTES, flip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["lag-latency", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


def stored(ms: int, topic: str = "t", at: datetime = NOON) -> tuple[object, ...]:
    """A row of the log that took ``ms`` to be stored."""
    return ("a", topic, at - timedelta(milliseconds=ms), at, None)


def test_latency_when_known_then_exact_percentiles(spark: SparkSession) -> None:
    """1 to 100 ms; two days; a producer whose clock is ahead; damage."""
    rows = [stored(ms) for ms in range(1, 101)]
    rows.append(stored(-7, at=NOON + timedelta(days=1)))
    rows.append(stored(4, topic="other"))
    rows.append(("a", None, None, None, "damaged"))
    found = job.latency(spark.createDataFrame(rows, job.LOG)).orderBy("topic", "day").collect()
    assert [(row.topic, row.day, row.messages, row.damaged) for row in found] == [
        (None, None, 0, 1),
        ("other", "2026-03-01", 1, 0),
        ("t", "2026-03-01", 100, 0),
        ("t", "2026-03-02", 1, 0),
    ]
    day = found[2]
    assert (day.p50Ms, day.p95Ms, day.p99Ms) == pytest.approx((50.5, 95.05, 99.01))
    assert (day.maxMs, day.bornLater) == (100, 0)
    assert (found[3].maxMs, found[3].bornLater) == (-7, 1)


def test_histogram_when_topics_are_many_then_the_largest_and_the_others(
    spark: SparkSession,
) -> None:
    """Every message is in one bucket, but those that were born later than they were stored."""
    rows = [stored(ms) for ms in (0, 1, 1, 19, 20, 499_999, 500_000, 10**9, -3)] * 2
    rows += [stored(7, topic=f"small{number}") for number in range(9)]
    rows.append(("a", None, None, None, "damaged"))
    found = job.histogram(job.latency(spark.createDataFrame(rows, job.LOG)))
    assert list(found) == ["t", *(f"small{number}" for number in range(7)), "other topics"]
    names = [*job.BUCKETS_MS, "more"]
    named = {
        topic: {n: c for n, c in zip(names, counts, strict=True) if c}
        for topic, counts in found.items()
    }
    assert named["t"] == {1: 2, 2: 4, 20: 2, 50: 2, 500_000: 2, "more": 4}
    assert named["small0"] == {10: 1}
    assert named["other topics"] == {10: 2}
    page = job.report(["a"], job.Found((), (), 0, 0, (), (), found))
    assert "Born to stored, in milliseconds" in page
    assert "other topics" in page
    assert "≥ 500 s" in page


def test_lag_when_known_then_by_queue_and_group(spark: SparkSession) -> None:
    """Behind, level, expired, beyond the end, never heard of, and a queue that is not there."""
    ends = spark.createDataFrame(
        [("a", "t", 0, 0, 10, None), ("a", "t", 1, 6, 9, None), ("a", "t", 2, 0, 5, None)],
        job.ENDS,
    )
    offsets = spark.createDataFrame(
        [
            ("a", "t", "g", 0, 4, None, False), ("a", "t", "g", 1, 2, None, False),
            ("a", "t", "ahead", 0, 12, None, False), ("a", "t", "level", 0, 10, None, False),
            ("a", "gone", "g", 0, 3, None, False),
            ("a", None, None, None, None, "no topic@group", False),
        ],
        job.OFFSETS,
    )  # fmt: skip
    log = spark.createDataFrame(
        [("a", "t", 0, n, NOON + timedelta(seconds=n), None) for n in range(10)], job.PLACES
    )
    queues = job.behind(job.lag(offsets, ends), log)
    groups = {
        (row.topic, row.consumerGroup): (
            row.queues, row.unknown, row.lag, row.expired, row.beyond, row.behindMs
        )
        for row in job.by_group(queues).collect()
    }  # fmt: skip
    assert groups == {
        ("t", "g"): (3, 1, 13, 4, 0, 5000),
        ("t", "ahead"): (3, 2, 0, 0, 1, None),
        ("t", "level"): (3, 2, 0, 0, 0, 0),
        ("gone", "g"): (1, 1, None, 0, 0, None),
    }


async def test_store_when_read_then_its_lags_and_damage_are_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of files that a broker wrote; a copy with damage beside it; the exit code of --lag-max."""
    store, hurt, out = tmp_path / "good", tmp_path / "hurt", tmp_path / "out"
    records = await written(store, messages(80))
    ends = Counter((one.topic, one.queue_id) for one in records)
    topic = TOPICS[0]
    queues = {queue: count for (name, queue), count in ends.items() if name == topic}
    write_offsets(store, {f"{topic}@g": {str(q): max(0, n - 2) for q, n in queues.items()}})
    shutil.copytree(store, hurt)
    bad = next(one for one in records[20:] if one.physical_offset % FILE_BYTES)
    flip(hurt, bad.physical_offset + 5)
    write_offsets(hurt, {"t": {"0": 1}})
    wanted = sum(min(2, count) for count in queues.values())
    told = run(store, hurt, "-o", out, "--lag-max", wanted - 1, code=1)
    lines = told.splitlines()
    assert any(f"lag {wanted}," in line for line in lines if line.startswith("good"))
    assert "1 damaged ranges, 1 entries that cannot be read" in lines
    assert lines[-1].startswith("pipeline: hurt: "), "what is not known is told all the same"
    assert "Born to stored, in milliseconds" in (out / "_report.html").read_text()
    assert not {"buckets", "damaged"} & set(spark.read.parquet(str(out / "latency")).columns)
    lags = spark.read.parquet(str(out / "lag")).where("replica = 'good'").collect()
    assert {row.queueId: (row.endOffset, row.lag) for row in lags} == {
        queue: (count, min(2, count)) for queue, count in queues.items()
    }
    assert all(row.behindMs is not None and row.behindMs >= 0 for row in lags)
    times = spark.read.parquet(str(out / "latency")).groupBy("replica", "topic").sum("messages")
    by_topic = Counter(one.topic for one in records)
    found = {(row[0], row[1]): row[2] for row in times.collect()}
    assert {
        name: count for (replica, name), count in found.items() if replica == "good"
    } == by_topic
    assert sum(count for (replica, _), count in found.items() if replica == "hurt") == 79
    assert topic in (out / "_report.html").read_text()


async def test_lag_max_when_a_lag_is_not_known_then_said_and_another_exit_code(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A file of offsets that is lost or damaged was a lag of 0, and a watchman was told that all is well.
    The directory's name has an equals sign, and its page cannot be written."""
    store, out = tmp_path / "shard=1", tmp_path / "out"
    records = await written(store, messages(30))
    (out / "_report.html").mkdir(parents=True)
    page = run(store, "-o", out, code=2)
    assert "30 messages" in page or sum("p50" in line for line in page.splitlines()) > 1
    assert page.splitlines()[-1].endswith("_report.html'")
    assert "Traceback" not in page
    judged = ("-o", out, "--lag-max", 10**6)
    told = run(store, *judged, code=2)
    assert "pipeline: shard=1: " in told
    assert "consumerOffset.json: no such file" in told
    lines = told.splitlines()
    assert lines[-2] == "pipeline: whether a lag is over --lag-max is not known"
    assert lines[-1].endswith("_report.html'")
    (out / "_report.html").rmdir()
    one = records[0]
    write_offsets(store, {f"{one.topic}@g": {str(one.queue_id): 1}, "%RETRY%g@g": {"0": 0}})
    run(store, *judged)


async def test_lag_max_when_a_deleted_topics_offsets_are_left_then_told_and_not_judged(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They are left for good, and a watchman said every night that the lag was not known. The file's
    backup serves."""
    store, judged = tmp_path / "a", ("-o", tmp_path / "out", "--lag-max", 10**6)
    (record, *_) = await written(store, messages(30))
    topic, queue = record.topic, record.queue_id
    shutil.rmtree(store / "consumequeue" / topic)
    write_offsets(store, "{")
    table = {f"{topic}@g": {str(queue): 1}, "%RETRY%g@g": {"0": 7}}
    write_offsets(store, table, "consumerOffset.json.bak")
    told = run(store, *judged, code=2)
    assert f"g is at 1 in queue {queue} of {topic}, and where that ends is not known" in told
    assert "g is at 7 in queue 0 of %RETRY%g, which is there no more" in told
    (store / "config" / "topics.json").write_text('{"topicConfigTable":{"another":{}}}')
    told = run(store, *judged)
    assert f"g is at 1 in queue {queue} of {topic}, which is there no more" in told
    assert "not known" not in told


def test_unknown_when_a_queue_is_not_there_then_by_the_log_and_by_what_is_configured(
    spark: SparkSession,
) -> None:
    """``a`` has its topics, ``b`` cannot say."""
    places = {
        "no message": ("kept", 0, False), "a loss": ("kept", 1, True), "retired": ("old", 0, True),
        "queue lost": ("half", 3, True), "unread": ("old", 0, True),
    }  # fmt: skip
    replicas = {name: "b" if name == "unread" else "a" for name in places}
    columns = (
        "replica string, topic string, consumerGroup string, queueId bigint, consumerOffset bigint"
    )
    queues = spark.createDataFrame(
        [
            (replicas[name], topic, name, queue, 5, None, in_log)
            for name, (topic, queue, in_log) in places.items()
        ]
        + [("a", "kept", "at its beginning", 7, 0, None, True), ("a", "t", "fine", 0, 5, 9, True)],
        f"{columns}, endOffset bigint, inLog boolean",
    )
    ends = spark.createDataFrame([("a", "half", 0, 0, 10, None)], job.ENDS)
    offsets = spark.createDataFrame(
        [
            ("a", None, None, None, None, "the backup serves", True),
            ("a", None, None, None, None, "an entry", False),
        ],
        job.OFFSETS,
    )
    configured = spark.createDataFrame([("a", "kept"), ("a", "t"), ("b", None)], CONFIGURED)
    lost, over = unknown(offsets, queues, ends, configured)
    assert {(replica, why.split(" is at ")[0]) for replica, why in lost} == {
        ("a", "an entry"), ("a", "a loss"), ("a", "queue lost"), ("b", "unread"),
    }  # fmt: skip
    assert {why.split(" is at ")[0] for _, why in over} == {"no message", "retired"}
    lost, over = unknown(offsets.limit(0), queues, ends, configured.limit(0))
    assert len(lost) == 4, "without any row of what is configured"


def test_store_when_it_is_empty_then_nothing_is_told(spark: SparkSession, tmp_path: Path) -> None:
    """As of a broker that was set up today."""
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    said = run(tmp_path / "store", "-o", tmp_path / "out")
    assert said.splitlines()[-1].startswith("0 damaged ranges")


def test_path_when_no_store_then_said(tmp_path: Path) -> None:
    """Before Spark is started."""
    assert "commitlog" in run(tmp_path, "-o", tmp_path / "out", code=2)


async def test_day_when_retention_has_taken_its_first_files_then_its_row_is_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A nightly run replaced each past day by what was left of it, and at last by its tail."""
    await written(tmp_path / "store", messages(300))
    out = tmp_path / "lag"

    def days() -> list[tuple[object, ...]]:
        run(f"a={tmp_path / 'store'}", "-o", out)
        rows = spark.read.parquet(str(out / "latency"))
        return sorted(tuple(row) for row in rows.collect())

    before = days()
    drop_files(tmp_path / "store", 3)
    assert days() == before
    table = spark.read.parquet(str(out / "latency"))
    for more, newer in ((1, True), (0, True), (-1, False)):
        rows = table.selectExpr(
            *(one for one in table.columns if one not in ("messages", "maxMs")),
            f"messages + {more} AS messages", "-7L AS maxMs",
        )  # fmt: skip
        found = job.longest_days(rows.select(*table.columns), table).collect()
        assert len(found) == len(before)
        assert {row.maxMs == -7 for row in found} == {newer}, more


def test_day_when_the_session_has_another_zone_then_it_is_that_of_utc(spark: SparkSession) -> None:
    """A job in somebody's own session; the lake's files for other file systems are written by Spark."""
    at = datetime(2026, 3, 1, 20, tzinfo=UTC)
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    spark.conf.set(zone, "Asia/Tokyo")
    try:
        rows = spark.createDataFrame([("a", "t", at, at, None)], job.LOG)
        assert [row.day for row in job.latency(rows).collect()] == ["2026-03-01"]
        assert [row.day for row in whole(rows).collect()] == ["2026-03-01"]
    finally:
        spark.conf.set(zone, before)
