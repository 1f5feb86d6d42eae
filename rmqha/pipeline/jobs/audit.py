"""Do the replicas of a broker set hold the same log? Where they do not, which message is it?

Hashes of ranges are made in the workers; only of ranges that differ are the records compared.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import astuple

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.commitlog.compare import (
    GONE,
    RANGE_BYTES,
    Difference,
    Plan,
    Range,
    Seen,
    Span,
    alone,
    differences,
    hash_of,
    nameless,
    plan_ranges,
    records_of,
)
from rmqha.pipeline.commitlog.distinct import distinct
from rmqha.pipeline.commitlog.store_folder import StoreFolder, open_replica, split_store
from rmqha.pipeline.jobs.report_page import SHOWN_MAX, page, sentence, table
from rmqha.pipeline.spark.session import is_connect
from rmqha.pipeline.spark.worker import freeze_modules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RANGES = "replica int, epoch int, start bigint, stop bigint, path string, base bigint"
HASHES = "start bigint, stop bigint, epoch int, hash string"
RECORDS = (
    "replica int, epoch int, physical_offset bigint, size int, topic string, queue_id int,"
    " queue_offset bigint, checksum bigint, corrupt string"
)
SEED_BYTES = 16
TASKS_PER_CORE = 4
CORES_UNKNOWN = 8


class Hashed(NamedTuple):
    """A range of one replica: in which epoch it lies there, and the hash of its bytes."""

    start: int
    stop: int
    epoch: int | None
    hash: str


class Audit(Struct, frozen=True):
    """What was found.

    Attributes:
        plan: what was compared.
        ranges_compared: ranges that at least two replicas have.
        ranges_different: (start, stop) of those whose bytes or epochs differ.
        differences: message by message, the first ``SHOWN_MAX``.
        nameless: those of ``ranges_different`` in which none of these messages is.
        alone: names of the stores that have no range that another has, so that nothing of them was
            compared.
    """

    plan: Plan
    ranges_compared: int
    ranges_different: tuple[tuple[int, int], ...]
    differences: tuple[Difference, ...]
    nameless: tuple[Span, ...] = ()
    alone: tuple[str, ...] = ()


def hashes(numbers: DataFrame, ranges: Sequence[Range], seed: bytes) -> DataFrame:
    """The ranges with the hashes of their bytes, made where the bytes are read.

    Nothing is shuffled: a task takes the ranges of the numbers in its partition.

    Args:
        numbers: one column, indexes into ``ranges``.
        ranges: travels with the function to the workers.
        seed: hashes of one seed can be compared.
    """
    return numbers.mapInArrow(_Hashes(tuple(ranges), seed), HASHES)


def different(hashed: Iterable[Hashed]) -> tuple[int, list[tuple[int, int]]]:
    """How many ranges at least two replicas have, and those whose bytes or epochs differ.

    What expired while the audit ran is none that a replica has.
    """
    by_range: dict[tuple[int, int], list[Hashed]] = {}
    for one in hashed:
        if one.hash == GONE:
            continue
        by_range.setdefault((one.start, one.stop), []).append(one)
    compared = {place: found for place, found in by_range.items() if len(found) > 1}
    bad = [
        place
        for place, found in compared.items()
        if len({one.hash for one in found}) > 1
        or len({one.epoch for one in found if one.epoch is not None}) > 1
    ]
    return len(compared), sorted(bad)


def opened(stores: Sequence[str]) -> list[StoreFolder]:
    """Open stores that are to be compared.

    Args:
        stores: directories, optionally as ``name=directory``.

    Raises:
        ConfigInvalid: fewer than two stores, one that is given twice, or a path that is none.
        StoreCorrupted: an identity or epoch file is damaged.
    """
    if len(stores) < 2:
        raise ConfigInvalid("an audit compares at least two stores")
    return [open_replica(root, name) for name, root in distinct([*map(split_store, stores)])]


def run(
    spark: SparkSession,
    stores: Sequence[str],
    *,
    up_to: int | None = None,
    range_bytes: int = RANGE_BYTES,
) -> Audit:
    """Compare stores of one broker set.

    Args:
        stores: directories, optionally as ``name=directory``.
        up_to: an offset; by default the highest confirm offset that a checkpoint tells.
        range_bytes: size of a range.

    Raises:
        ConfigInvalid, StoreCorrupted: as ``opened``.
    """
    replicas = opened(stores)
    plan = plan_ranges(replicas, up_to=up_to, range_bytes=range_bytes)
    spans = [
        [(one.start, one.stop) for one in plan.ranges if one.replica == index]
        for index in range(len(replicas))
    ]
    lonely = tuple(replicas[index].name for index in alone(spans))
    if not plan.ranges:
        return Audit(plan, 0, (), (), alone=lonely)
    count = len(plan.ranges)
    # A client of Spark Connect is not told how many cores there are.
    cores = CORES_UNKNOWN if is_connect(spark) else spark.sparkContext.defaultParallelism
    tasks = min(count, TASKS_PER_CORE * cores)
    numbers = spark.range(0, count, 1, tasks)
    hashed = hashes(numbers, plan.ranges, secrets.token_bytes(SEED_BYTES)).collect()
    compared, bad = different(Hashed(*row) for row in hashed)
    found, looked = _by_message(spark, replicas, plan, bad)
    told = tuple(nameless(bad[:looked], found))
    return Audit(plan, compared, tuple(bad), tuple(found[:SHOWN_MAX]), told, lonely)


def _by_message(
    spark: SparkSession, replicas: list[StoreFolder], plan: Plan, bad: list[tuple[int, int]]
) -> tuple[list[Difference], int]:
    """Range by range, so that never more than two replicas' records of one are in memory.

    Returns:
        What differs, and in how many of the ranges that was looked for: enough is enough.
    """
    names = [one.name for one in replicas]
    found: dict[int, Difference] = {}
    looked = 0
    for start, _ in bad:
        if len(found) >= SHOWN_MAX:
            break
        looked += 1
        chosen = [one for one in plan.ranges if one.start == start]
        rows = spark.createDataFrame([astuple(one) for one in chosen], RANGES)
        seen = rows.repartition(len(chosen), "replica").mapInArrow(_Records(replicas), RECORDS)
        # A message that crosses an edge between two such ranges is seen with both.
        present = sorted(one.replica for one in chosen)
        for one in differences((Seen(*row) for row in seen.collect()), names, present):
            found.setdefault(one.physical_offset, one)
    return sorted(found.values(), key=lambda one: one.physical_offset), looked


class _Hashes:
    """Travels to the workers with the ranges and the audit's seed."""

    def __init__(self, ranges: tuple[Range, ...], seed: bytes) -> None:
        self._ranges = ranges
        self._seed = seed

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            chosen = [self._ranges[number] for number in batch.column(0).to_pylist()]
            rows = [(one.start, one.stop, one.epoch, hash_of(one, self._seed)) for one in chosen]
            yield pa.RecordBatch.from_pylist(
                [dict(zip(_HASHED.names, row, strict=True)) for row in rows], _HASHED
            )
        freeze_modules()


