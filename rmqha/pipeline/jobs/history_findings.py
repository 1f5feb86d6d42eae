"""What is wrong in the histories of clients: a table of findings, made of one of their records.

Findings, by ``kind``:

- ``lost``: acknowledged, and read by nobody. ``detail`` says how far reading went: ``passed`` (its
  place, or behind it, was read, or the queue ended behind it), ``ended`` (the queue ended before
  it), ``unread`` (reading stopped before its place, so it may be there). Also what was read, when
  the queue ended before its place afterwards (``ended``).
- ``duplicated``: one message stored at more than one place; as a rule a send whose first answer
  was lost.
- ``redelivered``: one consumer got one message at one place more than once.
- ``reordered``: stored before a message that its own producer had sent and had acknowledged
  earlier, or read before one that stands in front of it.
- ``conflict``: two messages at one place, acknowledged or read: a log was cut that was shown.
- ``unsent``: read, and in no send of a topic of which senders tell.
- ``unavailable``: no acknowledgement for longer than a limit, while sends were attempted. Of a send
  without an end nobody knows how long it was tried: it counts as its beginning.
- ``incomplete``: numbers of a client's records are missing: lines were lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct

from rmqha.pipeline.histories.clients import LONGER_THAN_MS, Attempt, windows
from rmqha.pipeline.jobs.tables import batches
from rmqha.verify.client_history import NATURAL_MAX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FOUND = (
    "kind string, topic string, broker string, queue bigint, offset bigint, key string,"
    " client string, startMs bigint, endMs bigint, detail string"
)
_TEXT, _NUMBER = pa.string(), pa.int64()
FOUND_SCHEMA = pa.schema(
    [
        ("kind", _TEXT), ("topic", _TEXT), ("broker", _TEXT), ("queue", _NUMBER),
        ("offset", _NUMBER), ("key", _TEXT), ("client", _TEXT), ("startMs", _NUMBER),
        ("endMs", _NUMBER), ("detail", _TEXT),
    ]
)  # fmt: skip
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


def findings(events: DataFrame, longer_than_ms: int = LONGER_THAN_MS) -> DataFrame:
    """All that is wrong, of what ``rows_of`` made.

    Args:
        events: damaged lines left out.
        longer_than_ms: shorter times without an acknowledgement are not told.
    """
    parts = [
        lost(events), duplicated(events), redelivered(events), reordered(events),
        conflicts(events), unsent(events), unavailable(events, longer_than_ms), incomplete(events),
    ]  # fmt: skip
    return reduce(lambda one, other: one.unionByName(other), parts)


def lost(events: DataFrame) -> DataFrame:
    """Acknowledged, and read by nobody or gone since."""
    from pyspark.sql import functions as f

    reads = events.where("op = 'consume'")
    acks = events.where("op = 'ack'").dropDuplicates(["topic", "key", "broker", "queue", "offset"])
    places = f.count_distinct(f.struct(*_PLACE)).alias("_places")
    known = reads.groupBy("topic", "key").agg(f.lit(True).alias("_known"), places)
    passed = reads.groupBy(*_QUEUE).agg(f.max("offset").alias("_read"))
    told = _with_ends(acks, events).join(known, ["topic", "key"], "left")
    told = told.join(passed, [*_QUEUE], "left")
    detail = (
        f.when(f.expr("_known IS NULL AND _read >= offset"), "passed")
        .when(f.col("_first_end") <= f.col("offset"), "ended")
        .when(f.col("_last_end") > f.col("offset"), "passed")
        .otherwise("unread")
    )
    # One that was read elsewhere is no more lost than one with a copy: deferred messages are
    # acknowledged at a place where nobody reads them.
    gone = "_first_end <= offset AND _seen IS NOT NULL AND _places = 1"
    return _found(told.where(f"_known IS NULL OR {gone}"), "lost", detail)


def _with_ends(acks: DataFrame, events: DataFrame) -> DataFrame:
    """Acknowledgements with the lowest and the highest end of their queue that was found since.

    An end that was found before the message was read at its place was none: readers may be wrong.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    place = [*_PLACE, "key"]
    reads = events.where("op = 'consume'").groupBy(*place).agg(f.max("endMs").alias("_seen"))
    seen = acks.join(reads, place, "left")
    at = f.col("_seen")
    after = f.when(at < NATURAL_MAX, at + 1).otherwise(at)
    seen = seen.withColumn("_at", f.greatest(f.col("endMs"), after))
    ends = events.where("op = 'end'").withColumn("_at", f.col("endMs"))
    later = Window.partitionBy(*_QUEUE).orderBy(f.desc("_at"))
    later = later.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    end = f.when(f.col("op") == "end", f.col("offset"))
    both = seen.unionByName(ends, allowMissingColumns=True)
    both = both.withColumn("_first_end", f.min(end).over(later))
    return both.withColumn("_last_end", f.max(end).over(later)).where("op = 'ack'")


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
    """One message at one place, more than once to one consumer."""
    from pyspark.sql import functions as f

    again = (
        events.where("op = 'consume'")
        .groupBy("history", "client", *_PLACE, "key")
        .agg(
            f.count("*").alias("_times"),
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
    """Two messages at one place: one was there, was shown or acknowledged, and is there no more."""
    from pyspark.sql import functions as f

    stored = _with_keys(events.where("op IN ('consume', 'ack')")).groupBy(*_PLACE)
    several = stored.agg(
        f.count_distinct("key").alias("_keys"),
        f.concat_ws(" ", f.sort_array(f.collect_set("key"))).alias("_told"),
        f.min("endMs").alias("startMs"),
        f.max("endMs").alias("endMs"),
    )
    return _found(several.where("_keys > 1"), "conflict", f.substring("_told", 1, 1000))


def unsent(events: DataFrame) -> DataFrame:
    """Read, and in no send, of topics of which senders tell."""
    from pyspark.sql import functions as f

    sent = events.where("op IN ('send', 'ack', 'fail')").select("topic", "key").distinct()
    reads = _with_keys(events.where("op = 'consume'")).join(
        sent.select("topic").distinct(), "topic", "left_semi"
    )
    foreign = reads.join(sent, ["topic", "key"], "left_anti").groupBy(*_PLACE, "key")
    found = foreign.agg(f.min("endMs").alias("startMs"), f.max("endMs").alias("endMs"))
    return _found(found, "unsent", f.lit("nobody tells of having sent it"))


def _with_keys(events: DataFrame) -> DataFrame:
    """Without readings of messages that have no key: their reader cannot say which they were."""
    from pyspark.sql import functions as f

    place = f.concat(f.lit("at "), "queue", f.lit(":"), "offset")
    return events.where((f.col("op") != "consume") | (f.col("key") != place))


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
    for field in FOUND_SCHEMA:
        if field.name == "kind":
            column = f.lit(kind)
        elif field.name == "detail":
            column = detail
        else:
            column = f.col(field.name) if field.name in rows.columns else f.lit(None)
        spark_type = "string" if field.type == _TEXT else "bigint"
        made.append(column.cast(spark_type).alias(field.name))
    return rows.select(*made)


class _Windows:
    """Travels to the workers with the limit."""

    def __init__(self, longer_than_ms: int) -> None:
        self._longer_than_ms = longer_than_ms

    def __call__(self, batches_in: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches_in for row in batch.to_pylist())
        for topic, mine in groupby(rows, key=lambda row: str(row["topic"])):
            made = (Attempt(row["startMs"], row["endMs"], row["acked"]) for row in mine)
            yield from batches(self._told(topic, made), FOUND_SCHEMA)

    def _told(self, topic: str, made: Iterator[Attempt]) -> Iterator[tuple[Any, ...]]:
        for one in windows(made, self._longer_than_ms):
            end = "" if one.came_back else ", given up"
            detail = f"{one.end_ms - one.start_ms} ms, {one.attempts} attempts{end}"
            nothing = (None,) * 5
            yield ("unavailable", topic, *nothing, one.start_ms, one.end_ms, detail)
