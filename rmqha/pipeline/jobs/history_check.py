"""What became of every message, by the histories of the clients that sent and read them.

Findings, by ``kind``:

- ``lost``: acknowledged, and read by nobody. ``detail`` says how far reading went: ``passed`` (its
  place, or behind it, was read), ``ended`` (the queue ended before it), ``unread`` (reading stopped
  before its place, so it may be there).
- ``duplicated``: one message stored at more than one place; as a rule a send whose first answer
  was lost.
- ``redelivered``: one consumer got one place more than once.
- ``reordered``: stored before a message that its own producer had sent and had acknowledged
  earlier, or read before one that stands in front of it.
- ``conflict``: two messages acknowledged at one place.
- ``unavailable``: no acknowledgement for longer than a limit, while sends were attempted.
- ``incomplete``: numbers of a client's records are missing: lines were lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import astuple

from rmqha.pipeline.histories.clients import (
    LONGER_THAN_MS,
    Attempt,
    check_history,
    read_history,
    windows,
)
from rmqha.pipeline.jobs.report_page import SHOWN_MAX, moment, page, sentence, table
from rmqha.pipeline.jobs.tables import batches, named_paths, write_whole
from rmqha.pipeline.spark.progress import row_count

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

EVENTS, FINDINGS, DAMAGE = "events", "findings", "_corrupt"
ROWS = (
    "history string, line bigint, op string, client string, n bigint, topic string, key string,"
    " attempt bigint, broker string, queue bigint, offset bigint, startMs bigint, endMs bigint,"
    " reason string, _corrupt string"
)
FOUND = (
    "kind string, topic string, broker string, queue bigint, offset bigint, key string,"
    " client string, startMs bigint, endMs bigint, detail string"
)
_TEXT, _NUMBER = pa.string(), pa.int64()
_ROWS = pa.schema(
    [
        ("history", _TEXT), ("line", _NUMBER), ("op", _TEXT), ("client", _TEXT), ("n", _NUMBER),
        ("topic", _TEXT), ("key", _TEXT), ("attempt", _NUMBER), ("broker", _TEXT),
        ("queue", _NUMBER), ("offset", _NUMBER), ("startMs", _NUMBER), ("endMs", _NUMBER),
        ("reason", _TEXT), ("_corrupt", _TEXT),
    ]
)  # fmt: skip
_FOUND = pa.schema(
    [
        ("kind", _TEXT), ("topic", _TEXT), ("broker", _TEXT), ("queue", _NUMBER),
        ("offset", _NUMBER), ("key", _TEXT), ("client", _TEXT), ("startMs", _NUMBER),
        ("endMs", _NUMBER), ("detail", _TEXT),
    ]
)  # fmt: skip
_HEADS = {"startMs": "from (UTC)", "endMs": "to (UTC)"}
_PLACE = ("topic", "broker", "queue", "offset")
_QUEUE = ("topic", "broker", "queue")
_READER = ("history", "client", *_QUEUE)


class Finding(Struct, frozen=True):
    """One of the above; what does not apply is None."""

    kind: str
    topic: str | None
    broker: str | None
    queue: int | None
    offset: int | None
    key: str | None
    client: str | None
    start_ms: int | None
    end_ms: int | None
    detail: str | None


class Checked(Struct, frozen=True):
    """What a run found.

    Attributes:
        records: how many of each ``op``.
        counts: how many findings of each kind.
        unread: of the lost, those that reading did not come to.
        findings: the first ``SHOWN_MAX``.
        damaged: lines that are no records.
        damaged_lines: (history, line, why), the first ``SHOWN_MAX``.
    """

    records: dict[str, int]
    counts: dict[str, int]
    unread: int
    findings: tuple[Finding, ...]
    damaged: int
    damaged_lines: tuple[tuple[str, int, str], ...]


def rows_of(files: DataFrame) -> DataFrame:
    """Every line of histories (columns ``history`` and ``path``)."""
    return files.mapInArrow(row_count(files.sparkSession).of(_read_batches), ROWS)


def findings(events: DataFrame, longer_than_ms: int = LONGER_THAN_MS) -> DataFrame:
    """All that is wrong, of what ``rows_of`` made.

    Args:
        events: damaged lines left out.
        longer_than_ms: shorter times without an acknowledgement are not told.
    """
    parts = [
        lost(events), duplicated(events), redelivered(events), reordered(events),
        conflicts(events), unavailable(events, longer_than_ms), incomplete(events),
    ]  # fmt: skip
    return reduce(lambda one, other: one.unionByName(other), parts)


def lost(events: DataFrame) -> DataFrame:
    """Acknowledged and read by nobody."""
    from pyspark.sql import functions as f

    reads = events.where("op = 'consume'")
    acks = events.where("op = 'ack'").dropDuplicates(["topic", "key", "broker", "queue", "offset"])
    gone = acks.join(reads.select("topic", "key").distinct(), ["topic", "key"], "left_anti")
    passed = reads.groupBy(*_QUEUE).agg(f.max("offset").alias("_read"))
    ended = events.where("op = 'end'").groupBy(*_QUEUE).agg(f.max("endMs").alias("_ended"))
    told = gone.join(passed, [*_QUEUE], "left").join(ended, [*_QUEUE], "left")
    detail = (
        f.when(f.col("_read") >= f.col("offset"), "passed")
        .when(f.col("_ended") >= f.col("endMs"), "ended")
        .otherwise("unread")
    )
    return _found(told, "lost", detail)


def duplicated(events: DataFrame) -> DataFrame:
    """One message at several places."""
    from pyspark.sql import functions as f

    stored = events.where("op IN ('consume', 'ack')").select(*_PLACE, "key").distinct()
    place = f.concat_ws(":", "broker", "queue", "offset")
    several = stored.groupBy("topic", "key").agg(
        f.count("*").alias("_places"),
        f.min_by("broker", "offset").alias("broker"),
        f.concat_ws(" ", f.sort_array(f.collect_list(place))).alias("_at"),
    )
    found = several.where("_places > 1")
    return _found(found, "duplicated", f.substring("_at", 1, 1000))


def redelivered(events: DataFrame) -> DataFrame:
    """One place, more than once to one consumer."""
    from pyspark.sql import functions as f

    again = (
        events.where("op = 'consume'")
        .groupBy("history", "client", *_PLACE)
        .agg(
            f.count("*").alias("_times"),
            f.max("key").alias("key"),
            f.min("endMs").alias("startMs"),
            f.max("endMs").alias("endMs"),
        )
    )
    return _found(again.where("_times > 1"), "redelivered", f.concat("_times", f.lit(" times")))


def reordered(events: DataFrame) -> DataFrame:
    """Stored, or read, before what comes before it."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    behind = Window.partitionBy(*_READER).orderBy(f.desc("offset"))
    acks = events.where("op = 'ack'").withColumn(
        "_behind", f.min("endMs").over(behind.rangeBetween(Window.unboundedPreceding, -1))
    )
    stored = acks.where("_behind < startMs")
    line = Window.partitionBy(*_READER).orderBy("n")
    reads = events.where("op = 'consume'").withColumn("_before", f.lag("offset").over(line))
    read = reads.where("offset < _before")
    told = f.concat(f.lit("read after offset "), "_before")
    return _found(stored, "reordered", f.lit("stored before what was sent earlier")).unionByName(
        _found(read, "reordered", told)
    )


