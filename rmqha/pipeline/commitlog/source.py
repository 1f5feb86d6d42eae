"""Spark's batch source ``rocketmq-commitlog``: commit logs of stores as rows.

``spark.read.format("rocketmq-commitlog").load("/store,/other")``. A path is a store directory (the
one with ``commitlog`` in it), optionally as ``name=directory``; the column ``replica`` shows the
name. Bodies are left out unless ``includeBody=true``; a schema given by the user names the columns
that are made at all, which is where the speed is. The options ``topic``, ``queueId``,
``queueOffset``, ``physicalOffset`` and ``storeTimestamp`` leave records out at the source; with
``topic`` the consume queues say where they are, unless ``useConsumeQueues=false``.

Of a running store what its set has confirmed is read (``upTo``: ``end``, ``confirmed`` or an offset).

Spark's own filters are not pushed down unless ``pushFilters=true``: Spark 4.3 keeps what one query
pushed with the loaded DataFrame, so that the next query over it silently misses rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.commitlog.batches import (
    INT64_MAX,
    INT64_MIN,
    Bounds,
    Mode,
    Wanted,
    read_part,
    topics_named,
)
from rmqha.pipeline.commitlog.columns import SCHEMA
from rmqha.pipeline.commitlog.distinct import distinct
from rmqha.pipeline.commitlog.numbers import number_of
from rmqha.pipeline.commitlog.pruning import plan_wanted
from rmqha.pipeline.commitlog.splits import PART_BYTES, Part
from rmqha.pipeline.commitlog.store_folder import open_replica, split_stores
from rmqha.pipeline.commitlog.up_to import UpTo
from rmqha.pipeline.spark.plain_errors import no_option, one_line
from rmqha.pipeline.spark.worker import freeze_modules

NAME = "rocketmq-commitlog"
OPTIONS = (
    "path", "includeBody", "partBytes", "useConsumeQueues", "pushFilters", "topic", "queueId",
    "queueOffset", "physicalOffset", "storeTimestamp", "mode", "upTo",
)  # fmt: skip
PART_BYTES_MIN = 1 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOUNDED = {
    "queueId": "queue_id",
    "physicalOffset": "physical_offset",
    "queueOffset": "queue_offset",
    "storeTimestamp": "store_timestamp",
}


class PartOfLog(InputPartition):
    """What one task reads; travels to the workers by pickle."""

    def __init__(self, part: Part) -> None:
        self.part = part
        super().__init__(f"{part.file.path}[{part.start}:{part.stop}]")


class CommitLogSource(DataSource):
    """Entry point for Spark."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    @one_line()
    def schema(self) -> StructType:
        """All columns; the body when it is asked for.

        Raises:
            ConfigInvalid: an option is unknown or malformed.
        """
        _check_options(self.options)
        CommitLogReader(self.options, ())
        with_body = _flag(self.options, "includeBody")
        fields = [field for field in SCHEMA if with_body or field.name != "body"]
        return from_arrow_schema(pa.schema(fields))

    @one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of ``schema``.

        Raises:
            ConfigInvalid: a column that no commit log has, or of another type.
        """
        _check_options(self.options)
        _check_schema(schema)
        pushing = _flag(self.options, "pushFilters")
        made = PushingReader if pushing else CommitLogReader
        return made(self.options, tuple(schema.fieldNames()))


class CommitLogReader(DataSourceReader):
    """Plans parts on the driver and reads them in the workers."""

    def __init__(self, options: Any, columns: tuple[str, ...]) -> None:
        self._paths = _paths(options)
        self._part_bytes = _part_bytes(options)
        self._wanted = _wanted(options, columns)
        self._up_to = UpTo.parse(options.get("upTo"))

    @one_line()
    def partitions(self) -> Sequence[InputPartition]:
        """The parts of every store, in the order of the paths, up to an end that is the same for all
        tasks and their retries.

        Raises:
            ConfigInvalid: a path is no store, or does not know what is confirmed.
            StoreCorrupted: an identity or epoch file is damaged.
        """
        parts = []
        for name, root in self._paths:
            store = open_replica(root, name)
            end = self._up_to.limit(store)
            parts += plan_wanted(store, self._wanted, self._part_bytes, end)
        return [PartOfLog(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """One part's rows as Arrow batches. Spark makes an empty part when nothing is to be read.

        Raises:
            OSError: its file cannot be read.
        """
        if not isinstance(partition, PartOfLog):
            return
        with one_line():
            yield from read_part(partition.part, self._wanted)
        freeze_modules()


class PushingReader(CommitLogReader):
    """Takes filters from Spark: for a DataFrame that one query uses, and that query once."""

    def pushFilters(  # noqa: N802 - Spark's name
        self, filters: list[Filter]
    ) -> Iterable[Filter]:
        """Use what can be used while reading; Spark applies every filter once more.

        Damage has no topic and no time: its rows come out of the source whatever is asked.
        """
        for one in filters:
            self._wanted = narrowed(self._wanted, one)
            yield one


def narrowed(wanted: Wanted, one: Filter) -> Wanted:
    """``wanted`` with what a filter says, as far as it says something of use."""
    if isinstance(one, EqualTo | In) and one.attribute == ("topic",):
        values = (one.value,) if isinstance(one, EqualTo) else one.value
        topics = frozenset(str(value) for value in values if value is not None)
        before = wanted.topics
        return replace(wanted, topics=topics if before is None else before & topics)
    if not isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return wanted
    field = _BOUNDED.get(one.attribute[0]) if len(one.attribute) == 1 else None
    number = _number(one.value)
    if field is None or number is None:
        return wanted
    before_bounds: Bounds = getattr(wanted, field)
    if isinstance(one, GreaterThan | GreaterThanOrEqual):
        bounds = before_bounds.cut(low=number)
    elif isinstance(one, LessThan | LessThanOrEqual):
        bounds = before_bounds.cut(high=number)
    else:
        bounds = before_bounds.cut(number, number)
    return replace(wanted, **{field: bounds})


def _number(value: Any) -> int | None:
    """Integers as they are, times as milliseconds."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _check_options(options: Any) -> None:
    known = {name.lower() for name in OPTIONS}
    unknown = sorted(key for key in options if key.lower() not in known)
    if unknown:
        raise ConfigInvalid(no_option(NAME, unknown[0], OPTIONS))


