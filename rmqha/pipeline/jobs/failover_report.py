"""Every election of a master with the time of each of its stages, from the logs of all nodes.

A stage that no log tells of is null. Times are of the clocks of the machines that wrote them:
where these differ, stages of different nodes do, too.

===================== ============= =========================================================
column                whose log
===================== ============= =========================================================
``lastWriteMs``       history       the last acknowledgement before the election
``lostMs``            controller    the old master counts as dead
``electedMs``         controller    the new one is elected: on a quorum's disks, and applied
``notifiedMs``        controller    the new master was told
``activeMs``          new master    it serves as master
``registeredMs``      new master    a name server has taken its registration
``listedMs``          name server   it lists the new master
``routedMs``          controller    it has seen that
``slavesNotifiedMs``  controller    the last slave was told
``slavesConnectedMs`` slaves        the last one that was running receives from the new master
``joinedMs``          controller    the SyncStateSet grew for the first time
``firstWriteMs``      history       the first acknowledgement of the new master
===================== ============= =========================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import astuple

from rmqha.pipeline.histories.clients import check_history
from rmqha.pipeline.histories.failover_log import check_log, read_log
from rmqha.pipeline.jobs import charts, history_check
from rmqha.pipeline.jobs.report_page import SHOWN_MAX, chart, moment, page, sentence, table
from rmqha.pipeline.jobs.tables import batches, kept_table, named_paths, write_whole
from rmqha.pipeline.spark.paths import literal
from rmqha.pipeline.spark.progress import row_count

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FAILOVERS, DAMAGE = "failovers", "_corrupt"
STAGES = (
    "lastWriteMs", "lostMs", "electedMs", "notifiedMs", "activeMs", "registeredMs", "listedMs",
    "routedMs", "slavesNotifiedMs", "slavesConnectedMs", "joinedMs", "firstWriteMs",
)  # fmt: skip
MARKS = (
    "source string, line bigint, ms bigint, mark string, brokerSet string, epoch bigint,"
    " masterAddress string, address string, brokerId bigint, fresh boolean, detail string,"
    " _corrupt string"
)
DETAIL = (
    "oldMaster bigint, oldEpoch bigint, trigger string, reason string, unclean boolean,"
    " waitedMs bigint, commitMs bigint, logIndex bigint"
)
_TEXT, _NUMBER = pa.string(), pa.int64()
_MARKS = pa.schema(
    [
        ("source", _TEXT), ("line", _NUMBER), ("ms", _NUMBER), ("mark", _TEXT),
        ("brokerSet", _TEXT), ("epoch", _NUMBER), ("masterAddress", _TEXT), ("address", _TEXT),
        ("brokerId", _NUMBER), ("fresh", pa.bool_()), ("detail", _TEXT), ("_corrupt", _TEXT),
    ]
)  # fmt: skip


class Failover(Struct, frozen=True):
    """One election; ``stages`` are milliseconds since 1970 in the order of ``STAGES``."""

    broker_set: str
    master_epoch: int
    old_master: int | None
    new_master: int | None
    trigger: str | None
    reason: str | None
    unclean: bool | None
    slaves_connected: int
    stages: tuple[int | None, ...]


class Report(Struct, frozen=True):
    """What a run found.

    Attributes:
        failovers: the first ``SHOWN_MAX``.
        damaged: lines that cannot be read.
        damaged_lines: (log, line, why), the first ``SHOWN_MAX``.
        left_out: (log, what): lines that a log itself dropped in a storm.
    """

    failovers: tuple[Failover, ...]
    damaged: int
    damaged_lines: tuple[tuple[str, int, str], ...]
    left_out: tuple[tuple[str, str], ...]


def marks_of(logs: DataFrame) -> DataFrame:
    """What logs (columns ``source`` and ``path``) tell of failovers."""
    return logs.mapInArrow(row_count(logs.sparkSession).of(_read_batches), MARKS)


def elections(marks: DataFrame, entries: DataFrame | None = None) -> DataFrame:
    """One row an election, of lines and of the controllers' own log.

    Args:
        marks: made by ``marks_of``.
        entries: made by ``controller-history``: elections that no line tells of any more.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    told = f.from_json("detail", DETAIL)
    lines = marks.where("mark = 'elected'").withColumn("d", told)
    first = Window.partitionBy("brokerSet", "epoch").orderBy("ms", "source", "line")
    found = lines.withColumn("_order", f.row_number().over(first)).where("_order = 1").select(
        "brokerSet", "epoch", f.col("ms").alias("electedMs"), "masterAddress",
        f.col("brokerId").alias("newMaster"), "d.*",
    )  # fmt: skip
    if entries is not None:
        event = f.from_json(
            "fields",
            "new_master_broker_id bigint, master_epoch bigint, trigger string, reason string,"
            " unclean boolean",
        )
        known = entries.where("kind = 'ElectMaster' AND status <> 'cut'").withColumn("e", event)
        known = known.select(
            "brokerSet", f.col("e.master_epoch").alias("epoch"),
            f.col("e.new_master_broker_id").alias("newMaster"), "e.trigger", "e.reason",
            "e.unclean", "logIndex",
        ).dropDuplicates(["brokerSet", "epoch"])  # fmt: skip
        more = known.join(found, ["brokerSet", "epoch"], "left_anti")
        found = found.unionByName(more, allowMissingColumns=True)
    order = Window.partitionBy("brokerSet").orderBy("epoch")
    return found.withColumn("_beforeMs", f.lag("electedMs").over(order)).withColumn(
        "_afterMs", f.lead("electedMs").over(order)
    )