class _Records:
    """Travels to the workers with what they need to know of the stores."""

    def __init__(self, replicas: list[StoreFolder]) -> None:
        self._replicas = replicas

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                one = Range(**row)
                seen: list[Any] = list(records_of(self._replicas[one.replica], one))
                if seen:
                    yield pa.RecordBatch.from_pylist([_plain(item) for item in seen], _SEEN)


_HASHED = pa.schema(
    [("start", pa.int64()), ("stop", pa.int64()), ("epoch", pa.int32()), ("hash", pa.string())]
)
_SEEN = pa.schema(
    [
        ("replica", pa.int32()), ("epoch", pa.int32()), ("physical_offset", pa.int64()),
        ("size", pa.int32()), ("topic", pa.string()), ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()), ("checksum", pa.int64()), ("corrupt", pa.string()),
    ]
)  # fmt: skip


def _plain(item: Seen) -> dict[str, Any]:
    return dict(zip(item.__struct_fields__, astuple(item), strict=True))


def report(stores: Sequence[str], audit: Audit) -> str:
    """A page for people."""
    plan = audit.plan
    parts = [
        sentence(
            f"{_verdict(audit)}. {', '.join(stores)}: bytes {plan.low} to {plan.high},"
            f" {audit.ranges_compared} ranges, {len(audit.ranges_different)} differ."
        ),
        table(
            "Differences",
            ("offset", "topic", "queue", "queue offset", "epochs", "who has what"),
            (
                (one.physical_offset, one.topic, one.queue_id, one.queue_offset,
                 ", ".join(map(str, one.epochs)), one.what)
                for one in audit.differences
            ),
        ),
    ]  # fmt: skip
    if audit.nameless:
        shown = audit.nameless[:SHOWN_MAX]
        parts.append(table("Bytes that differ, with no message named", ("from", "to"), shown))
    return page("replica audit", *parts)


def _verdict(audit: Audit) -> str:
    if audit.ranges_different:
        return "The replicas differ"
    if not audit.ranges_compared:
        return "Nothing was compared"
    if audit.alone:
        return f"The others are equal; nothing of {', '.join(audit.alone)} was compared"
    return "The replicas are equal"