def _check_schema(schema: StructType) -> None:
    known = {field.name: field for field in from_arrow_schema(SCHEMA)}
    for field in schema:
        if field.name not in known:
            raise ConfigInvalid(f"{NAME} has no column {field.name}; it has {', '.join(known)}")
        if field.dataType != known[field.name].dataType:
            raise ConfigInvalid(
                f"column {field.name} is {known[field.name].dataType.simpleString()},"
                f" not {field.dataType.simpleString()}"
            )


def _paths(options: Any) -> list[tuple[str, str]]:
    """(name, directory) of the option ``path``."""
    found = split_stores(options.get("path", ""))
    if not found:
        raise ConfigInvalid(f"{NAME} needs a path: load('/store') or load('a=/store1,b=/store2')")
    return distinct(found)


def _wanted(options: Any, columns: tuple[str, ...]) -> Wanted:
    """What the options say of the rows."""
    topics = options.get("topic")
    names = None if topics is None else topics_named(topics)
    if names is not None and not names:
        raise ConfigInvalid(f"{NAME}: the option topic names none")
    bounds = {field: _bounds(options, key) for key, field in _BOUNDED.items()}
    return Wanted(
        columns,
        topics=names,
        use_queues=_flag(options, "useConsumeQueues", "true"),
        mode=_mode(options),
        **bounds,
    )


def _mode(options: Any) -> Mode:
    text = options.get("mode", Mode.PERMISSIVE.value)
    if text.upper() not in Mode.__members__:
        raise ConfigInvalid(f"mode={text} must be one of {', '.join(Mode.__members__)}")
    return Mode[text.upper()]


def _bounds(options: Any, key: str) -> Bounds:
    """``7``, ``7-20``, ``7-`` or ``-20``, both ends included."""
    text = options.get(key)
    if text is None:
        return Bounds()
    said, dash, last = text.partition("-")
    low = number_of(said, INT64_MAX) if said else INT64_MIN
    high = number_of(last, INT64_MAX) if last else INT64_MAX
    if low is None or high is None or not (said or last):
        raise ConfigInvalid(f"{key}={text} must be a number, or two like 7-20, 7- or -20")
    # What comes after the last one that was read, up to it, is nothing yet.
    if low > high + 1:
        raise ConfigInvalid(f"{key}={text} is nothing: {low} is over {high}")
    return Bounds().cut(low, high) if dash else Bounds(low, low)


def _part_bytes(options: Any) -> int:
    text = options.get("partBytes", str(PART_BYTES))
    found = number_of(text, INT64_MAX)
    if found is None or found < PART_BYTES_MIN:
        raise ConfigInvalid(f"partBytes={text} must be a number of at least {PART_BYTES_MIN}")
    return found


def _flag(options: Any, key: str, default: str = "false") -> bool:
    text = options.get(key, default).lower()
    if text not in ("true", "false"):
        raise ConfigInvalid(f"{key}={text} must be true or false")
    return bool(text == "true")
