"""Other ways to read a commit log with Spark: by rows, and by whole files and pandas.

Both read the four columns ``FOUR`` as somebody would who writes such a reader in an hour: a loop
over records with ``struct``. Neither knows damage, anchors or filters.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rmqha.pipeline.commitlog.pages import mapped
from rmqha.pipeline.commitlog.store_folder import open_replica
from rmqha.store.record import MAGIC_V1, MIN_SIZE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOUR = "topic string, queueId int, queueOffset bigint, storeTimestamp timestamp"
ROWS = "rocketmq-rows"
_HEAD = struct.Struct(">iI4xi4xq")
_STORED = struct.Struct(">q")
_BODY = struct.Struct(">i")


def records(data: memoryview, position: int, stop: int) -> Iterator[tuple[str, int, int, int]]:
    """Topic, queue, queue offset and time (ms) of each record of a file, one by one."""
    while position < stop and len(data) - position >= MIN_SIZE:
        size, magic, queue_id, queue_offset = _HEAD.unpack_from(data, position)
        if magic != MAGIC_V1:
            return
        (stored,) = _STORED.unpack_from(data, position + 56)
        (body,) = _BODY.unpack_from(data, position + 84)
        topic_at = position + 88 + body
        topic = str(data[topic_at + 1 : topic_at + 1 + data[topic_at]], "utf-8")
        yield topic, queue_id, queue_offset, stored
        position += size


class RowsPart(InputPartition):
    """One file."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)


class RowsReader(DataSourceReader):
    """Yields tuples."""

    def __init__(self, root: str) -> None:
        self._root = root

    def partitions(self) -> Sequence[InputPartition]:
        """A file each."""
        return [RowsPart(file.path) for file in open_replica(self._root).files]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Row by row."""
        assert isinstance(partition, RowsPart)
        with mapped(partition.path) as data:
            for topic, queue_id, queue_offset, stored in records(data, 0, len(data)):
                moment = datetime.fromtimestamp(stored / 1000, UTC)
                yield topic, queue_id, queue_offset, moment


class RowsSource(DataSource):
    """The usual tutorial's source."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return ROWS

    def schema(self) -> str:
        """Four columns."""
        return FOUR

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of the directory given to ``load``."""
        return RowsReader(self.options["path"])


def whole_files(spark: SparkSession, root: str) -> DataFrame:
    """``binaryFile`` and ``mapInPandas``: each file crosses into the JVM and back."""
    files = spark.read.format("binaryFile").load(f"{root}/commitlog").select("content")
    return files.mapInPandas(_frames, FOUR)


def _frames(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    names = ["topic", "queueId", "queueOffset", "storeTimestamp"]
    for batch in batches:
        for content in batch["content"]:
            data = memoryview(content)
            frame = pd.DataFrame(records(data, 0, len(data)), columns=names)
            frame["storeTimestamp"] = pd.to_datetime(frame["storeTimestamp"], unit="ms", utc=True)
            yield frame


__all__ = ["FOUR", "ROWS", "RowsSource", "whole_files"]
