"""A controller's log and snapshots as a table; its state at any index; what two indexes differ in.

The table is kept by replica and segment. A segment only grows and is removed whole, so running the
job again replaces what is still there and keeps what the controller has compacted away since: the
table then reaches further back than the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import astuple

from rmqha.pipeline.controller_log.records import RESET, SNAPSHOT, TORN, find_store, read_store
from rmqha.pipeline.controller_log.state import Known, facts
from rmqha.pipeline.jobs.report_page import SHOWN_MAX, page, sentence, table
from rmqha.pipeline.jobs.tables import batches as table_batches
from rmqha.pipeline.jobs.tables import kept_table, named_paths, table_path, write_parts, write_whole
from rmqha.pipeline.spark.paths import literal
from rmqha.pipeline.spark.progress import row_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENTRIES, DAMAGE, STATE, DIFFERENCE = "entries", "_corrupt", "state", "difference"
_ROWS = pa.schema(
    [
        ("replica", pa.string()), ("segment", pa.string()), ("position", pa.int64()),
        ("number", pa.int32()), ("size", pa.int32()), ("logIndex", pa.int64()),
        ("term", pa.int64()), ("kind", pa.string()), ("brokerSet", pa.string()),
        ("fields", pa.string()), ("_corrupt", pa.string()),
    ]
)  # fmt: skip
ROWS = (
    "replica string, segment string, position bigint, number int, size int, logIndex bigint,"
    " term bigint, kind string, brokerSet string, fields string, _corrupt string"
)
_FACTS = pa.schema(
    [
        ("replica", pa.string()), ("at", pa.int64()), ("brokerSet", pa.string()),
        ("key", pa.string()), ("value", pa.string()), ("_unknown", pa.string()),
    ]
)  # fmt: skip
FACTS = "replica string, at bigint, brokerSet string, key string, value string, _unknown string"


class History(Struct, frozen=True):
    """What a run found.

    Attributes:
        kinds: (replica, kind, status, rows, first index, last index).
        damaged: (replica, segment, position, size, reason) of damage, the first ``SHOWN_MAX``.
        torn: likewise of torn tails, which are no damage.
        state: (replica, index, broker set, key, value), when one was asked for.
        difference: (replica, broker set, key, before, after), when one was asked for.
        unknown: (replica, index, reason) of states that cannot be known.
        known: indexes at which some replica's state is known, of those that were asked for.
    """

    kinds: tuple[tuple[str, str, str, int, int | None, int | None], ...]
    damaged: tuple[tuple[str, str, int, int, str], ...]
    torn: tuple[tuple[str, str, int, int, str], ...]
    state: tuple[tuple[str, int, str, str, str | None], ...] = ()
    difference: tuple[tuple[str, str, str, str | None, str | None], ...] = ()
    unknown: tuple[tuple[str, int, str], ...] = ()
    known: tuple[int, ...] = ()


def rows_of(stores: DataFrame) -> DataFrame:
    """Every record and every damaged place of stores (columns ``replica`` and ``path``)."""
    return stores.mapInArrow(row_count(stores.sparkSession).of(_read_batches), ROWS)


def entries(rows: DataFrame) -> DataFrame:
    """Records with a ``status``.

    ``cut``: a later record of this log cut it off. ``committed``: a snapshot holds it. ``logged``:
    neither is known; it is durable on this node, or was before another node's snapshot was put in
    its log's place, which holds it or another one.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    later = Window.partitionBy("replica").orderBy(
        f.desc("segment"), f.desc("position"), f.desc("number")
    )
    later = later.rowsBetween(Window.unboundedPreceding, -1)
    whole = Window.partitionBy("replica")
    is_snapshot, is_reset = f.col("kind") == SNAPSHOT, f.col("kind") == RESET
    found = rows.where("_corrupt IS NULL").drop("_corrupt")
    index_of_entry = f.when(~is_snapshot & ~is_reset, f.col("logIndex"))
    found = found.withColumn("_cut", f.min(index_of_entry).over(later))
    found = found.withColumn(
        "_reset", f.min(f.when(is_reset, f.struct("logIndex", "term"))).over(later)
    )
    found = found.withColumn("_held", f.max(f.when(is_snapshot, f.col("logIndex"))).over(whole))
    found = found.join(_held_at_resets(found), ["replica", "_reset"], "left")
    # At its end the snapshot says which entry it holds.
    is_other = f.expr("logIndex = _reset.logIndex AND term <> _reset.term")
    held = f.when(f.col("_reset").isNull(), f.col("_held")).otherwise(f.col("_held_before"))
    status = (
        f.when(is_snapshot, "committed")
        .when(f.expr("logIndex >= _cut OR logIndex > _reset.logIndex") | is_other, "cut")
        .when(f.col("logIndex") <= held, "committed")
        .otherwise("logged")
    )
    return found.withColumn("status", status).drop("_cut", "_reset", "_held", "_held_before")


