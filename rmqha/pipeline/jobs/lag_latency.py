"""How long messages took from their producer into the log, and how far behind each group is.

Latency is what lies between ``bornTimestamp``, by the producer's clock, and ``storeTimestamp``, by
the broker's: messages that seem to be born after they were stored tell of clocks that differ, and
are counted. A delayed or retried message keeps its time of birth, so its latency has the delay in it.

Lag is Java's ``diff``: the queue's end less the group's offset, both of the same store.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import astuple

from rmqha.pipeline.commitlog.progress import group_offsets, queue_ends
from rmqha.pipeline.commitlog.store_folder import open_replica
from rmqha.pipeline.jobs import charts
from rmqha.pipeline.jobs.lag_unknown import IN_LOG, configured_of, unknown
from rmqha.pipeline.jobs.report_page import SHOWN_MAX, chart, page, sentence, table
from rmqha.pipeline.jobs.tables import (
    batches,
    kept_table,
    named_paths,
    source_paths,
    write_parts,
    write_whole,
)
from rmqha.pipeline.spark.times import utc_day

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LATENCY, LAG, DAMAGE = "latency", "lag", "_corrupt"
LOG = (
    "replica string, topic string, bornTimestamp timestamp, storeTimestamp timestamp,"
    " _corrupt string"
)
"""What latency needs of the whole log."""
PLACES = (
    "replica string, topic string, queueId int, queueOffset bigint, storeTimestamp timestamp,"
    " _corrupt string"
)
"""What lag needs of the topics that a group has an offset in."""
ENDS = (
    "replica string, topic string, queueId bigint, minOffset bigint, endOffset bigint,"
    " _corrupt string"
)
OFFSETS = (
    "replica string, topic string, consumerGroup string, queueId bigint, consumerOffset bigint,"
    " _corrupt string, isServed boolean"
)
_ENDS = pa.schema(
    [
        ("replica", pa.string()), ("topic", pa.string()), ("queueId", pa.int64()),
        ("minOffset", pa.int64()), ("endOffset", pa.int64()), ("_corrupt", pa.string()),
    ]
)  # fmt: skip
_OFFSETS = pa.schema(
    [
        ("replica", pa.string()), ("topic", pa.string()), ("consumerGroup", pa.string()),
        ("queueId", pa.int64()), ("consumerOffset", pa.int64()), ("_corrupt", pa.string()),
        ("isServed", pa.bool_()),
    ]
)  # fmt: skip


BUCKETS_MS = tuple(factor * 10**power for power in range(6) for factor in (1, 2, 5))
"""Where a histogram's buckets end; the first one is below the first, the last one from the last on."""
_DAMAGED, _BUCKETS = "damaged", "buckets"


class TopicLatency(Struct, frozen=True):
    """One topic on one day of one replica; times in milliseconds.

    Attributes:
        born_later: messages born, by their producer's clock, after they were stored.
    """

    replica: str
    topic: str
    day: str
    messages: int
    born_later: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: int


class GroupLag(Struct, frozen=True):
    """One group in one topic of one replica.

    Attributes:
        queues: of the topic in this store, and those that the group has an offset for.
        unknown: queues in which the group's place, or the queue itself, is not known.
        lag: messages behind, over the queues that are known; None when none is.
        expired: messages that were deleted before the group came to them.
        beyond: queues in which the group is beyond the end: the log was cut, or the queue is gone.
        behind_ms: how much younger the newest message of a queue is than the next one that the
            group has to read there, the worst of its queues; None when that one is not in the log.
    """

    replica: str
    topic: str
    group: str
    queues: int
    unknown: int
    lag: int | None
    expired: int
    beyond: int
    behind_ms: int | None


class Found(Struct, frozen=True):
    """What a run found.

    Attributes:
        latencies, lags: the first ``SHOWN_MAX``.
        lag_max: the greatest lag of a group in a topic; 0 without any.
        damaged: damaged ranges of the logs.
        unreadable: (replica, what): of queues and offsets.
        unknown: (replica, why) of offsets that cannot be read, and of queues that a group has read, of
            which the log has messages, and whose end is not known: a lag may be greater than is told.
            The first ``SHOWN_MAX``.
        histogram: messages in each bucket of ``BUCKETS_MS``, by topic: the topics with most of them,
            and all others together.
        over: as ``unknown``, of queues in which nobody can read any more: these have no lag.
    """

    latencies: tuple[TopicLatency, ...]
    lags: tuple[GroupLag, ...]
    lag_max: int
    damaged: int
    unreadable: tuple[tuple[str, str], ...]
    unknown: tuple[tuple[str, str], ...] = ()
    histogram: Mapping[str, tuple[int, ...]] = {}
    over: tuple[tuple[str, str], ...] = ()


