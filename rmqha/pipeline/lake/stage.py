"""What an export read, written where no reader looks: by Spark's workers, each cell by one task.

A task tells which files it has finished, as rows of ``cells.MANIFEST``, and Spark takes the rows of
one attempt at each task. So a task that died, was run again, or ran twice at once (speculation) adds
nothing and loses nothing: only files that are told of are published.

Where the workers cannot open the lake's file system themselves, Spark's own writer has to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from rmqha.base.errors import ConfigInvalid
from rmqha.base.invariants import invariant
from rmqha.pipeline.commitlog.store_folder import log_begin
from rmqha.pipeline.lake import rows as lake_rows
from rmqha.pipeline.lake.cells import MANIFEST, ROTTEN, CellWork, write_cell
from rmqha.pipeline.lake.files import LakeFiles
from rmqha.pipeline.lake.layout import Place, topic_folder
from rmqha.pipeline.lake.parquet_out import CODEC
from rmqha.pipeline.spark.progress import row_count
from rmqha.pipeline.spark.times import as_micros
from rmqha.pipeline.spark.worker import RowCount, freeze_modules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, Row, SparkSession
    from pyspark.sql.types import StructType

DAMAGED = "replica string, physicalOffset bigint, size int, _corrupt string"
Damage = tuple[str, int, int, str]
"""Replica, physical offset, size and reason."""
Day = tuple[str, str]
"""Topic and day."""


class Staged(Struct, frozen=True):
    """What is written and not yet seen.

    Attributes:
        files: paths below the lake, by what they hold.
        messages, log_bytes: of each file.
        days: topic and day of each file.
        damage: ranges of the log without records, and records with rotten bodies.
        refused: messages of topics that no folder can be named after; they are not written.
    """

    files: dict[Place, str]
    messages: dict[Place, int]
    log_bytes: dict[Place, int]
    days: dict[Place, Day]
    damage: list[Damage]
    refused: Counter[str]

    @property
    def has_rotten(self) -> bool:
        """Whether some of the rows have bodies that nobody sent."""
        return any(reason == ROTTEN for *_, reason in self.damage)

    def sums(self, places: Iterable[Place]) -> dict[Day, tuple[int, int]]:
        """Messages and their bytes in the log by topic and day, of some files."""
        messages: Counter[Day] = Counter()
        sizes: Counter[Day] = Counter()
        for at in places:
            messages[self.days[at]] += self.messages[at]
            sizes[self.days[at]] += self.log_bytes[at]
        return {day: (messages[day], sizes[day]) for day in messages}


def stage(spark: SparkSession, work: CellWork, folder: str) -> Staged:
    """Have the workers read the log once and write its cells.

    Args:
        work: what is written; its folder is one of the lake.
        folder: the same, below the lake.
    """
    cells = work.cells
    if not cells:
        return staged([], folder)
    # A row for each cell, in a task of its own: the range is cut evenly.
    numbers = spark.range(0, len(cells), 1, len(cells))
    task = _task(work, cells, row_count(spark))
    return staged(numbers.mapInArrow(task, _schema()).collect(), folder)


def staged(rows: Iterable[Row], folder: str) -> Staged:
    """What tasks have told, of paths below a folder of the lake."""
    found = Staged({}, {}, {}, {}, [], Counter())
    for row in rows:
        if row.path is None and row.topic is not None:
            found.refused[row.topic] += row.messages
            continue
        if row.path is None:
            found.damage.append((row.replica, row.physicalOffset, row.size, row["_corrupt"]))
            continue
        at = Place(f"{topic_folder(row.topic)}/day={row.day}", row.cell)
        invariant(at not in found.files, "a cell of an export has two files", place=at)
        found.files[at] = f"{folder}/{row.path}"
        found.messages[at] = row.messages
        found.log_bytes[at] = row.bytes
        found.days[at] = (row.topic, row.day)
    return found


def _task(
    work: CellWork, cells: list[int], rows: RowCount
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                manifest = write_cell(work, cells[number])
                rows.add(pc.sum(manifest.column("messages")).as_py() or 0)
                yield manifest
        freeze_modules()

    return run


def _schema() -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(MANIFEST)


def stage_by_spark(
    spark: SparkSession, store: str, work: CellWork, files: LakeFiles, folder: str
) -> Staged:
    """As ``stage``, through Spark's rows and its writer; the log is read twice.

    Args:
        store: as the source is to be told.

    Raises:
        ConfigInvalid: files of the log expired between the two times.
    """
    if not work.cells:
        return staged([], folder)
    chosen = {"physicalOffset": f"-{work.end - 1}", "upTo": str(work.end)}
    done = staged([], folder)
    unnamable = lake_rows.is_unnamable(files.name_bytes_max)
    hurt = _log(spark, chosen).schema(f"{DAMAGED}, topic string").load(store)
    for row in _untaken(hurt.where(f"physicalOffset < {work.end}"), unnamable):
        if row.topic is None:
            done.damage.append((row.replica, row.physicalOffset, row.size, row["_corrupt"]))
        elif work.topics is None or row.topic in work.topics:
            done.refused[row.topic] = row["count"]
    if work.topics is not None:
        chosen["topic"] = ",".join(sorted(work.topics))
    log = _log(spark, {**chosen, "includeBody": str(work.bodies).lower()}).load(store)
    rows = lake_rows.of_set(lake_rows.whole(log).where(~unnamable), work.name)
    # Several tasks read of one cell: each would write a file of it.
    rows = lake_rows.in_cells(rows, work.cell_bytes).repartition(len(work.cells), "cell")
    found = write_by_spark(rows, files, folder)
    _refuse_expired(work)
    paths = [f"{files.root}/{one}" for one in found.values()]
    told = lake_rows.cell_sums(spark, f"{files.root}/{folder}", paths) if paths else []
    for topic, day, cell, messages, size in told:
        at = Place(f"{topic_folder(topic)}/day={day}", cell)
        done.files[at], done.days[at] = found[at], (topic, day)
        done.messages[at], done.log_bytes[at] = messages, size
    if paths:
        hurt = lake_rows.rotten(spark, paths).select("replica", "physicalOffset", "size")
        done.damage.extend((*row, ROTTEN) for row in hurt.collect())
    return done


def _untaken(log: DataFrame, unnamable: Column) -> list[Row]:
    """Damaged ranges one by one, without a topic, and the messages of topics without a folder by
    topic, counted: all of it by going through the log once."""
    from pyspark.sql import functions as f

    is_hurt = f.col("_corrupt").isNotNull()
    names = [one.split()[0] for one in DAMAGED.split(", ")]
    places = [f.when(is_hurt, f.col(one)).alias(one) for one in names]
    rows = log.where(is_hurt | unnamable).select(*places, "topic")
    return rows.groupBy(*names, "topic").count().collect()


def _refuse_expired(work: CellWork) -> None:
    """What was there when damage was looked for and not when rows were read would count as read, and
    the lake would lose the rows that it has of it."""
    begin = log_begin(work.replica.root)
    gone = [one.path for one in work.replica.files if one.base < begin]
    if gone:
        raise ConfigInvalid(
            f"{gone[0]} expired while it was read for a lake that only Spark can write to."
            " Nothing was written; run the export again"
        )


def _log(spark: SparkSession, options: Mapping[str, str]) -> DataFrameReader:
    return spark.read.format("rocketmq-commitlog").options(**options)


def write_by_spark(rows: DataFrame, files: LakeFiles, folder: str) -> dict[Place, str]:
    """Write rows by topic, day and cell below a folder of the lake; the files by what they hold."""
    writer = lake_rows.in_order(rows).write.option("maxRecordsPerFile", 0)
    writer = writer.option("compression", CODEC).partitionBy(*lake_rows.FOLDERS)
    with as_micros(rows.sparkSession):
        writer.parquet(f"{files.root}/{folder}")
    found: dict[Place, str] = {}
    for one in files.below(folder):
        topic, _, rest = one.path.removeprefix(f"{folder}/").partition("/")
        day, cell, file = (*rest.split("/"), "", "", "")[:3]
        if not file.startswith("part-"):
            continue
        at = Place(f"{topic}/{day}", int(cell.removeprefix("cell=")))
        invariant(at not in found, "a cell of an export has two files", place=at)
        found[at] = one.path
    return found