def failovers(
    marks: DataFrame, acks: DataFrame | None = None, entries: DataFrame | None = None
) -> DataFrame:
    """Elections with the times of their stages.

    Args:
        marks: made by ``marks_of``.
        acks: acknowledgements of clients (``broker``, ``startMs``, ``endMs``).
        entries: as for ``elections``.
    """
    from pyspark.sql import functions as f

    found = elections(marks, entries).cache()
    keys = ["brokerSet", "epoch"]
    for part in (_lost(found, marks), _by_master(found, marks), _by_set(found, marks)):
        found = found.join(part, keys, "left")
    if acks is not None:
        found = found.join(_writes(found, acks), keys, "left")
    else:
        nothing = f.lit(None).cast("bigint")
        found = found.withColumn("lastWriteMs", nothing).withColumn("firstWriteMs", nothing)
    return found.select(
        "brokerSet", f.col("epoch").alias("masterEpoch"), "oldMaster", "newMaster",
        "masterAddress", "trigger", "reason", "unclean", "waitedMs", "commitMs", "logIndex",
        f.coalesce("slavesConnected", f.lit(0)).alias("slavesConnected"), *STAGES,
    )  # fmt: skip


def _lost(found: DataFrame, marks: DataFrame) -> DataFrame:
    """When the old master was first counted as dead, since the election before."""
    from pyspark.sql import functions as f

    lost = marks.where("mark = 'lost'").select("brokerSet", "brokerId", "ms")
    joined = found.join(lost, "brokerSet").where(
        "brokerId = oldMaster AND ms <= electedMs AND (_beforeMs IS NULL OR ms >= _beforeMs)"
    )
    return joined.groupBy("brokerSet", "epoch").agg(f.min("ms").alias("lostMs"))