def _held_at_resets(found: DataFrame) -> DataFrame:
    """Up to where this node's own snapshots reach that are older than one that was put in its log's
    place: that one was made of another node's entries."""
    from pyspark.sql import functions as f

    resets = found.where(f.col("_reset").isNotNull()).select("replica", "_reset").distinct()
    own = found.where(f.col("kind") == SNAPSHOT).select("replica", f.col("logIndex").alias("_own"))
    before = resets.join(own, "replica").where("_own < _reset.logIndex")
    return before.groupBy("replica", "_reset").agg(f.max("_own").alias("_held_before"))


def damage(rows: DataFrame) -> DataFrame:
    """Places of which no record could be made."""
    found = rows.where("_corrupt IS NOT NULL")
    return found.select("replica", "segment", "position", "size", "_corrupt")


def states(found: DataFrame, ats: Sequence[int]) -> DataFrame:
    """The state of each replica at each index, one row a value, of what ``entries`` made."""
    from pyspark.sql import functions as f

    known = found.where("logIndex IS NOT NULL AND status <> 'cut' AND kind <> 'Reset'").select(
        "replica", "logIndex", "kind", "fields", (f.col("kind") == SNAPSHOT).alias("last")
    )
    ordered = known.repartition("replica").sortWithinPartitions("replica", "logIndex", "last")
    return ordered.mapInArrow(_States(ats), FACTS)


def difference(found: DataFrame, before: int, after: int) -> DataFrame:
    """Values that differ between two indexes, of what ``states`` made.

    Of replicas whose state is known at both: what is not known differs from nothing.
    """
    from pyspark.sql import functions as f

    keys = ["replica", "brokerSet", "key"]
    known = found.where("_unknown IS NULL")
    old = known.where(f.col("at") == before).select(*keys, f.col("value").alias("before"))
    new = known.where(f.col("at") == after).select(*keys, f.col("value").alias("after"))
    both = old.select("replica").distinct().join(new.select("replica").distinct(), "replica")
    joined = old.join(new, keys, "full_outer").join(both, "replica", "left_semi")
    return joined.where(~f.col("before").eqNullSafe(f.col("after")))


def run(
    spark: SparkSession,
    stores: Sequence[str],
    out: str,
    *,
    at: int | None = None,
    between: tuple[int, int] | None = None,
) -> History:
    """Read stores, write the tables and tell what was found.

    Args:
        stores: directories of controllers of one group, optionally as ``name=directory``.
        out: directory of the tables.
        at: also the state at this index.
        between: also what the states at these two indexes differ in.

    Raises:
        ConfigInvalid: a path is no controller's store, or two have one name.
    """
    from pyspark.sql import functions as f

    named = named_stores(stores)
    rows = rows_of(
        spark.createDataFrame(named, "replica string, path string").repartition(len(named), "path")
    ).cache()
    with kept_table(spark, out, ENTRIES) as kept:
        here = entries(_with_compacted(rows, kept.rows(rows.schema)))
        kept.write(here, "replica", "segment")
    hurt = damage(rows)
    write_whole(hurt, out, DAMAGE)
    places = [
        tuple(row)
        for row in hurt.orderBy("replica", "segment", "position").limit(SHOWN_MAX).collect()
    ]
    counts = here.groupBy("replica", "kind", "status").agg(
        f.count("*"), f.min("logIndex"), f.max("logIndex")
    )
    kinds = tuple(tuple(row) for row in counts.orderBy("replica", "kind", "status").collect())
    ats = sorted({*([] if at is None else [at]), *(between or ())})
    told: dict[str, Any] = {}
    if ats:
        names = [name for name, _ in named]
        table_of_all = spark.read.schema(f"{ROWS.rsplit(',', 1)[0]}, status string").parquet(
            literal(table_path(spark, out, ENTRIES))
        )
        mine = table_of_all.where(f.col("replica").isin(names)).drop("status")
        again = entries(mine.withColumn("_corrupt", f.lit(None).cast("string")))
        told = _states_and_difference(states(again, ats).cache(), out, at, between)
    rows.unpersist()
    return History(
        kinds,
        tuple(one for one in places if one[4] != TORN),
        tuple(one for one in places if one[4] == TORN),
        **told,
    )