def conflicts(events: DataFrame) -> DataFrame:
    """Two messages acknowledged at one place."""
    from pyspark.sql import functions as f

    acks = events.where("op = 'ack'").groupBy(*_PLACE)
    several = acks.agg(
        f.count_distinct("key").alias("_keys"),
        f.concat_ws(" ", f.sort_array(f.collect_set("key"))).alias("_told"),
        f.min("endMs").alias("startMs"),
        f.max("endMs").alias("endMs"),
    )
    return _found(several.where("_keys > 1"), "conflict", f.substring("_told", 1, 1000))


def attempts(events: DataFrame) -> DataFrame:
    """Every attempt to send, with its end where one is known."""
    keys = ["history", "client", "topic", "key", "attempt"]
    ended = events.where("op IN ('ack', 'fail')")
    known = ended.selectExpr("topic", "startMs", "endMs", "op = 'ack' AS acked")
    open_ones = events.where("op = 'send'").join(ended.select(*keys), keys, "left_anti")
    return known.unionByName(
        open_ones.selectExpr("topic", "startMs", "CAST(NULL AS BIGINT) AS endMs", "false AS acked")
    )


def unavailable(events: DataFrame, longer_than_ms: int) -> DataFrame:
    """Times without an acknowledgement while sends were attempted, by topic."""
    rows = attempts(events).repartition("topic").sortWithinPartitions("topic", "startMs")
    return rows.mapInArrow(_Windows(longer_than_ms), FOUND)


def incomplete(events: DataFrame) -> DataFrame:
    """Clients of whose records some are missing."""
    from pyspark.sql import functions as f

    counted = events.groupBy("history", "client").agg(
        (f.max("n") - f.count_distinct("n")).alias("_missing")
    )
    told = f.concat("_missing", f.lit(" records missing in "), "history")
    return _found(counted.where("_missing > 0"), "incomplete", told)


