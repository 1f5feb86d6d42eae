"""What jobs have in common: rows to Arrow batches, and tables that a re-run replaces in part."""

from __future__ import annotations

import os
import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqha.base.errors import ConfigInvalid
from rmqha.base.invariants import invariant
from rmqha.pipeline.commitlog.store_folder import split_store
from rmqha.pipeline.lake.files import LakeFiles, open_lake, table_label, work_folder
from rmqha.pipeline.lake.layout import EARLIER, SUFFIX, Found, is_earlier
from rmqha.pipeline.spark.paths import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

BATCH_ROWS = 4096
_ROWS = "rows"
_NAME = re.compile(rf"{_ROWS}(?:-(\d+)-[0-9a-f]+)?{re.escape(SUFFIX)}")
"""Of a file with all of a partition: its number, and what no other file has. Read as any other is."""
_SPARKS = -1
"""The number of files that Spark named."""


def batches(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Tuples in the order of ``schema`` as Arrow batches."""
    waiting: list[Sequence[Any]] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == BATCH_ROWS:
            yield _batch(waiting, schema)
            waiting = []
    if waiting:
        yield _batch(waiting, schema)


def _batch(rows: list[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(list(one), field.type) for one, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def table_path(spark: SparkSession, out: str, name: str) -> str:
    """Where a table is, as Spark is to be told.

    Raises:
        ConfigInvalid: as ``open_lake``.
    """
    return f"{open_lake(spark, out).root}/{name}"


def write_parts(rows: DataFrame, out: str, name: str, *columns: str) -> None:
    """As ``KeptTable.write``, where what the table has makes no difference to the rows.

    Raises:
        ConfigInvalid: as ``open_lake``.
    """
    with kept_table(rows.sparkSession, out, name) as table:
        table.write(rows, *columns)


@contextmanager
def kept_table(spark: SparkSession, out: str, name: str) -> Iterator[KeptTable]:
    """A table that nobody else writes meanwhile (where ``LakeFiles.alone`` keeps others out): what a
    run adds to what it read there, no other run has changed in between.

    Raises:
        ConfigInvalid: as ``open_lake``.
    """
    files = open_lake(spark, out)
    # Jobs of several nodes may write one table, each its own partitions.
    with files.alone(table_label(name), waits=True):
        yield KeptTable(spark, files, name)


class KeptTable:
    """A table that may be all that is left of its rows; of ``kept_table``.

    A partition is one file, and its name is new whenever its content is: Spark reads a file only as far
    as it was long when it was listed, so under the same name whoever had listed it before would get
    fewer rows, and no error. Of two files the one with the greater number counts.

    Args:
        spark: whose reader is used.
        files: where the table is.
        name: of its folder.
    """

    def __init__(self, spark: SparkSession, files: LakeFiles, name: str) -> None:
        self._spark = spark
        self._files = files
        self._name = name

    def rows(self, schema: StructType) -> DataFrame | None:
        """What earlier runs have written; None when there was none.

        A column that the table does not have is null. The rows are held, so that the table may be
        written over.
        """
        from pyspark.errors import AnalysisException

        self._drop_replaced()
        reader = self._spark.read.schema(schema)
        try:
            return reader.parquet(literal(f"{self._files.root}/{self._name}")).localCheckpoint()
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                return None
            raise

    def write(self, rows: DataFrame, *columns: str) -> None:
        """Of the partitions those that have other rows now are replaced, the others stay.

        All of them are written before the first one is renamed into the table, and what it replaces is
        deleted when that is on the disk. So whenever this ends each partition is the old or the new
        one, or both until the next run.

        Args:
            rows: of all columns.
            columns: by which the table is partitioned.
        """
        folder = work_folder(table_label(self._name))
        self._drop_replaced()
        try:
            writer = _in_parts(rows, columns).write.option("maxRecordsPerFile", 0)
            writer.partitionBy(*columns).parquet(f"{self._files.root}/{folder}")
            self._publish(folder)
        finally:
            self._files.clear(folder)

    def _publish(self, folder: str) -> None:
        files, there = self._files, self._parts()
        for part, staged in self._staged(folder).items():
            before = there.get(part, [])
            number, newest = before[-1] if before else (_SPARKS, staged)
            is_like = number > _SPARKS and newest.size == staged.size
            if is_like and files.same(staged.path, newest.path):
                continue
            name = f"{_ROWS}-{max(number, 0) + 1:08d}-{uuid.uuid4().hex}{SUFFIX}"
            files.replace(staged.path, f"{part}/{name}")
            files.settle()
            # At once: who lists the table in between finds both, and rows twice.
            for _, one in before:
                files.delete(one.path)
        # So a table without rows is there, too.
        files.mark(f"{self._name}/_SUCCESS")
        files.settle()

    def _staged(self, folder: str) -> dict[str, Found]:
        """What Spark has written, by the folder in the table."""
        found: dict[str, Found] = {}
        for one in self._files.below(folder):
            if is_earlier(one):
                part = f"{self._name}{one.folder.removeprefix(folder)}"
                invariant(part not in found, "a partition of a table has two files", place=part)
                found[part] = one
        return found

    def _drop_replaced(self) -> None:
        """Delete what a run that died had replaced and not come to."""
        for part in self._parts().values():
            if part[-1][0] > _SPARKS:
                for _, one in part[:-1]:
                    self._files.delete(one.path)
        self._files.settle()

    def _parts(self) -> dict[str, list[tuple[int, Found]]]:
        """The table's files with their numbers by folder, the newest one last."""
        found: defaultdict[str, list[tuple[int, Found]]] = defaultdict(list)
        for one in self._files.below(self._name):
            number = _number(one)
            if number is not None:
                found[one.folder].append((number, one))
        return {part: sorted(of, key=lambda pair: pair[0]) for part, of in found.items()}


def _number(found: Found) -> int | None:
    """Which of a partition's files it is; None for one that has no rows.

    Files that Spark named, with Hadoop's checksums of them, are of before partitions were single ones.
    """
    match = _NAME.fullmatch(found.name)
    if match is not None:
        return int(match[1] or 0)
    return _SPARKS if found.name.removeprefix(".").startswith(EARLIER) else None


def _in_parts(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Rows of which no two tasks have a partition's, in an order that is always the same.

    Null and the empty text are one folder. And of a text that may be null Spark's writer makes another
    column, after which it orders the rows anew.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    for name in columns:
        if isinstance(rows.schema[name].dataType, StringType):
            rows = rows.withColumn(name, f.coalesce(name, f.lit("")))
    others = [one for one in rows.columns if one not in columns]
    return rows.repartition(*columns).sortWithinPartitions(*columns, *others)


def write_whole(rows: DataFrame, out: str, name: str) -> None:
    """Write a table in place of the one before; for what each run finds anew.

    Raises:
        ConfigInvalid: as ``open_lake``.
    """
    rows.write.mode("overwrite").parquet(table_path(rows.sparkSession, out, name))


def named_paths(stores: Sequence[str]) -> list[tuple[str, str]]:
    """Name and absolute path of each ``directory`` or ``name=directory``.

    Raises:
        ConfigInvalid: two have one name, or a path holds a comma.
    """
    found: dict[str, str] = {}
    for store in stores:
        name, root = split_store(store)
        path = os.path.abspath(root)
        name = name or os.path.basename(path)
        if "," in store:
            raise ConfigInvalid(f"{store}: a comma cannot be in a path")
        if name in found:
            raise ConfigInvalid(f"two stores are called {name}: name them, as in a={path}")
        found[name] = path
    return list(found.items())


def source_paths(named: Iterable[tuple[str, str]]) -> str:
    """What ``named_paths`` has found as the sources take it.

    A directory whose own name has an equals sign goes without it, and is called so all the same.
    """
    told = [(f"{name}={path}", name, path) for name, path in named]
    return ",".join(
        text if split_store(text) == (name, path) else path for text, name, path in told
    )