def latency(log: DataFrame) -> DataFrame:
    """Percentiles by replica, topic and day (UTC, of storing), exact to the millisecond.

    Damaged ranges have no topic: they are counted in rows of their own.
    """
    from pyspark.sql import functions as f

    ms = f.expr("unix_millis(storeTimestamp) - unix_millis(bornTimestamp)")
    rows = log.withColumn("ms", ms).withColumn("day", utc_day("storeTimestamp"))
    found = rows.groupBy("replica", "topic", "day").agg(
        f.count("topic").alias("messages"),
        f.count("_corrupt").alias(_DAMAGED),
        f.count_if(f.col("ms") < 0).alias("bornLater"),
        f.expr("percentile(ms, array(0.5, 0.95, 0.99))").alias("p"),
        f.max("ms").alias("maxMs"),
        _buckets().alias(_BUCKETS),
    )
    for number, name in enumerate(("p50Ms", "p95Ms", "p99Ms")):
        found = found.withColumn(name, f.col("p")[number])
    return found.drop("p")


def _buckets() -> Column:
    """How many messages took how long; those born later are in none."""
    from pyspark.sql import functions as f

    edges = (0, *BUCKETS_MS)
    within = [
        (f.col("ms") >= low) & (f.col("ms") < high) for low, high in itertools.pairwise(edges)
    ]
    return f.array(*(f.count_if(one) for one in (*within, f.col("ms") >= edges[-1])))


def histogram(times: DataFrame) -> dict[str, tuple[int, ...]]:
    """``Found.histogram`` of what ``latency`` gives."""
    from pyspark.sql import functions as f

    sums = [f.sum(f.col(_BUCKETS)[number]) for number in range(len(BUCKETS_MS) + 1)]
    known = times.where("topic IS NOT NULL")
    largest = known.groupBy("topic").agg(f.sum("messages").alias("n"), *sums)
    rows = largest.orderBy(f.desc("n"), "topic").limit(charts.SERIES_MAX).collect()
    found = {row[0]: tuple(row[2:]) for row in rows}
    total = known.agg(*sums).collect()[0]
    rest = tuple(
        (whole or 0) - sum(some)
        for whole, some in zip(total, zip(*found.values(), strict=True), strict=False)
    )
    return {**found, "other topics": rest} if any(rest) else found


def ends_of(stores: DataFrame) -> DataFrame:
    """The queues of stores (columns ``replica`` and ``path``)."""
    return stores.mapInArrow(_end_batches, ENDS)


def offsets_of(stores: DataFrame) -> DataFrame:
    """The groups' offsets of stores (columns ``replica`` and ``path``)."""
    return stores.mapInArrow(_offset_batches, OFFSETS)


def lag(offsets: DataFrame, ends: DataFrame) -> DataFrame:
    """By queue: each group's offset beside the queue's end.

    A group that has an offset in one queue of a topic has a row for each of its queues.
    """
    from pyspark.sql import functions as f

    known = ends.where("_corrupt IS NULL OR endOffset IS NOT NULL").where("queueId IS NOT NULL")
    stored = offsets.where("_corrupt IS NULL").drop("_corrupt", "isServed")
    groups = stored.select("replica", "topic", "consumerGroup").distinct()
    queues = known.select("replica", "topic", "queueId", "minOffset", "endOffset")
    asked = groups.join(queues, ["replica", "topic"])
    keys = ["replica", "topic", "consumerGroup", "queueId"]
    found = stored.join(asked, keys, "full_outer")
    return found.withColumn("lag", f.col("endOffset") - f.col("consumerOffset")).withColumn(
        "expired", f.greatest(f.col("minOffset") - f.col("consumerOffset"), f.lit(0))
    )


