"""What jobs have in common: rows to Arrow batches, and tables that a re-run replaces in part."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.commitlog.store_folder import split_store
from rmqha.pipeline.spark.paths import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH_ROWS = 4096


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


def write_parts(rows: DataFrame, out: str, name: str, *columns: str) -> None:
    """Write a table; of its partitions those that have rows now are replaced, the others stay."""
    writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy(*columns).parquet(os.path.join(out, name))


def kept_rows(rows: DataFrame, out: str, name: str) -> DataFrame | None:
    """What an earlier run has written to a table; None when there was none.

    The columns are those of ``rows``; one that the table does not have is null. It may be written over
    while it is read: rows are held until then.
    """
    from pyspark.errors import AnalysisException

    reader = rows.sparkSession.read.schema(rows.schema)
    try:
        return reader.parquet(literal(os.path.join(out, name))).localCheckpoint()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise


def write_whole(rows: DataFrame, out: str, name: str) -> None:
    """Write a table in place of the one before."""
    rows.write.mode("overwrite").parquet(os.path.join(out, name))


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