def _found(rows: DataFrame, kind: str, detail: Column) -> DataFrame:
    from pyspark.sql import functions as f

    made = []
    for field in _FOUND:
        if field.name == "kind":
            column = f.lit(kind)
        elif field.name == "detail":
            column = detail
        else:
            column = f.col(field.name) if field.name in rows.columns else f.lit(None)
        spark_type = "string" if field.type == _TEXT else "bigint"
        made.append(column.cast(spark_type).alias(field.name))
    return rows.select(*made)


def run(
    spark: SparkSession,
    files: Sequence[str],
    out: str,
    *,
    longer_than_ms: int = LONGER_THAN_MS,
) -> Checked:
    """Read histories of one run of a cluster, write the tables and tell what was found.

    Args:
        files: histories, optionally as ``name=file``; together they are one.
        out: directory of the tables.
        longer_than_ms: shorter times without an acknowledgement are not told.

    Raises:
        ConfigInvalid: a file is no history, or two have one name.
    """
    from pyspark.sql import functions as f

    named = checked_files(files)
    rows = rows_of(
        spark.createDataFrame(named, "history string, path string").repartition(len(named), "path")
    ).cache()
    events = rows.where("_corrupt IS NULL").drop("_corrupt")
    events.write.mode("overwrite").partitionBy("topic").parquet(f"{out}/{EVENTS}")
    hurt = rows.where("_corrupt IS NOT NULL").select("history", "line", "_corrupt")
    write_whole(hurt, out, DAMAGE)
    found = findings(events, longer_than_ms).cache()
    # Not by partitions: a table without rows can then be read, too, and says that all is well.
    write_whole(found.coalesce(1), out, FINDINGS)
    shown = found.orderBy("kind", "topic", "broker", "queue", "offset", "startMs", "key")
    groups = found.groupBy("kind", f.expr("detail = 'unread'").alias("unread")).count().collect()
    counts: dict[str, int] = {}
    for row in sorted(groups, key=lambda one: one.kind):
        counts[row.kind] = counts.get(row.kind, 0) + row["count"]
    lines = hurt.orderBy("history", "line").limit(SHOWN_MAX).collect()
    checked = Checked(
        {row.op: row["count"] for row in events.groupBy("op").count().orderBy("op").collect()},
        counts,
        sum(row["count"] for row in groups if row.kind == "lost" and row.unread),
        tuple(Finding(*row) for row in shown.limit(SHOWN_MAX).collect()),
        hurt.count() if len(lines) == SHOWN_MAX else len(lines),
        tuple(tuple(row) for row in lines),
    )
    found.unpersist()
    rows.unpersist()
    return checked


def checked_files(files: Sequence[str]) -> list[tuple[str, str]]:
    """Name and absolute path of each history.

    Raises:
        ConfigInvalid: a file is no history, or two have one name.
    """
    named = named_paths(files)
    for _, path in named:
        check_history(path)
    return named


def _read_batches(batches_in: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches_in:
        for one in batch.to_pylist():
            rows = (astuple(event) for event in read_history(one["path"], one["history"]))
            yield from batches(rows, _ROWS)


class _Windows:
    """Travels to the workers with the limit."""

    def __init__(self, longer_than_ms: int) -> None:
        self._longer_than_ms = longer_than_ms

    def __call__(self, batches_in: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches_in for row in batch.to_pylist())
        for topic, mine in groupby(rows, key=lambda row: str(row["topic"])):
            made = (Attempt(row["startMs"], row["endMs"], row["acked"]) for row in mine)
            yield from batches(self._told(topic, made), _FOUND)

    def _told(self, topic: str, made: Iterator[Attempt]) -> Iterator[tuple[Any, ...]]:
        for one in windows(made, self._longer_than_ms):
            end = "" if one.came_back else ", given up"
            detail = f"{one.end_ms - one.start_ms} ms, {one.attempts} attempts{end}"
            nothing = (None,) * 5
            yield ("unavailable", topic, *nothing, one.start_ms, one.end_ms, detail)


def report(files: Sequence[str], checked: Checked) -> str:
    """A page for people."""
    counts = ", ".join(f"{count} {kind}" for kind, count in checked.counts.items())
    records = ", ".join(f"{count} {op}" for op, count in checked.records.items())
    parts = [
        sentence(f"{', '.join(files)}: {records or 'no records'}."),
        sentence(f"{counts or 'Nothing is wrong'}; {checked.damaged} damaged lines."),
        table(
            "Findings", [_HEADS.get(field.name, field.name) for field in _FOUND],
            (
                (*astuple(one)[:-3], moment(one.start_ms), moment(one.end_ms), one.detail)
                for one in checked.findings
            ),
        ),
    ]  # fmt: skip
    if checked.damaged_lines:
        parts.append(table("Damaged lines", ("history", "line", "why"), checked.damaged_lines))
    return page("history check", *parts)
