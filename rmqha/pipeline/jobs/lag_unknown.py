"""Lags that nobody knows, told from queues in which nobody can read any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from rmqha.pipeline.commitlog.progress import configured_topics
from rmqha.pipeline.jobs.report_page import SHOWN_MAX
from rmqha.pipeline.jobs.tables import batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IN_LOG = "inLog"
"""Whether the log has messages of a queue."""
CONFIGURED = "replica string, topic string"
"""Topics of stores; a row without one: which ones a store has cannot be read."""
_CONFIGURED = pa.schema([("replica", pa.string()), ("topic", pa.string())])


def configured_of(stores: DataFrame) -> DataFrame:
    """The topics that stores (columns ``replica`` and ``path``) are configured for."""
    return stores.mapInArrow(_configured_batches, CONFIGURED)


def unknown(
    offsets: DataFrame, queues: DataFrame, ends: DataFrame, configured: DataFrame
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """``Found.unknown`` and ``Found.over`` of what ``offsets_of``, ``behind``, ``ends_of`` and
    ``configured_of`` give.

    A queue that no message ever came to has no folder, and groups are at its offset 0. One whose
    messages have all expired has none any more (Java deletes it, as of a retry topic that is seldom
    used), nor has a topic that was deleted, whose messages are in the log for some days, and whose
    offsets for good: nobody can read more there. A queue that the log has messages of is a loss.
    """
    from pyspark.sql import functions as f

    said = "%s is at %d in queue %d of %s"
    place = ("consumerGroup", "consumerOffset", "queueId", "topic")
    gone = queues.where("consumerOffset > 0 AND endOffset IS NULL")
    of_store = configured.groupBy("replica").agg(
        f.collect_set("topic").alias("_topics"), f.count_if(f.isnull("topic")).alias("_unread")
    )
    stored = ends.where("queueId IS NOT NULL").select("replica", "topic").distinct()
    gone = gone.join(of_store, "replica", "left").join(
        stored.withColumn("_stored", f.expr("true")), ["replica", "topic"], "left"
    )
    is_retired = "_stored IS NULL AND _unread = 0 AND NOT array_contains(_topics, topic)"
    is_over = f.expr(f"NOT {IN_LOG} OR coalesce({is_retired}, false)")
    hurt = offsets.where("_corrupt IS NOT NULL AND NOT isServed")
    lost = hurt.select("replica", f.col("_corrupt").alias("why")).union(
        gone.where(~is_over).select(
            "replica", f.format_string(said + ", and where that ends is not known", *place)
        )
    )
    over = gone.where(is_over).select(
        "replica", f.format_string(said + ", which is there no more", *place).alias("why")
    )
    return _first_rows(lost), _first_rows(over)


def _first_rows(found: DataFrame) -> tuple[tuple[str, str], ...]:
    rows = found.orderBy("replica", "why").limit(SHOWN_MAX).collect()
    return tuple((row[0], row[1]) for row in rows)


def _configured_batches(batches_in: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches_in:
        for store in batch.to_pylist():
            topics = configured_topics(store["path"])
            rows = [(store["replica"], one) for one in ([None] if topics is None else topics)]
            yield from batches(rows, _CONFIGURED)
