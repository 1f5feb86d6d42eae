"""Commit logs to a Parquet lake by topic and day (``lake`` has the layout, ADR 0020 the reasons).

A run replaces what it has read of a broker set's log, and nothing else: rows whose log files are gone,
rows at damaged places and rows of other sets stay. Damage goes to ``_corrupt`` in the lake, which
readers of the lake pass over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.commitlog.batches import topics_named
from rmqha.pipeline.commitlog.elsewhere import below, entries
from rmqha.pipeline.commitlog.store_folder import (
    CONSUME_QUEUE,
    StoreFolder,
    open_store,
    read_identity,
    split_store,
)
from rmqha.pipeline.commitlog.up_to import UpTo
from rmqha.pipeline.jobs import charts
from rmqha.pipeline.jobs.report_page import REPORT, chart, page, sentence, table
from rmqha.pipeline.lake.files import cell_bytes_of, open_lake
from rmqha.pipeline.lake.layout import (
    CELL_BYTES,
    NAME_BYTES_MAX,
    NUL,
    SetName,
    refuse_replicas,
    set_name,
    topic_of,
)
from rmqha.pipeline.lake.rows import damage, lake
from rmqha.pipeline.lake.write import DAMAGE, Exporter, SetExported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


__all__ = [
    "DAMAGE", "REPORT", "Exported", "SetExported", "checked", "chosen", "damage", "lake", "refusals",
    "report", "run",
]  # fmt: skip


class Exported(Struct, frozen=True):
    """What a run did, set by set.

    Attributes:
        missing: topics that were asked for and that no store and not the lake knows, ascending.
    """

    sets: tuple[SetExported, ...]
    missing: tuple[str, ...] = ()

    @property
    def refused(self) -> list[tuple[SetName, str, int]]:
        """Messages that are not in the lake because no folder can have their topics' names: set, topic, how many."""
        return [(one.name, *topic) for one in self.sets for topic in one.refused]

    @property
    def rows(self) -> int:
        """All messages written."""
        return sum(one.written for one in self.sets)

    @property
    def damaged(self) -> int:
        """All damaged ranges."""
        return sum(one.damaged for one in self.sets)


def checked(stores: Sequence[str]) -> list[tuple[StoreFolder, SetName]]:
    """Open stores that are to be exported together; nothing is written.

    Args:
        stores: directories, optionally as ``name=directory``; the name of a store without an
            identity file is its broker set's, ``broker`` or ``cluster/broker``.

    Raises:
        ConfigInvalid: a path is no store, nobody says whose it is, or two are of one set.
        StoreCorrupted: an identity or epoch file is damaged.
    """
    found = []
    for store in stores:
        if "," in store:
            raise ConfigInvalid(f"{store}: a comma cannot be in a store's path")
        replica = open_store(store)
        name = set_name(replica, read_identity(replica.root), split_store(store)[0])
        found.append((replica, name))
    refuse_replicas(found)
    return found


def chosen(options: Sequence[str]) -> list[str]:
    """The topics that options name, several with commas; empty, which is all, without an option.

    Raises:
        ConfigInvalid: there are options, and they name none.
    """
    found = sorted(topics_named(",".join(options)))
    if options and not found:
        raise ConfigInvalid("--topic names none")
    return found


def run(
    spark: SparkSession,
    stores: Sequence[str],
    out: str,
    *,
    topics: Sequence[str] = (),
    bodies: bool = True,
    cell_bytes: int = CELL_BYTES,
    up_to: str | None = None,
) -> Exported:
    """Read stores, write the lake, set by set.

    Args:
        stores: as ``checked``.
        out: the lake's directory, or whatever Spark can write to.
        topics: only these; all when empty.
        bodies: whether the rows that are written have their bodies.
        cell_bytes: of a lake that is new; others remember it.
        up_to: as ``UpTo.parse``.

    Raises:
        ConfigInvalid, StoreCorrupted: as ``checked`` and ``UpTo``; or the lake has another log under a set's name.
        LakeBusy: another export of one of the sets is under way.
    """
    opened, limit = checked(stores), UpTo.parse(up_to)
    files = open_lake(spark, out)
    cells = cell_bytes_of(files, cell_bytes)
    done = []
    for store, (replica, name) in zip(stores, opened, strict=True):
        with files.alone(name.label):
            exporter = Exporter(spark, files, replica, name, cell_bytes=cells, up_to=limit)
            done.append(exporter.run(store, topics, bodies=bodies))
    known = {topic_of(one.folder) for one in files.topics(topics)} if topics else set()
    known |= {topic for one in done for topic, _ in one.refused}
    roots = [replica.root for replica, _ in opened]
    missing = [one for one in sorted(set(topics) - known) if not _has_queue(roots, one)]
    return Exported(tuple(done), tuple(missing))


def _has_queue(roots: Sequence[str], topic: str) -> bool:
    """Whether a store knows a topic, which may have no message now."""
    return any(entries(below(root, CONSUME_QUEUE, topic)) is not None for root in roots)


def _chart(done: Exported) -> list[str]:
    found = [day for one in done.sets for day in one.days]
    days = sorted({day for _, day, _, _ in found})
    sizes = {topic: [0.0] * len(days) for topic, *_ in found}
    for topic, day, _, size in found:
        sizes[topic][days.index(day)] += size / 1e6
    return [chart("Written", charts.stacked(days, sizes, "MB of log"))] if days else []


def refusals(done: Exported) -> list[str]:
    """What people are told of each topic that could not be exported."""
    return [
        f"topic {topic.replace(NUL, '%00')}: {_why_refused(topic)}, so {count} messages of broker set"
        f" {name} are not in the lake"
        for name, topic, count in done.refused
    ]


def _why_refused(topic: str) -> str:
    if NUL in topic:
        return "no folder can have its name, which has a null character (%00)"
    return f"a folder of its name would be longer than {NAME_BYTES_MAX} bytes"


def report(stores: Sequence[str], done: Exported) -> str:
    """A page for people."""
    return page(
        "export",
        sentence(f"{', '.join(stores)}: {done.rows} messages, {done.damaged} damaged ranges."),
        *(sentence(f"{one}, {one.damaged} damaged ranges.") for one in done.sets),
        *(sentence(f"{line}.") for line in refusals(done)),
        *_chart(done),
        table(
            "Topics",
            ("broker set", "topic", "day", "messages", "bytes"),
            ((str(one.name), *day) for one in done.sets for day in one.days),
        ),
    )