def _with_compacted(rows: DataFrame, known: DataFrame | None) -> DataFrame:
    """Records as well that an earlier run has seen in segments before those that are left.

    One that was only logged then may have been cut, or committed, by what this run has seen. Segments
    behind them are of a store that was there before this one.
    """
    from pyspark.sql import functions as f

    if known is None:
        return rows
    firsts = rows.groupBy("replica").agg(f.min("segment").alias("_first"))
    gone = known.join(firsts, "replica").where("segment < _first").drop("_first")
    return rows.unionByName(gone.withColumn("_corrupt", f.lit(None).cast("string")))


def named_stores(stores: Sequence[str]) -> list[tuple[str, str]]:
    """Name and absolute path of each.

    Raises:
        ConfigInvalid: a path is no controller's store, or two have one name.
    """
    named = named_paths(stores)
    return [(name, find_store(root)) for name, root in named]


def _states_and_difference(
    found: DataFrame, out: str, at: int | None, between: tuple[int, int] | None
) -> dict[str, Any]:
    from pyspark.sql import functions as f

    told: dict[str, Any] = {}
    lost = found.where("_unknown IS NOT NULL").orderBy("replica", "at")
    told["unknown"] = tuple((row.replica, row.at, row._unknown) for row in lost.collect())  # noqa: SLF001 - a column
    values = found.where("_unknown IS NULL").drop("_unknown")
    told["known"] = tuple(row.at for row in values.select("at").distinct().collect())
    if at is not None:
        one = values.where(f.col("at") == at)
        write_parts(one, out, STATE, "at")
        rows = one.orderBy("replica", "brokerSet", "key").limit(SHOWN_MAX).collect()
        told["state"] = tuple((r.replica, r.at, r.brokerSet, r.key, r.value) for r in rows)
    if between is not None:
        changed = difference(found, *between)
        named = changed.withColumn("from", f.lit(between[0])).withColumn("to", f.lit(between[1]))
        write_parts(named, out, DIFFERENCE, "from", "to")
        rows = changed.orderBy("replica", "brokerSet", "key").limit(SHOWN_MAX).collect()
        told["difference"] = tuple(tuple(row) for row in rows)
    found.unpersist()
    return told


def _read_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for store in batch.to_pylist():
            rows = (astuple(row) for row in read_store(store["path"], store["replica"]))
            yield from table_batches(rows, _ROWS)


class _States:
    """Travels to the workers with the indexes that are asked for."""

    def __init__(self, ats: Sequence[int]) -> None:
        self._ats = tuple(ats)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for replica, mine in groupby(rows, key=lambda row: str(row["replica"])):
            known = (Known(row["logIndex"], row["kind"], row["fields"]) for row in mine)
            found = ((replica, *astuple(one)) for one in facts(known, self._ats))
            yield from table_batches(found, _FACTS)


def report(stores: Sequence[str], found: History) -> str:
    """A page for people."""
    parts = [
        sentence(f"{', '.join(stores)}: {len(found.damaged)} damaged places."),
        table("Records", ("replica", "kind", "status", "rows", "first", "last"), found.kinds),
    ]
    places = ("replica", "file", "position", "bytes", "why")
    if found.damaged or found.torn:
        parts.append(table("What cannot be read", places, (*found.damaged, *found.torn)))
    if found.unknown:
        parts.append(table("Not known", ("replica", "index", "why"), found.unknown))
    if found.state:
        parts.append(table("State", ("replica", "index", "set", "key", "value"), found.state))
    if found.difference:
        names = ("replica", "set", "key", "before", "after")
        parts.append(table("Difference", names, found.difference))
    return page("controller history", *parts)
