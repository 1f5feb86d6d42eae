"""What became of every message, by the histories of the clients that sent and read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import astuple

from rmqha.pipeline.histories.clients import LONGER_THAN_MS, check_history, read_history
from rmqha.pipeline.jobs.history_findings import FOUND_SCHEMA, Finding, findings
from rmqha.pipeline.jobs.report_page import SHOWN_MAX, moment, page, sentence, table
from rmqha.pipeline.jobs.tables import batches, named_paths, write_whole
from rmqha.pipeline.spark.progress import row_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS, FINDINGS, DAMAGE = "events", "findings", "_corrupt"
ROWS = (
    "history string, line bigint, op string, client string, n bigint, topic string, key string,"
    " attempt bigint, broker string, queue bigint, offset bigint, startMs bigint, endMs bigint,"
    " reason string, _corrupt string"
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
_HEADS = {"startMs": "from (UTC)", "endMs": "to (UTC)"}


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

    def is_bad(self, *, unread_ok: bool) -> bool:
        """Whether a message is gone that was acknowledged or shown.

        Args:
            unread_ok: what reading did not come to is pardoned.
        """
        lost = self.counts.get("lost", 0) - (self.unread if unread_ok else 0)
        return lost > 0 or self.counts.get("conflict", 0) > 0


def rows_of(files: DataFrame) -> DataFrame:
    """Every line of histories (columns ``history`` and ``path``)."""
    return files.mapInArrow(row_count(files.sparkSession).of(_read_batches), ROWS)


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


def report(files: Sequence[str], checked: Checked) -> str:
    """A page for people."""
    counts = ", ".join(f"{count} {kind}" for kind, count in checked.counts.items())
    records = ", ".join(f"{count} {op}" for op, count in checked.records.items())
    parts = [
        sentence(f"{', '.join(files)}: {records or 'no records'}."),
        sentence(f"{counts or 'Nothing is wrong'}; {checked.damaged} damaged lines."),
        table(
            "Findings", [_HEADS.get(field.name, field.name) for field in FOUND_SCHEMA],
            (
                (*astuple(one)[:-3], moment(one.start_ms), moment(one.end_ms), one.detail)
                for one in checked.findings
            ),
        ),
    ]  # fmt: skip
    if checked.damaged_lines:
        parts.append(table("Damaged lines", ("history", "line", "why"), checked.damaged_lines))
    return page("history check", *parts)
