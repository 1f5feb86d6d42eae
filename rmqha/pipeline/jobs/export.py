"""Commit logs to a Parquet lake by topic and day.

A run replaces the days it has rows of and leaves the others, so running it again, or for a later
stretch of the log that begins with a whole day, changes nothing that was right. Damage goes to
``_corrupt`` in the lake, which readers of the lake pass over.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from rmqha.pipeline.jobs.report_page import page, sentence, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAMAGE = "_corrupt"
REPORT = "_report.html"
COUNTED = "topic string, storeTimestamp timestamp, size int, _corrupt string"
DAMAGED = "replica string, physicalOffset bigint, size int, _corrupt string"


class Exported(Struct, frozen=True):
    """What a run wrote.

    Attributes:
        days: (topic, day, messages, bytes in the log), ascending.
        damaged: damaged ranges.
    """

    days: tuple[tuple[str, str, int, int], ...]
    damaged: int

    @property
    def rows(self) -> int:
        """All messages."""
        return sum(day[2] for day in self.days)


def lake(log: DataFrame) -> DataFrame:
    """Whole messages with the day (UTC) on which they were stored, in the order of each queue.

    Several replicas of one set hold the same messages: give the source one of them.
    """
    return _whole(log).sortWithinPartitions("topic", "day", "queueId", "queueOffset")


def _whole(log: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    rows = log.where("_corrupt IS NULL").drop("_corrupt")
    return rows.withColumn("day", f.date_format("storeTimestamp", "yyyy-MM-dd"))


def damage(log: DataFrame) -> DataFrame:
    """Damaged ranges: which replica, where, how long, and why."""
    found = log.where("_corrupt IS NOT NULL")
    return found.select("replica", "physicalOffset", "size", "_corrupt")


def run(
    spark: SparkSession,
    stores: Sequence[str],
    out: str,
    *,
    topics: Sequence[str] = (),
    bodies: bool = True,
) -> Exported:
    """Read stores, write the lake and its report.

    Args:
        stores: directories, optionally as ``name=directory``.
        out: the lake's directory, or whatever Spark can write to.
        topics: only these; all when empty.
        bodies: whether the lake has the bodies.
    """
    from pyspark.sql import functions as f

    def load(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("rocketmq-commitlog").options(**options)
        return (reader.schema(schema) if schema else reader).load(",".join(stores))

    chosen = {"topic": ",".join(topics)} if topics else {}
    rows = lake(load(includeBody=str(bodies).lower(), **chosen))
    # Nothing but what is counted is made again; damage names no topic, and is asked for by itself.
    counted = _whole(load(COUNTED, **chosen))
    hurt = damage(load(DAMAGED)).cache()
    writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy("topic", "day").parquet(out)
    hurt.write.mode("overwrite").parquet(os.path.join(out, DAMAGE))
    counts = counted.groupBy("topic", "day").agg(
        f.count("*").alias("messages"), f.sum("size").alias("bytes")
    )
    days = tuple(
        (row.topic, row.day, row.messages, row.bytes)
        for row in counts.orderBy("topic", "day").collect()
    )
    damaged = hurt.count()
    hurt.unpersist()
    return Exported(days, damaged)


def report(stores: Sequence[str], done: Exported) -> str:
    """A page for people."""
    return page(
        "export",
        sentence(f"{', '.join(stores)}: {done.rows} messages, {done.damaged} damaged ranges."),
        table("Topics", ("topic", "day", "messages", "bytes"), done.days),
    )
