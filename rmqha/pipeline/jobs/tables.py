"""What jobs have in common: rows to Arrow batches, and tables that a re-run replaces in part."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqha.base.errors import ConfigInvalid
from rmqha.base.invariants import invariant
from rmqha.pipeline.commitlog.store_folder import split_store
from rmqha.pipeline.lake.files import WORK, LakeFiles, open_lake
from rmqha.pipeline.lake.layout import EARLIER, is_earlier
from rmqha.pipeline.spark.paths import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 4096
FILE = "rows.parquet"
"""All of a partition. It is read as any other file is, and one of its name replaces it."""


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
    """Write a table; of its partitions those that have other rows now are replaced, the others stay.

    As a lake is published: a partition is one file, each is renamed over the one before when all of
    them are written, and what nothing replaces is deleted last. So whenever this ends each partition
    is the old or the new one. It may be all that is left of its rows.

    Raises:
        ConfigInvalid: as ``open_lake``.
    """
    files = open_lake(rows.sparkSession, out)
    folder = f"{WORK}/{name}@{uuid.uuid4().hex}"
    # Jobs of several nodes may write one table, each its own partitions.
    with files.alone(name, waits=True):
        try:
            writer = _in_parts(rows, columns).write.option("maxRecordsPerFile", 0)
            writer.partitionBy(*columns).parquet(f"{files.root}/{folder}")
        except BaseException:
            files.clear(folder)
            raise
        # If this fails the folder stays: where a rename is a copy and a delete (object stores) it may
        # have the only copy of a partition.
        _publish(files, folder, name)
        files.clear(folder)


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


def _publish(files: LakeFiles, folder: str, name: str) -> None:
    staged: dict[str, str] = {}
    for one in files.below(folder):
        if is_earlier(one):
            target = f"{name}{one.folder.removeprefix(folder)}/{FILE}"
            invariant(target not in staged, "a partition of a table has two files", place=target)
            staged[target] = one.path
    for target, source in staged.items():
        if not files.same(source, target):
            files.replace(source, target)
    # So a table without rows is there, too.
    files.mark(f"{name}/_SUCCESS")
    files.settle()
    _drop_replaced(files, name)


def _drop_replaced(files: LakeFiles, name: str) -> None:
    """Delete files, with Hadoop's checksums of them, beside the one that has all of a partition: Spark
    named them, before partitions were single files, and a run that died had not come to them."""
    found = files.below(name)
    whole = {one.folder for one in found if one.name == FILE}
    for one in found:
        if one.folder in whole and one.name.removeprefix(".").startswith(EARLIER):
            files.delete(one.path)
    files.settle()


def kept_rows(rows: DataFrame, out: str, name: str) -> DataFrame | None:
    """What an earlier run has written to a table; None when there was none.

    The columns are those of ``rows``; one that the table does not have is null. It may be written over
    while it is read: rows are held until then.

    Raises:
        ConfigInvalid: as ``open_lake``.
    """
    from pyspark.errors import AnalysisException

    files = open_lake(rows.sparkSession, out)
    _drop_replaced(files, name)
    reader = rows.sparkSession.read.schema(rows.schema)
    try:
        return reader.parquet(literal(f"{files.root}/{name}")).localCheckpoint()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise


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