def _by_master(found: DataFrame, marks: DataFrame) -> DataFrame:
    """Stages whose lines name the new master's address and epoch."""
    from pyspark.sql import functions as f

    told = marks.where("mark IN ('notified', 'active', 'registered', 'connected')")
    told = told.select("source", "mark", "masterAddress", "epoch", "address", "ms", "fresh")
    wanted = found.select("brokerSet", "epoch", "masterAddress", "oldMaster")
    joined = wanted.join(told, ["masterAddress", "epoch"])
    # A replica that starts later joins an old failover: at a first election all have just started.
    running = "mark = 'connected' AND (NOT fresh OR oldMaster IS NULL)"
    slaves = (
        joined.where(running).groupBy("brokerSet", "epoch", "source").agg(f.min("ms").alias("ms"))
    )
    connected = slaves.groupBy("brokerSet", "epoch").agg(
        f.max("ms").alias("slavesConnectedMs"), f.count("*").alias("slavesConnected")
    )

    def first(condition: str, name: str) -> Column:
        return f.min(f.when(f.expr(condition), f.col("ms"))).alias(name)

    others = joined.groupBy("brokerSet", "epoch").agg(
        first("mark = 'notified' AND address = masterAddress", "notifiedMs"),
        first("mark = 'active'", "activeMs"),
        first("mark = 'registered'", "registeredMs"),
    )
    told_slaves = joined.where("mark = 'notified' AND address <> masterAddress")
    each = told_slaves.groupBy("brokerSet", "epoch", "address").agg(f.min("ms").alias("ms"))
    last = each.groupBy("brokerSet", "epoch").agg(f.max("ms").alias("slavesNotifiedMs"))
    keys = ["brokerSet", "epoch"]
    return others.join(connected, keys, "left").join(last, keys, "left")


def _by_set(found: DataFrame, marks: DataFrame) -> DataFrame:
    """Stages whose lines name the set and the epoch."""
    from pyspark.sql import functions as f

    keys = ["brokerSet", "epoch"]
    told = marks.where("mark IN ('routed', 'listed', 'joined')").select(*keys, "mark", "ms")
    made = [
        f.min(f.when(f.col("mark") == mark, f.col("ms"))).alias(f"{mark}Ms")
        for mark in ("routed", "listed", "joined")
    ]
    return found.select(*keys).join(told, keys).groupBy(*keys).agg(*made)


def _writes(found: DataFrame, acks: DataFrame) -> DataFrame:
    """The acknowledgements around an election, none of another election's time."""
    from pyspark.sql import functions as f

    since = f.coalesce("activeMs", "electedMs")
    rows = found.select(
        "brokerSet", "epoch", since.alias("_sinceMs"), "electedMs", "_beforeMs", "_afterMs"
    ).where("electedMs IS NOT NULL")
    told = acks.select(f.col("broker").alias("brokerSet"), "endMs")
    joined = rows.join(told, "brokerSet")
    after = f.expr("endMs >= _sinceMs AND (_afterMs IS NULL OR endMs < _afterMs)")
    before = f.expr("endMs < electedMs AND (_beforeMs IS NULL OR endMs >= _beforeMs)")
    return joined.groupBy("brokerSet", "epoch").agg(
        f.max(f.when(before, f.col("endMs"))).alias("lastWriteMs"),
        f.min(f.when(after, f.col("endMs"))).alias("firstWriteMs"),
    )


def run(
    spark: SparkSession,
    logs: Sequence[str],
    out: str,
    *,
    histories: Sequence[str] = (),
    entries: str | None = None,
) -> Report:
    """Read logs, write the table and tell what was found.

    Args:
        logs: of controllers, and of brokers and name servers where there are any; optionally
            as ``name=file``.
        out: directory of the table.
        histories: of clients, for the last write before and the first after.
        entries: directory that ``controller-history`` has written.

    Raises:
        ConfigInvalid: a file is not what it should be.
    """
    named, clients = checked_files(logs, histories)
    rows = spark.createDataFrame(named, "source string, path string")
    marks = marks_of(rows.repartition(len(named), "path")).cache()
    acks = None
    if clients:
        files = spark.createDataFrame(clients, "history string, path string")
        acks = history_check.rows_of(files.repartition(len(clients), "path")).where("op = 'ack'")
    known = None if entries is None else spark.read.parquet(literal(entries))
    found = failovers(marks.where("_corrupt IS NULL"), acks, known).cache()
    with kept_table(spark, out, FAILOVERS) as kept:
        told = with_known(found, kept.rows(found.schema))
        kept.write(told, "brokerSet", "masterEpoch")
    hurt = marks.where("_corrupt IS NOT NULL").select("source", "line", "_corrupt")
    write_whole(hurt, out, DAMAGE)
    left_out = marks.where("mark = 'left_out'").select("source", "detail").distinct()
    report_rows = found.orderBy("electedMs", "brokerSet", "masterEpoch").limit(SHOWN_MAX).collect()
    lines = hurt.orderBy("source", "line").limit(SHOWN_MAX).collect()
    made = Report(
        tuple(
            Failover(
                row.brokerSet, row.masterEpoch, row.oldMaster, row.newMaster, row.trigger,
                row.reason, row.unclean, row.slavesConnected,
                tuple(row[name] for name in STAGES),
            )
            for row in report_rows
        ),
        hurt.count() if len(lines) == SHOWN_MAX else len(lines),
        tuple(tuple(row) for row in lines),
        tuple(tuple(row) for row in left_out.orderBy("source", "detail").collect()),
    )  # fmt: skip
    for frame in (marks, found):
        frame.unpersist()
    return made


