"""A store as hashes of its ranges, in a file: audits of machines that share nothing.

Each machine hashes its own store with the same seed, and only these files travel. Where they differ,
the machines hash the records of those ranges, too, and the message is named. Nothing here needs Spark.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import msgspec
from msgspec import Struct

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.commitlog.compare import (
    GONE,
    RANGE_BYTES,
    Difference,
    Seen,
    Span,
    alone,
    differences,
    hash_of,
    nameless,
    plan_alone,
    records_of,
)
from rmqha.pipeline.commitlog.store_folder import StoreFolder, read_identity

FILE_FORMAT = 1
SEED_CHARACTERS_MIN = 16


class HashedRange(Struct, frozen=True, array_like=True):
    """Bytes ``[start, stop)``, the epoch in which they lie there, and their hash."""

    start: int
    stop: int
    epoch: int | None
    hash: str


class HashedStore(Struct, frozen=True, rename="camel"):
    """What one machine tells of its store.

    Attributes:
        format: of this file.
        store: its name.
        broker_set: whose it is by its identity file; empty without one.
        seed_mark: of the seed, which itself is not told.
        range_bytes: size of a range, at most.
        up_to: where hashing was told to end, or the confirm offset; None when the log's end did it.
        ranges: ascending.
        records: of the ranges that were asked for record by record.
    """

    format: int
    store: str
    broker_set: str
    seed_mark: str
    range_bytes: int
    up_to: int | None
    ranges: list[HashedRange]
    records: list[Seen]


class Compared(Struct, frozen=True):
    """What files of hashes say together.

    Attributes:
        ranges: that at least two stores have alike in place.
        different: ranges that differ in bytes, epoch, or in where they begin and end.
        differences: message by message, of those whose records at least two files have.
        unnamed: ranges that differ and of which not all that have them tell the records.
        nameless: ranges that differ and in whose records, which all tell, nothing does.
        left_out: bytes at the ends that only some stores have hashed.
        alone: indexes of the stores that have no range that another has, too.
    """

    ranges: int
    different: tuple[Span, ...]
    differences: tuple[Difference, ...]
    unnamed: tuple[Span, ...]
    nameless: tuple[Span, ...]
    left_out: tuple[Span, ...]
    alone: tuple[int, ...]


def hash_store(
    replica: StoreFolder,
    seed: str,
    *,
    up_to: int | None = None,
    range_bytes: int = RANGE_BYTES,
    by_record: Sequence[Span] = (),
) -> HashedStore:
    """Hash a store up to its confirm offset.

    Args:
        seed: the same on all machines, and of this audit only.
        up_to: an offset, instead of the confirm offset.
        by_record: spans of the log in which the records are hashed, too.

    Raises:
        ConfigInvalid: the seed is too short.
        OSError: a file cannot be read.
    """
    if len(seed) < SEED_CHARACTERS_MIN:
        raise ConfigInvalid(f"--seed needs at least {SEED_CHARACTERS_MIN} characters")
    plan = plan_alone(replica, up_to=up_to, range_bytes=range_bytes)
    key = seed.encode()
    hashed = [HashedRange(one.start, one.stop, one.epoch, hash_of(one, key)) for one in plan.ranges]
    ranges = [one for one in hashed if one.hash != GONE]
    records = {
        seen.physical_offset: seen
        for one in plan.ranges
        if any(one.start < stop and one.stop > start for start, stop in by_record)
        for seen in records_of(replica, one)
    }
    identity = read_identity(replica.root)
    whose = "" if identity is None else f"{identity.cluster_name}/{identity.broker_name}"
    mark = hashlib.sha256(b"seed " + key).hexdigest()[:16]
    return HashedStore(
        FILE_FORMAT, replica.name, whose, mark, range_bytes, plan.confirm_offset, ranges,
        [records[at] for at in sorted(records)],
    )  # fmt: skip


def encode(found: HashedStore) -> bytes:
    """As a file."""
    return msgspec.json.encode(found)


def decode(data: bytes, path: str) -> HashedStore:
    """From a file.

    Raises:
        ConfigInvalid: it is none of these, or of another format.
    """
    try:
        found = msgspec.json.decode(data, type=HashedStore)
    except msgspec.DecodeError as error:
        raise ConfigInvalid(f"{path} was not written by --hash-only: {error}") from error
    if found.format != FILE_FORMAT:
        raise ConfigInvalid(f"{path} has format {found.format}; this release reads {FILE_FORMAT}")
    return found


def compare(stores: Sequence[HashedStore]) -> Compared:
    """Compare what machines have told.

    Raises:
        ConfigInvalid: fewer than two, or they cannot be compared.
    """
    _refuse(stores)
    bad: set[Span] = set()
    both: set[Span] = set()
    left_out: set[Span] = set()
    for one, other in combinations(stores, 2):
        _compare_two(one, other, both, bad, left_out)
    named: dict[int, Difference] = {}
    unnamed, told = [], []
    spans = [[(one.start, one.stop) for one in store.ranges] for store in stores]
    have = Counter(span for mine in spans for span in set(mine))
    records = [_Records(store.records) for store in stores]
    for span in sorted(bad):
        seen = _records_in(records, span)
        present = sorted({one.replica for one in seen})
        if len(present) < max(2, have[span]):
            unnamed.append(span)
        else:
            told.append(span)
        if len(present) > 1:
            for found in differences(seen, [one.store for one in stores], present):
                named.setdefault(found.physical_offset, found)
    shown = tuple(named[at] for at in sorted(named))
    return Compared(
        len(both), tuple(sorted(bad)), shown, tuple(unnamed), tuple(nameless(told, shown)),
        tuple(sorted(left_out)), tuple(alone(spans)),
    )  # fmt: skip


def _refuse(stores: Sequence[HashedStore]) -> None:
    if len(stores) < 2:
        raise ConfigInvalid("--compare takes at least two files")
    first = stores[0]
    for other in stores[1:]:
        for name, mine, its in (
            ("seeds", first.seed_mark, other.seed_mark),
            ("sizes of ranges", first.range_bytes, other.range_bytes),
            ("broker sets", first.broker_set, other.broker_set),
        ):
            if mine != its and mine and its:
                raise ConfigInvalid(
                    f"{first.store} and {other.store} were hashed with different {name},"
                    f" {mine} and {its}"
                    if name != "broker sets"
                    else f"{first.store} is of broker set {mine}, {other.store} of {its}"
                )


def _compare_two(
    one: HashedStore, other: HashedStore, both: set[Span], bad: set[Span], left_out: set[Span]
) -> None:
    mine = {(range_.start, range_.stop): range_ for range_ in one.ranges}
    its = {(range_.start, range_.stop): range_ for range_ in other.ranges}
    low, high = _common(one, other)
    for span in sorted(mine.keys() | its.keys()):
        if span[0] < low or span[1] > high:
            if span[1] > high and span[0] >= low:
                left_out.add(span)
            continue
        if span not in mine or span not in its:
            bad.add(span)
            continue
        both.add(span)
        epochs = {mine[span].epoch, its[span].epoch} - {None}
        if mine[span].hash != its[span].hash or len(epochs) > 1:
            bad.add(span)


def _common(one: HashedStore, other: HashedStore) -> Span:
    """From where to where ranges of both are comparable: between edges that both have."""
    edges = [
        {edge for range_ in store.ranges for edge in (range_.start, range_.stop)}
        for store in (one, other)
    ]
    shared = edges[0] & edges[1]
    if not shared:
        return 0, 0
    return min(shared), max(shared)


def _records_in(stores: Sequence[_Records], span: Span) -> list[Seen]:
    return [
        msgspec.structs.replace(seen, replica=index)
        for index, store in enumerate(stores)
        for seen in store.crossing(span)
    ]


class _Records:
    """The records of a store, each of which ends before the next one begins."""

    def __init__(self, records: Sequence[Seen]) -> None:
        self._records = sorted(records, key=lambda one: one.physical_offset)
        self._begins = [one.physical_offset for one in self._records]

    def crossing(self, span: Span) -> list[Seen]:
        """Those that have a byte in a range; a log has millions, and many ranges may differ."""
        first = max(0, bisect_right(self._begins, span[0]) - 1)
        found = self._records[first : bisect_left(self._begins, span[1])]
        return [one for one in found if one.physical_offset + one.size > span[0]]
