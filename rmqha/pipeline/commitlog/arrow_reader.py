"""Commit logs as Arrow, without Spark: for DuckDB, Polars, pandas and whatever else takes Arrow.

The rows and their columns are those of the Spark source ``rocketmq-commitlog``, made by the same
code in this process, batch by batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from msgspec.structs import replace

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.commitlog.batches import Bounds, Mode, Wanted, read_part, topics_named
from rmqha.pipeline.commitlog.columns import SCHEMA
from rmqha.pipeline.commitlog.distinct import distinct
from rmqha.pipeline.commitlog.pruning import plan_wanted
from rmqha.pipeline.commitlog.splits import Part
from rmqha.pipeline.commitlog.store_folder import (
    StoreFolder,
    open_replica,
    split_stores,
)
from rmqha.pipeline.commitlog.up_to import UpTo

Path = str | os.PathLike[str]
Moment = datetime | int
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WITHOUT_BODY = tuple(name for name in SCHEMA.names if name != "body")


class CommitLog:
    """Rows of commit logs, read anew whenever they are asked for; nothing is kept.

    It has Arrow's PyCapsule interface, so DuckDB and Polars take it as it is.

    Args:
        stores: (name or empty, directory) of each.
        wanted: which rows and columns.
        up_to: where each ends, looked at when it is read.

    Attributes:
        schema: of the columns that are given when none are named.
    """

    def __init__(self, stores: list[tuple[str, str]], wanted: Wanted, up_to: UpTo) -> None:
        self._stores = stores
        self._up_to = up_to
        self._wanted = wanted
        self.schema = _schema(wanted)

    def to_reader(
        self,
        *,
        columns: Iterable[str] | None = None,
        topic: str | Iterable[str] | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> pa.RecordBatchReader:
        """The rows as a stream of batches, one store behind the other, each in its log's order.

        Damage inside of records, whose parts do not fill them, comes in front of the other rows of
        its stretch of the log, some ten thousand records at most.

        Args:
            columns: instead of those that were named before.
            topic, since, until: of what was chosen before, only these; as ``read`` has them.

        Raises:
            ConfigInvalid: there is no such column or store, or a time is none.
            StoreCorrupted: a store's identity or epoch file is damaged.
            OSError: a file cannot be read; from the stream, too.
            StoreDamaged: from the stream, in the mode ``FAILFAST``.
        """
        wanted = _narrowed(self._wanted, columns, topic, since, until)
        parts = [
            part
            for store in self._open()
            for part in plan_wanted(store, wanted, end=self._up_to.limit(store))
        ]
        return pa.RecordBatchReader.from_batches(_schema(wanted), _batches(parts, wanted))

    def to_table(
        self,
        *,
        columns: Iterable[str] | None = None,
        topic: str | Iterable[str] | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> pa.Table:
        """All the rows in memory; arguments and errors as ``to_reader``."""
        return self.to_reader(columns=columns, topic=topic, since=since, until=until).read_all()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for whoever speaks Arrow's C stream interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _open(self) -> Iterator[StoreFolder]:
        return (open_replica(root, name) for name, root in self._stores)


def read(
    path: Path | Mapping[str, Path],
    *,
    columns: Iterable[str] | None = None,
    topic: str | Iterable[str] | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    mode: str = "PERMISSIVE",
    up_to: str | int | None = None,
) -> CommitLog:
    """Commit logs of stores, running or not, of Java or Python brokers.

    Args:
        path: a store's directory (the one with ``commitlog``); several as the Spark source has
            them, ``a=/store1,b=/store2``, or as a dictionary of names and directories.
        columns: by default all but ``body``; only what is named is made.
        topic: only these; several as ``a,b`` or a list.
        since, until: only what was stored at or after, and before. Milliseconds or a ``datetime``,
            without a zone in UTC. Files of other times are not gone through.
        mode: ``PERMISSIVE`` gives damage as rows with ``_corrupt``, ``DROPMALFORMED`` leaves it
            out, ``FAILFAST`` ends at it.
        up_to: ``end``, ``confirmed``, or a physical offset. By default what the set has confirmed,
            of a running store whose checkpoint tells it, and all of any other.

    Raises:
        ConfigInvalid: no store is there, or an argument is wrong.
        StoreCorrupted: a store's identity or epoch file is damaged.
    """
    start = Wanted(_WITHOUT_BODY, mode=_mode(mode))
    wanted = _narrowed(start, columns, topic, since, until)
    stores = _stores(path)
    limit = UpTo.parse(None if up_to is None else str(up_to))
    for name, root in stores:
        limit.limit(open_replica(root, name))
    return CommitLog(stores, wanted, limit)


def _stores(path: Path | Mapping[str, Path]) -> list[tuple[str, str]]:
    if isinstance(path, str):
        found = split_stores(path)
    elif isinstance(path, Mapping):
        found = [(name, os.fspath(root)) for name, root in path.items()]
    else:
        found = [("", os.fspath(path))]
    if not found:
        raise ConfigInvalid("read needs a path: read('/store') or read('a=/store1,b=/store2')")
    return distinct(found)


def _narrowed(
    wanted: Wanted,
    columns: Iterable[str] | None,
    topic: str | Iterable[str] | None,
    since: Moment | None,
    until: Moment | None,
) -> Wanted:
    """What ``wanted`` has and the others ask for."""
    if columns is not None:
        wanted = replace(wanted, columns=_columns(columns))
    if topic is not None:
        names = _topics(topic)
        if not names:
            raise ConfigInvalid("topic names none")
        before = wanted.topics
        wanted = replace(wanted, topics=names if before is None else before & names)
    low = Bounds() if since is None else Bounds(low=_ms("since", since))
    high = Bounds() if until is None else Bounds(high=_ms("until", until) - 1)
    if low.low > high.high + 1:
        raise ConfigInvalid(f"since={since} is behind until={until}")
    times = wanted.store_timestamp.cut(low.low, low.high).cut(high.low, high.high)
    return replace(wanted, store_timestamp=times)


def _mode(said: object) -> Mode:
    if not isinstance(said, str) or said.upper() not in Mode.__members__:
        raise ConfigInvalid(f"mode={said} must be one of {', '.join(Mode.__members__)}")
    return Mode[said.upper()]


def _topics(said: object) -> frozenset[str]:
    if isinstance(said, str):
        return topics_named(said)
    listed = list(said) if isinstance(said, Iterable) else [said]
    names = frozenset(one for one in listed if isinstance(one, str))
    if not all(isinstance(one, str) for one in listed):
        raise ConfigInvalid(f"topic={said!r} must be a text, or texts")
    return names


def _columns(names: Iterable[str]) -> tuple[str, ...]:
    found = (names,) if isinstance(names, str) else tuple(names)
    if not found:
        raise ConfigInvalid("columns names none")
    unknown = [name for name in found if name not in SCHEMA.names]
    if unknown:
        raise ConfigInvalid(
            f"a commit log has no column {', '.join(unknown)}; it has {', '.join(SCHEMA.names)}"
        )
    return found


def _ms(name: str, moment: Moment) -> int:
    """Milliseconds since 1970; of a part of one, the next whole."""
    if isinstance(moment, datetime):
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return -((_EPOCH - aware) // timedelta(milliseconds=1))
    if type(moment) is not int:
        raise ConfigInvalid(f"{name}={moment!r} must be a datetime, or milliseconds since 1970")
    return moment


def _schema(wanted: Wanted) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in wanted.columns])


def _batches(parts: list[Part], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield from read_part(part, wanted)