def with_known(found: DataFrame, known: DataFrame | None) -> DataFrame:
    """What earlier runs knew of a failover, where this one's logs do not tell it any more."""
    from pyspark.sql import functions as f

    if known is None:
        return found
    keys = ["brokerSet", "masterEpoch"]
    others = [name for name in found.columns if name not in keys]
    older = known.select(*keys, *(f.col(name).alias(f"_{name}") for name in others))
    more = f.greatest("slavesConnected", f.coalesce("_slavesConnected", f.lit(0)))
    told = [
        more.alias(name) if name == "slavesConnected" else f.coalesce(name, f"_{name}").alias(name)
        for name in others
    ]
    return found.join(older, keys, "left").select(*keys, *told)


def checked_files(
    logs: Sequence[str], histories: Sequence[str]
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Names and absolute paths of logs and of histories.

    Raises:
        ConfigInvalid: a file is not what it should be, or two have one name.
    """
    named, clients = named_paths(logs), named_paths(histories)
    for _, path in named:
        check_log(path)
    for _, path in clients:
        check_history(path)
    return named, clients


def _read_batches(batches_in: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches_in:
        for one in batch.to_pylist():
            rows = (astuple(mark) for mark in read_log(one["path"], one["source"]))
            yield from batches(rows, _MARKS)


def begin_ms(one: Failover) -> int | None:
    """What the other stages are counted from: the old master lost, else the election."""
    stages = dict(zip(STAGES, one.stages, strict=True))
    return stages["lostMs"] if stages["lostMs"] is not None else stages["electedMs"]


def after_ms(one: Failover) -> tuple[int | None, ...]:
    """The stages, counted from ``begin_ms``."""
    begin = begin_ms(one)
    return tuple(None if at is None or begin is None else at - begin for at in one.stages)


def _timeline(found: Report, names: Sequence[str]) -> list[str]:
    """A chart of the newest elections of which some stage is known."""
    known = [one for one in found.failovers if begin_ms(one) is not None]
    newest = sorted(known, key=lambda one: -(begin_ms(one) or 0))[: charts.ROWS_MAX]
    rows = [
        charts.Stages(
            f"{one.broker_set} epoch {one.master_epoch}",
            [(name, at) for name, at in zip(names, after_ms(one), strict=True) if at is not None],
        )
        for one in newest
    ]
    return [chart("Timeline", charts.timeline(rows))] if rows else []


def report(logs: Sequence[str], found: Report) -> str:
    """A page for people."""
    names = tuple(name.removesuffix("Ms") for name in STAGES)
    lines = (
        (
            one.broker_set, one.master_epoch, one.old_master, one.new_master, one.reason,
            "yes" if one.unclean else "", moment(begin_ms(one)), *after_ms(one),
        )
        for one in found.failovers
    )  # fmt: skip
    parts = [
        sentence(f"{', '.join(logs)}: {found.damaged} lines that cannot be read."),
        sentence("Stages in milliseconds since the old master counted as dead (else elected)."),
        *_timeline(found, names),
        table(
            "Elections",
            ("set", "epoch", "old", "new", "reason", "unclean", "began (UTC)", *names),
            lines,
        ),
    ]
    if found.left_out:
        parts.append(table("Left out by the logs themselves", ("log", "what"), found.left_out))
    if found.damaged_lines:
        parts.append(table("Cannot be read", ("log", "line", "why"), found.damaged_lines))
    return page("failovers", *parts)
