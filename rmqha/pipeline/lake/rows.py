"""Rows of a lake as DataFrames: those of a log, those of files, and which of them are the same."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from rmqha.pipeline.lake.layout import ESCAPED, NUL, TOPIC, SetName, Span
from rmqha.pipeline.spark.paths import literal
from rmqha.pipeline.spark.times import utc_day

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

IDENTITY = (
    "queueId", "queueOffset", "physicalOffset", "size", "storeTimestamp", "storeHost",
    "bornTimestamp", "bodyCrc",
)  # fmt: skip
"""Two rows that agree in these are one record: no two logs have it at one place at one time."""
_TIMES = frozenset({"storeTimestamp", "bornTimestamp"})
COMPARED = 100
"""So many of a set's oldest rows are looked at to see whether it is the same log."""
FOLDERS = ("topic", "day", "cell")
"""Columns that become directories; ``cell`` only until an export is published."""
_KEYS = (
    "queueId int, queueOffset bigint, physicalOffset bigint, size int, storeTimestamp timestamp,"
    " storeHost string, bornTimestamp timestamp, bodyCrc int"
)


def lake(log: DataFrame) -> DataFrame:
    """Whole messages with the day (UTC) on which they were stored, in the order of each queue.

    Several replicas of one set hold the same messages: give the source one of them.
    """
    return whole(log).sortWithinPartitions("topic", "day", "queueId", "queueOffset")


def whole(log: DataFrame) -> DataFrame:
    """As ``lake``, in the order in which they come."""
    rows = log.where("_corrupt IS NULL").drop("_corrupt")
    return rows.withColumn("day", utc_day("storeTimestamp"))


def damage(log: DataFrame) -> DataFrame:
    """Damaged ranges: which replica, where, how long, and why."""
    found = log.where("_corrupt IS NOT NULL")
    return found.select("replica", "physicalOffset", "size", "_corrupt")


def of_set(rows: DataFrame, name: SetName) -> DataFrame:
    """Rows of a log with whose they are."""
    from pyspark.sql import functions as f

    cluster = f.lit(name.cluster or None).cast("string")
    return rows.withColumn("cluster", cluster).withColumn("brokerName", f.lit(name.broker))


def is_unnamable(name_bytes_max: int | None) -> Column:
    """Whether no folder can be named after a row's topic, as ``has_folder`` says it of one.

    Args:
        name_bytes_max: None where names have no limit.
    """
    from pyspark.sql import functions as f

    has_nul = f.col("topic").contains(NUL)
    if name_bytes_max is None:
        return has_nul
    escaped = f.regexp_replace("topic", ESCAPED, "%00")
    return has_nul | (f.octet_length(escaped) > name_bytes_max - len(TOPIC))


def in_cells(rows: DataFrame, cell_bytes: int) -> DataFrame:
    """Rows with where their cell begins."""
    from pyspark.sql import functions as f

    at = f.col("physicalOffset")
    return rows.withColumn("cell", at - at % f.lit(cell_bytes))


def in_order(rows: DataFrame) -> DataFrame:
    """Rows of each task as they are written: folder by folder, queue by queue."""
    return rows.sortWithinPartitions(*FOLDERS, "queueId", "queueOffset")


def read_files(
    spark: SparkSession, root: str, paths: Sequence[str], *, alike: bool = False
) -> DataFrame:
    """Rows of files below a directory, with the columns that any of them has.

    Names of directories are texts, whatever they look like: a topic may be called 007.

    Args:
        alike: all files have the same columns, so one of them tells which.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    paths = [literal(one) for one in paths]
    reader = spark.read.option("basePath", root).option("mergeSchema", not alike)
    found = reader.parquet(*(paths[:1] if alike else paths)).schema
    fields = [
        StructField(one.name, StringType()) if one.name in ("topic", "day") else one
        for one in found
    ]
    return spark.read.option("basePath", root).schema(StructType(fields)).parquet(*paths)


def keys(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """What tells the records of files from others."""
    return spark.read.schema(_KEYS).parquet(*map(literal, paths))


def rotten(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Rows of files whose bodies are not the ones that their checksums were made of."""
    schema = f"{_KEYS}, replica string, crcOk boolean"
    return spark.read.schema(schema).parquet(*map(literal, paths)).where("NOT crcOk")


