"""One broker set's log into a lake: read, merged with what stays, and then published file by file.

Nothing that a reader sees changes before all of it is written. From then on files are renamed over
those that they replace, and those that nothing replaces are deleted last. So whenever an export ends,
each file is the old or the new one, and no row is missing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.commitlog.compare import log_end
from rmqha.pipeline.commitlog.store_folder import StoreFolder
from rmqha.pipeline.commitlog.up_to import ALL, UpTo
from rmqha.pipeline.lake import rows as lake_rows
from rmqha.pipeline.lake.cells import ROTTEN, CellWork
from rmqha.pipeline.lake.damage_kept import DamageRow, damage_kept, rotten_places
from rmqha.pipeline.lake.files import LakeFiles, work_folder
from rmqha.pipeline.lake.layout import (
    Found,
    LakeBusy,
    Place,
    Reach,
    SetName,
    Span,
    file_name,
    is_earlier,
    own_place,
    place_of,
    reach,
    spans_read,
    told,
    topic_of,
)
from rmqha.pipeline.lake.stage import (
    DAMAGED,
    Damage,
    Staged,
    stage,
    stage_by_spark,
    write_by_spark,
)
from rmqha.pipeline.spark.paths import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

DAMAGE = "_corrupt"
_AT = lake_rows.IDENTITY.index("physicalOffset")
_DAMAGE_TABLE = DAMAGED + ", cluster string, brokerName string"


class SetExported(Struct, frozen=True):
    """What a run did with the rows of one broker set.

    Attributes:
        name: the set.
        days: (topic, day, messages, bytes in the log) of what was written, ascending.
        replaced: rows that the lake had of the ranges that were read.
        kept: rows of the set that the lake had and still has, of the topics that were asked for.
        damaged: damaged ranges of the log, and messages with rotten bodies.
        refused: topics that no folder can be named after, with their messages, which are not in the
            lake; ascending.
    """

    name: SetName
    days: tuple[tuple[str, str, int, int], ...]
    replaced: int
    kept: int
    damaged: int
    refused: tuple[tuple[str, int], ...] = ()

    @property
    def written(self) -> int:
        """Messages that were read and are in the lake since."""
        return sum(day[2] for day in self.days)

    def __str__(self) -> str:
        return (
            f"broker set {self.name}: {self.written} rows written, {self.replaced} replaced,"
            f" {self.kept} kept"
        )


class Listed(NamedTuple):
    """What a lake has of the topics that are exported.

    Attributes:
        own: the set's files.
        earlier: paths of files of the layout before, by folder.
        others: paths of the other sets' files, by place and label.
    """

    own: dict[Place, Found]
    earlier: defaultdict[str, list[str]]
    others: defaultdict[Place, dict[str, str]]


class Merged(Struct, frozen=True):
    """What an export is about to publish.

    Attributes:
        files: where the new files are, by what they hold.
        days: (topic, day, messages, bytes) that were read and the lake does not have elsewhere.
        carried: rows of the files to be replaced that stay, because their place was not read.
        elsewhere: rows that were read and stand in files of the layout before.
    """

    files: dict[Place, str]
    days: tuple[tuple[str, str, int, int], ...]
    carried: int
    elsewhere: int


class Exporter:
    """Exports one store once.

    Args:
        spark: a session that knows the source.
        files: of the lake.
        replica: the store.
        name: its broker set.
        cell_bytes: of the lake.
        up_to: where the log ends.
    """

    def __init__(
        self,
        spark: SparkSession,
        files: LakeFiles,
        replica: StoreFolder,
        name: SetName,
        *,
        cell_bytes: int,
        up_to: UpTo = ALL,
    ) -> None:
        self._spark = spark
        self._files = files
        self._replica = replica
        self._name = name
        self._cell_bytes = cell_bytes
        # Looked at once: whatever is written meanwhile belongs to the next run.
        self._end = min(log_end(replica), up_to.limit(replica))
        self._work = work_folder(name.label)

    def run(self, store: str, topics: Sequence[str], *, bodies: bool) -> SetExported:
        """Read the log up to where it ends now, and publish it.

        Args:
            store: as the source is to be told.
            topics, bodies: what is exported.

        Raises:
            ConfigInvalid: the lake has another log under this set's name.
            LakeBusy: the set's files were changed by somebody else meanwhile.
        """
        try:
            new = self._stage(store, topics, bodies=bodies)
            spans = self._spans(new.damage)
            listed = self._list(topics)
            before = listed.own
            touched = self._touched(before, new, spans)
            # Where nothing counts as read, messages with rotten bodies have to tell whose they are.
            seen = spans or self._spans([one for one in new.damage if one[3] != ROTTEN])
            self._refuse_another_log(store, self._touched(before, new, seen), new.files, seen)
            self._refuse_another_name(listed, new.files)
            merged = self._merge(touched, listed.earlier, new, spans)
            replaced = self._count(touched) - merged.carried
            rest = {at: one for at, one in before.items() if at not in touched}
            kept = self._count(rest) + merged.carried + merged.elsewhere
            # What was read is looked at before it is moved to where readers see it.
            read_again = self._read_again(new) if topics else None
            self._publish(topics, before, touched, merged)
            self._publish_damage(new.damage, read_again)
        finally:
            self._files.clear(self._work)
        refused = tuple(sorted(new.refused.items()))
        return SetExported(self._name, merged.days, replaced, kept, len(new.damage), refused)

    # -- what there is -----------------------------------------------------------------------------

    def _list(self, topics: Sequence[str]) -> Listed:
        listed = Listed({}, defaultdict(list), defaultdict(dict))
        for one in self._files.topics(topics):
            place = place_of(one)
            if is_earlier(one):
                listed.earlier[one.folder].append(self._path(one.path))
            elif place is not None and place[0] == self._name.label:
                listed.own[place[1]] = one
            elif place is not None:
                listed.others[place[1]][place[0]] = self._path(one.path)
        return listed

    def _spans(self, hurt: Sequence[Damage]) -> list[Span]:
        """What of the log was read, without some of its damage."""
        gaps = [(at, at + size) for _, at, size, _ in hurt]
        return spans_read(self._replica.files, self._end, gaps)

    def _touched(
        self, own: dict[Place, Found], new: Staged, spans: Sequence[Span]
    ) -> dict[Place, Found]:
        """The set's files of which something was read, or is to be replaced."""
        return {at: one for at, one in own.items() if at in new.files or self._reach(at, spans).any}

    def _reach(self, at: Place, spans: Sequence[Span]) -> Reach:
        return reach(spans, at.start, at.start + self._cell_bytes)

    def _path(self, relative: str) -> str:
        return f"{self._files.root}/{relative}"

    def _count(self, own: dict[Place, Found]) -> int:
        return lake_rows.count(self._spark, [self._path(one.path) for one in own.values()])

    # -- what is read ------------------------------------------------------------------------------

    def _stage(self, store: str, topics: Sequence[str], *, bodies: bool) -> Staged:
        folder = f"{self._work}/new"
        root = self._files.for_workers
        work = CellWork(
            self._replica, self._name, self._end, self._cell_bytes,
            frozenset(topics) if topics else None, bodies, f"{root}/{folder}",
        )  # fmt: skip
        if root is None:
            return stage_by_spark(self._spark, store, work, self._files, folder)
        return stage(self._spark, work, folder)

    def _staged(self, paths: Sequence[str]) -> DataFrame:
        root = self._path(f"{self._work}/new")
        listed = [self._path(one) for one in paths]
        return lake_rows.read_files(self._spark, root, listed, alike=True)

    # -- what stays --------------------------------------------------------------------------------

    def _refuse_another_log(
        self,
        store: str,
        touched: dict[Place, Found],
        staged: dict[Place, str],
        spans: Sequence[Span],
    ) -> None:
        """Where a set is exported again its oldest rows are the same; a namesake's are not."""
        if not touched:
            return
        lowest = min(at.start for at in touched)
        paths = [self._path(one.path) for at, one in touched.items() if at.start == lowest]
        old = [
            one
            for one in lake_rows.first_keys(self._spark, paths, spans[0][0])
            if reach(spans, one[_AT], one[_AT] + 1).any
        ]
        if not old:
            return
        paths = [self._path(path) for at, path in staged.items() if at.start == lowest]
        new = lake_rows.first_keys(self._spark, paths, old[0][_AT]) if paths else []
        same = not set(old).isdisjoint(new)
        if not same and not self._has_other_topics_rows(store, spans):
            raise ConfigInvalid(
                f"{self._files.root} has another log as broker set {self._name}: none of its rows"
                f" from offset {lowest} on is in {self._replica.root}. Nothing was written;"
                " give the store its own set's name, or export it to another lake; if the log was"
                f" cut there, and what is behind is not wanted any more, delete *{self._name.label}*"
                " of these topics in the lake"
            )

    def _has_other_topics_rows(self, store: str, spans: Sequence[Span]) -> bool:
        """Whether the oldest rows that the lake has of the set, of any topic, are in the store.

        All that it has of the topics that are exported may have been cut from the end of the log.
        """
        own = self._list(()).own
        found = sorted(at.start for at in own if self._reach(at, spans).any)
        paths = [self._path(one.path) for at, one in own.items() if at.start in found[:1]]
        if not paths:
            return False
        old = [
            one
            for one in lake_rows.first_keys(self._spark, paths, spans[0][0])
            if reach(spans, one[_AT], one[_AT] + 1).any
        ]
        return bool(old) and lake_rows.log_has_any(self._spark, store, old)

    def _refuse_another_name(self, listed: Listed, staged: dict[Place, str]) -> None:
        """A replica under a name of its own, or a set that has got another, would double its rows.

        One place that both have is enough; in the middle, for there both have all of it.
        """
        common = sorted(staged.keys() & listed.others.keys(), key=lambda at: (at.start, at.folder))
        if not common:
            return
        at = common[len(common) // 2]
        new = lake_rows.first_keys(self._spark, [self._path(staged[at])], at.start)
        others = listed.others[at]
        if not lake_rows.has_any(self._spark, list(others.values()), new):
            return
        same = [
            label for label, path in others.items() if lake_rows.has_any(self._spark, [path], new)
        ]
        raise ConfigInvalid(
            f"{self._files.root} has this log as broker set {told(same[0])} already: as"
            f" {self._name} each message would come twice. Nothing was written; use that name,"
            " or another lake"
        )

    def _merge(
        self,
        touched: dict[Place, Found],
        earlier: Mapping[str, list[str]],
        new: Staged,
        spans: Sequence[Span],
    ) -> Merged:
        """Add to what was read what stays beside it, and leave out what stands elsewhere."""
        rotten = self._rotten(new)
        carried, stay, carried_count = self._carried(touched, spans, rotten)
        staged = new.files
        mixed = {at for at in staged if at.folder in earlier or at in stay}
        files = {at: path for at, path in staged.items() if at not in mixed}
        fresh, in_lake = None, 0
        if mixed:
            fresh = self._staged([staged[at] for at in sorted(mixed)])
            others = sorted({path for at in mixed for path in earlier.get(at.folder, ())})
            if others:
                fresh = lake_rows.without(fresh, lake_rows.keys(self._spark, others))
            if rotten is not None and carried is not None:
                # What the lake has of these is as good or better.
                kept = carried.select(*lake_rows.IDENTITY)
                fresh = lake_rows.without(fresh, kept)
                in_lake = rotten.join(kept, list(lake_rows.IDENTITY), "left_semi").count()
        counts: Counter[tuple[str, str]] = Counter()
        sizes: Counter[tuple[str, str]] = Counter()
        for part in (new.sums(files), {} if fresh is None else lake_rows.days(fresh)):
            for day, (messages, size) in part.items():
                counts[day] += messages
                sizes[day] += size
        both = [one for one in (fresh, carried) if one is not None]
        if both:
            rows = both[0] if len(both) == 1 else both[0].unionByName(both[1], True)
            rows = rows.repartition(len(mixed | stay), *lake_rows.FOLDERS)
            files = files | write_by_spark(rows, self._files, f"{self._work}/merged")
        elsewhere = sum(new.messages.values()) - sum(counts.values()) - in_lake
        days = tuple((*day, counts[day], sizes[day]) for day in sorted(counts))
        return Merged(files, days, carried_count, elsewhere)

    def _rotten(self, new: Staged) -> DataFrame | None:
        """Rows that were read with bodies that nobody sent; None for none."""
        if not (new.has_rotten and new.files):
            return None
        return lake_rows.rotten(self._spark, [self._path(one) for one in new.files.values()])

    def _carried(
        self, touched: dict[Place, Found], spans: Sequence[Span], rotten: DataFrame | None
    ) -> tuple[DataFrame | None, set[Place], int]:
        """Rows of files that are read in part, at places that were not: where, and how many."""
        partly = [one.path for at, one in touched.items() if not self._reach(at, spans).all]
        if not partly:
            return None, set(), 0
        paths = [self._path(one) for one in partly]
        rows = lake_rows.read_files(self._spark, self._files.root, paths)
        rest = lake_rows.outside(self._spark, rows, spans)
        if rotten is not None:
            rest = lake_rows.without_replaced(rest, rotten)
        rest = lake_rows.in_cells(rest, self._cell_bytes)
        folders = {
            (topic_of(at.folder), at.folder.rpartition("day=")[2]): at.folder for at in touched
        }
        found = rest.groupBy(*lake_rows.FOLDERS).count().collect()
        places = {Place(folders[row.topic, row.day], row.cell) for row in found}
        return rest if places else None, places, sum(row["count"] for row in found)

    # -- what is seen ------------------------------------------------------------------------------

    def _publish(
        self,
        topics: Sequence[str],
        before: dict[Place, Found],
        touched: dict[Place, Found],
        merged: Merged,
    ) -> None:
        if self._list(topics).own != before:
            raise LakeBusy(
                f"{self._files.root}: files of {self._name} were changed by somebody else"
                " meanwhile; nothing was written, run the export again"
            )
        for at in sorted(merged.files, key=lambda at: (at.start, at.folder)):
            target = f"{at.folder}/{file_name(self._name, at.start)}"
            self._files.replace(merged.files[at], target)
        self._files.settle()
        for at in sorted(touched.keys() - merged.files.keys()):
            self._files.delete(touched[at].path)
        self._files.settle()

    def _read_again(self, new: Staged) -> set[int]:
        """Where messages that are told to be rotten were read by this export."""
        paths = [self._path(path) for path in new.files.values()]
        return lake_rows.taken(self._spark, paths, rotten_places(self._own_damage() or ()))

    def _publish_damage(self, hurt: Sequence[Damage], read_again: set[int] | None) -> None:
        """As with messages: damage at places that were not read this time stays."""
        columns = [one.split()[0] for one in _DAMAGE_TABLE.split(", ")]
        earlier = [self._path(one.path) for one in self._files.below(DAMAGE) if is_earlier(one)]
        rows = {DamageRow(*one, self._name.cluster or None, self._name.broker) for one in hurt}
        if earlier:
            known = {tuple(row) for row in self._damage(earlier, DAMAGED)}
            rows = {one for one in rows if one[:4] not in known}
        before = self._own_damage()
        if before is not None:
            low = self._replica.files[0].base if self._replica.files else 0
            rows |= damage_kept(before, rows, (low, self._end), read_again)
            if rows == before:
                return
        table = self._spark.createDataFrame(sorted(rows, key=lambda one: one.at), _DAMAGE_TABLE)
        folder = f"{self._work}/damage"
        table.select(*columns).coalesce(1).write.parquet(self._path(folder))
        (staged,) = (one for one in self._files.below(folder) if one.name.startswith("part-"))
        self._files.replace(staged.path, f"{DAMAGE}/{file_name(self._name, 0)}")
        self._files.settle()

    def _own_damage(self) -> set[DamageRow] | None:
        """None where the set has no table of it."""
        found = self._files.below(DAMAGE)
        own = [self._path(one.path) for one in found if own_place(self._name, one) is not None]
        return {DamageRow(*row) for row in self._damage(own, _DAMAGE_TABLE)} if own else None

    def _damage(self, paths: Sequence[str], schema: str) -> list[Row]:
        return self._spark.read.schema(schema).parquet(*map(literal, paths)).collect()