def behind(found: DataFrame, log: DataFrame) -> DataFrame:
    """``lag`` with ``behindMs``, of the times at which the log's messages were stored, and
    ``inLog``: whether the log has messages of the queue.

    Args:
        found: of ``lag``.
        log: columns ``PLACES``, of the groups' topics at least.
    """
    from pyspark.sql import functions as f

    keys = ["replica", "topic", "queueId"]
    places = log.where("_corrupt IS NULL").select(
        *keys, "queueOffset", f.expr("unix_millis(storeTimestamp)").alias("ms")
    )
    newest = places.groupBy(*keys).agg(f.max("ms").alias("newestMs"))
    # A replayed or copied record would be there twice.
    following = places.groupBy(*keys, "queueOffset").agg(f.min("ms").alias("nextMs"))
    following = following.withColumnRenamed("queueOffset", "consumerOffset")
    joined = found.join(newest, keys, "left").join(following, [*keys, "consumerOffset"], "left")
    waits = f.when(f.col("lag") == 0, 0).when(
        f.col("lag") > 0, f.greatest(f.col("newestMs") - f.col("nextMs"), f.lit(0))
    )
    joined = joined.withColumn("behindMs", waits).withColumn(IN_LOG, f.isnotnull("newestMs"))
    return joined.drop("newestMs", "nextMs")


def by_group(queues: DataFrame) -> DataFrame:
    """``behind`` added up by replica, topic and group."""
    from pyspark.sql import functions as f

    return queues.groupBy("replica", "topic", "consumerGroup").agg(
        f.count("*").alias("queues"),
        f.count_if(f.col("lag").isNull()).alias("unknown"),
        f.sum(f.when(f.col("lag") > 0, f.col("lag")).when(f.col("lag") <= 0, 0)).alias("lag"),
        f.sum(f.coalesce("expired", f.lit(0))).alias("expired"),
        f.count_if(f.col("lag") < 0).alias("beyond"),
        f.max("behindMs").alias("behindMs"),
    )


def run(spark: SparkSession, stores: Sequence[str], out: str) -> Found:
    """Read stores, write the tables and tell what was found.

    Args:
        stores: directories, optionally as ``name=directory``.
        out: directory of the tables.

    Raises:
        ConfigInvalid: a path is no store, or two have one name.
        StoreCorrupted: an identity or epoch file is damaged.
    """
    named = checked_stores(stores)
    paths = source_paths(named)
    source = spark.read.format("rocketmq-commitlog")
    times = latency(source.schema(LOG).load(paths)).cache()
    by_day = times.where("topic IS NOT NULL").drop(_DAMAGED, _BUCKETS)
    with kept_table(spark, out, LATENCY) as kept:
        kept.write(longest_days(by_day, kept.rows(by_day.schema)), "replica", "day")
    damaged = times.where("topic IS NULL").selectExpr("coalesce(sum(damaged), 0)").collect()[0][0]
    rows = spark.createDataFrame(named, "replica string, path string")
    rows = rows.repartition(len(named), "path")
    ends, offsets = ends_of(rows).cache(), offsets_of(rows).cache()
    hurt = ends.select("replica", "_corrupt").union(offsets.select("replica", "_corrupt"))
    hurt = hurt.where("_corrupt IS NOT NULL")
    write_whole(hurt, out, DAMAGE)
    topics = [row.topic for row in offsets.select("topic").distinct().collect() if row.topic]
    queues = behind(lag(offsets, ends), _places(spark, paths, topics)).cache()
    write_parts(queues.drop(IN_LOG), out, LAG, "replica")
    lost, over = unknown(offsets, queues, ends, configured_of(rows))
    columns = (
        "replica",
        "topic",
        "day",
        "messages",
        "bornLater",
        "p50Ms",
        "p95Ms",
        "p99Ms",
        "maxMs",
    )
    groups = by_group(queues).orderBy("replica", "topic", "consumerGroup")
    found = Found(
        tuple(
            TopicLatency(*row)
            for row in by_day.select(*columns).orderBy(*columns[:3]).limit(SHOWN_MAX).collect()
        ),
        tuple(GroupLag(*row) for row in groups.limit(SHOWN_MAX).collect()),
        groups.selectExpr("coalesce(max(lag), 0)").collect()[0][0],
        damaged,
        tuple((row[0], row[1]) for row in hurt.orderBy(*hurt.columns).limit(SHOWN_MAX).collect()),
        lost,
        histogram(times),
        over,
    )
    for frame in (times, ends, offsets, queues):
        frame.unpersist()
    return found