def without_replaced(rows: DataFrame, others: DataFrame) -> DataFrame:
    """Rows at whose place none of the others is, or the same record: what was cut is not kept."""
    places = others.select("physicalOffset").distinct()
    elsewhere = rows.join(places, "physicalOffset", "left_anti")
    same = rows.join(others.select(*IDENTITY), list(IDENTITY), "left_semi")
    return elsewhere.unionByName(same)


def count(spark: SparkSession, paths: Sequence[str]) -> int:
    """How many rows files have; only their ends are read."""
    return keys(spark, paths).count() if paths else 0


def outside(spark: SparkSession, rows: DataFrame, spans: Sequence[Span]) -> DataFrame:
    """Rows that begin in none of some spans of the log."""
    from pyspark.sql import functions as f

    if not spans:
        return rows
    listed = ", ".join(f"({start}L, {stop}L)" for start, stop in spans)
    edges = spark.sql(f"SELECT * FROM VALUES {listed} AS edges(start, stop)")
    is_in = (f.col("physicalOffset") >= f.col("start")) & (f.col("physicalOffset") < f.col("stop"))
    return rows.join(f.broadcast(edges), is_in, "left_anti")


def first_keys(spark: SparkSession, paths: Sequence[str], low: int) -> list[tuple[Any, ...]]:
    """Some rows' ``IDENTITY`` of files, those with the lowest places from ``low`` on."""
    rows = keys(spark, paths).where(f"physicalOffset >= {low}")
    return _collected(rows.orderBy("physicalOffset").limit(COMPARED))


def has_any(spark: SparkSession, paths: Sequence[str], known: Sequence[tuple[Any, ...]]) -> bool:
    """Whether files have one of some rows, which are told by their ``IDENTITY``."""
    offsets = sorted({row[IDENTITY.index("physicalOffset")] for row in known})
    rows = keys(spark, paths).where(f"physicalOffset IN ({', '.join(map(str, offsets))})")
    return not set(_collected(rows)).isdisjoint(known)


def log_has_any(spark: SparkSession, store: str, known: Sequence[tuple[Any, ...]]) -> bool:
    """Whether a log has one of some rows, which are told by their ``IDENTITY``.

    Args:
        store: as the source is to be told.
    """
    offsets = [row[IDENTITY.index("physicalOffset")] for row in known]
    span = f"{min(offsets)}-{max(offsets)}"
    log = spark.read.format("rocketmq-commitlog").option("physicalOffset", span)
    rows = log.option("upTo", "end").schema(f"{_KEYS}, _corrupt string").load(store)
    return not set(_collected(rows.where("_corrupt IS NULL"))).isdisjoint(known)


def taken(spark: SparkSession, paths: Sequence[str], offsets: Collection[int]) -> set[int]:
    """At which of some places of the log files have rows."""
    if not (paths and offsets):
        return set()
    rows = keys(spark, paths).where(f"physicalOffset IN ({', '.join(map(str, offsets))})")
    return {row.physicalOffset for row in rows.select("physicalOffset").collect()}


def _collected(rows: DataFrame) -> list[tuple[Any, ...]]:
    """The ``IDENTITY`` of rows with times as numbers: Python has no dates behind the year 9999, and
    producers may say that a message was born then."""
    from pyspark.sql import functions as f

    columns = [f.unix_micros(one).alias(one) if one in _TIMES else f.col(one) for one in IDENTITY]
    return [tuple(row) for row in rows.select(*columns).collect()]


def without(rows: DataFrame, others: DataFrame) -> DataFrame:
    """Rows that are not among the others."""
    return rows.join(others, list(IDENTITY), "left_anti")


def days(rows: DataFrame) -> dict[tuple[str, str], tuple[int, int]]:
    """Messages and their bytes in the log by topic and day."""
    from pyspark.sql import functions as f

    sums = (f.count("*").alias("messages"), f.sum("size").alias("bytes"))
    found = rows.groupBy("topic", "day").agg(*sums).collect()
    return {(row.topic, row.day): (row.messages, row.bytes) for row in found}


def cell_sums(
    spark: SparkSession, root: str, paths: Sequence[str]
) -> list[tuple[str, str, int, int, int]]:
    """Topic, day, cell, messages and their bytes in the log, of files that are not yet published."""
    from pyspark.sql import functions as f

    sums = (f.count("*").alias("messages"), f.sum("size").alias("bytes"))
    rows = read_files(spark, root, paths, alike=True)
    return [tuple(row) for row in rows.groupBy(*FOLDERS).agg(*sums).collect()]
