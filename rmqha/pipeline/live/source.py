"""Spark's format ``rocketmq``: live topics as rows, in a batch or as a stream, and a sink for rows.

``spark.read.format("rocketmq").option("nameServer", ...).option("topic", ...)``. A task reads a range
of one queue from the master of its broker set. A schema given by the user names the columns that are
made at all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.live.bounds import At, Bound
from rmqha.pipeline.live.clients import borrowed
from rmqha.pipeline.live.offsets import QueueRange, ranges
from rmqha.pipeline.live.options import (
    NAME,
    PARTITIONS_MAX,
    ReadOptions,
    check_batch,
    check_stream,
    read_options,
    write_options,
)
from rmqha.pipeline.live.planning import Planner, connect, way
from rmqha.pipeline.live.pulling import HEADERS, SCHEMA, RangeReader
from rmqha.pipeline.live.splitting import split
from rmqha.pipeline.spark.plain_errors import one_line
from rmqha.pipeline.spark.worker import freeze_modules

LOG = logging.getLogger("rmqha.pipeline.live")
"""Spark shows what its workers log."""


class RangeOfQueue(InputPartition):
    """What one task reads; travels to the workers by pickle."""

    def __init__(self, wanted: QueueRange) -> None:
        self.wanted = wanted
        super().__init__(str(wanted))


class RocketmqSource(DataSource):
    """Entry point for Spark."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    @one_line()
    def schema(self) -> StructType:
        """All columns; the body unless it is not asked for.

        Raises:
            ConfigInvalid: an option is unknown, missing or malformed.
        """
        options = read_options(self.options)
        fields = [field for field in SCHEMA if options.include_body or field.name != "body"]
        return from_arrow_schema(pa.schema([*fields, *([HEADERS] * options.include_headers)]))

    @one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of a batch.

        Raises:
            ConfigInvalid: an option is wrong, or a column that no message has.
        """
        options = read_options(self.options)
        check_batch(options)
        return LiveReader(options, _columns(schema))

    @one_line()
    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> DataSourceStreamReader:
        """A reader of a stream; raises as ``reader``."""
        from rmqha.pipeline.live.stream import LiveStreamReader

        options = read_options(self.options)
        check_stream(options)
        return LiveStreamReader(options, _columns(schema))

    @one_line()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of a batch.

        Raises:
            ConfigInvalid: an option is wrong, a column is of no message or of another type, or
                something is to be overwritten.
        """
        from rmqha.pipeline.live.sink import LiveWriter

        return LiveWriter(write_options(self.options), schema, overwrite=overwrite)

    @one_line()
    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """A writer of a stream; raises as ``writer``."""
        from rmqha.pipeline.live.sink import LiveStreamWriter

        return LiveStreamWriter(write_options(self.options), schema, overwrite=overwrite)


class LiveReader(DataSourceReader):
    """Plans ranges on the driver and reads them in the workers."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    @one_line()
    def partitions(self) -> Sequence[InputPartition]:
        """A range of each queue that has something to read.

        Raises:
            ConfigInvalid: a topic does not exist, or offsets are given of a queue that does not.
            DataLost: a queue does not reach from where to where it is to be read.
            Unreachable: nobody answers.
        """
        options = self._options
        with connect(options) as cluster:
            planner = Planner(cluster, options, LOG.warning)
            edges = planner.known_and({})
            start = planner.begun(options.starting or Bound(At.EARLIEST), edges)
            end = planner.ended(options.ending or Bound(At.LATEST), edges)
        return parts(ranges(start, end), options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """One range's messages as Arrow batches; raises as ``RangeReader``."""
        return read_partition(partition, self._options, self._columns)


def parts(whole: list[QueueRange], options: ReadOptions) -> list[InputPartition]:
    """What tasks read of these ranges; raises as ``split``."""
    found = split(
        whole,
        parts_min=options.min_partitions,
        records_max=options.partition_records_max,
        parts_max=PARTITIONS_MAX,
    )
    return [RangeOfQueue(one) for one in found]


def read_partition(
    partition: InputPartition, options: ReadOptions, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """What a task does. Spark makes an empty partition when nothing is to be read."""
    if not isinstance(partition, RangeOfQueue):
        return
    with one_line(), borrowed(way(options)) as cluster:
        yield from RangeReader(cluster, options, columns, LOG.warning).read(partition.wanted)
        freeze_modules()


def _columns(schema: StructType) -> tuple[str, ...]:
    known = {field.name: field.dataType for field in from_arrow_schema(SCHEMA.append(HEADERS))}
    for field in schema:
        if field.name not in known:
            raise ConfigInvalid(f"{NAME} has no column {field.name}; it has {', '.join(known)}")
        if field.dataType != known[field.name]:
            raise ConfigInvalid(
                f"column {field.name} is {known[field.name].simpleString()},"
                f" not {field.dataType.simpleString()}"
            )
    return tuple(schema.fieldNames())