def longest_days(by_day: DataFrame, known: DataFrame | None) -> DataFrame:
    """Each day of a topic as the run saw it that found most of its messages.

    A later one finds what retention has left of it, and the first what had been stored until then.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    if known is None:
        return by_day
    keys = ["replica", "topic", "day"]
    days = by_day.select("replica", "day").distinct()
    older = known.join(days, ["replica", "day"], "left_semi").withColumn("_age", f.lit(1))
    both = by_day.withColumn("_age", f.lit(0)).unionByName(older)
    best = Window.partitionBy(*keys).orderBy(f.desc("messages"), "_age")
    found = both.withColumn("_order", f.row_number().over(best)).where("_order = 1")
    return found.drop("_age", "_order")


def _places(spark: SparkSession, paths: str, topics: Sequence[str]) -> DataFrame:
    """Where the messages of some topics are; the source goes to these by the consume queues."""
    if not topics:
        return spark.createDataFrame([], PLACES)
    reader = spark.read.format("rocketmq-commitlog").schema(PLACES)
    return reader.option("topic", ",".join(topics)).load(paths)


def checked_stores(stores: Sequence[str]) -> list[tuple[str, str]]:
    """Name and absolute path of each store.

    Raises:
        ConfigInvalid: a path is no store, or two have one name.
        StoreCorrupted: an identity or epoch file is damaged.
    """
    named = named_paths(stores)
    for name, root in named:
        open_replica(root, name)
    return named


def _end_batches(batches_in: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches_in:
        for store in batch.to_pylist():
            found = (astuple(one) for one in queue_ends(store["path"], store["replica"]))
            yield from batches(found, _ENDS)


def _offset_batches(batches_in: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches_in:
        for store in batch.to_pylist():
            found = (astuple(one) for one in group_offsets(store["path"], store["replica"]))
            yield from batches(found, _OFFSETS)


def _charts(found: Found) -> list[str]:
    slow = sorted(found.latencies, key=lambda one: -one.p99_ms)
    spreads = [
        charts.Spread(f"{one.topic} {one.day}", one.p50_ms, one.p95_ms, one.p99_ms, one.max_ms)
        for one in slow
    ]
    behind = sorted(
        ((f"{one.group}: {one.topic}", one.lag) for one in found.lags if one.lag),
        key=lambda one: -one[1],
    )
    parts = [chart("Born to stored, the slowest", charts.spreads(spreads))] if spreads else []
    if found.histogram:
        series = {
            topic: [float(one) for one in counts] for topic, counts in found.histogram.items()
        }
        parts.append(
            chart(
                "Born to stored, in milliseconds",
                charts.stacked(_bucket_names(), series, "messages"),
            )
        )
    if behind:
        parts.append(chart("Lag, the greatest", charts.bars(behind, "messages")))
    return parts


def _bucket_names() -> list[str]:
    ends = [f"{one:,}" if one < 1000 else f"{one // 1000:,} s" for one in BUCKETS_MS]
    return [*(f"< {end}" for end in ends), f"≥ {ends[-1]}"]


def report(stores: Sequence[str], found: Found) -> str:
    """A page for people."""
    parts = [
        sentence(f"{', '.join(stores)}: {found.damaged} damaged ranges in the logs."),
        *_charts(found),
        table(
            "Born to stored",
            (
                "replica", "topic", "day", "messages", "born later", "p50 ms", "p95 ms", "p99 ms",
                "max ms",
            ),
            (astuple(one) for one in found.latencies),
        ),
        table(
            "Groups",
            (
                "replica", "topic", "group", "queues", "unknown", "lag", "expired",
                "queues beyond the end", "behind ms",
            ),
            (astuple(one) for one in found.lags),
        ),
    ]  # fmt: skip
    if found.unreadable:
        parts.append(table("What cannot be read", ("replica", "what"), found.unreadable))
    return page("lag and latency", *parts)
