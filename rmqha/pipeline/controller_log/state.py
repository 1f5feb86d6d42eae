"""The controller's state at any index, made again from the rows of its log and snapshots.

A state is known only when every entry since a snapshot (or since the first entry) is there: what
is missing is told, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from rmqha.base.errors import InvariantBroken, StoreCorrupted
from rmqha.controller.metadata.apply import apply
from rmqha.controller.metadata.state import BrokerSet, MetadataState
from rmqha.pipeline.controller_log.records import (
    COMPARED,
    LEADER,
    MARKED,
    MEMBERS,
    SNAPSHOT,
    event_of,
)


class Known(Struct, frozen=True):
    """An entry of the log that was not cut, or a snapshot."""

    index: int
    kind: str
    fields: str | None


class Fact(Struct, frozen=True):
    """One value of a state.

    Attributes:
        at: the index.
        broker_set, key, value: such as ``broker-a``, ``masterEpoch``, ``3``; without a set, how
            many there are.
        unknown: why the state at this index is not known; the other fields are then None.
    """

    at: int
    broker_set: str | None = None
    key: str | None = None
    value: str | None = None
    unknown: str | None = None


def facts(rows: Iterable[Known], ats: Sequence[int]) -> Iterator[Fact]:
    """The states of one controller at some indexes.

    Args:
        rows: by index, an entry before a snapshot of the same index.
        ats: indexes, from 0.
    """
    replay = _Replay()
    wanted = sorted(set(ats))
    for row in rows:
        while wanted and wanted[0] < row.index:
            yield from replay.facts(wanted.pop(0), row.index)
        if not wanted:
            return
        broken = replay.take(row)
        if broken is not None:
            yield Fact(row.index, unknown=broken)
    for at in wanted:
        yield from replay.facts(at, None)


class _Compared(Struct, frozen=True):
    """The fields of a ``StateCompared`` in a row."""

    log_index: int
    digest: str


class _Replay:
    def __init__(self) -> None:
        self._state = MetadataState()
        self._marked = (0, "")
        self._last = 0
        self._lost: str | None = None

    def take(self, row: Known) -> str | None:
        """Take the next row; returns what a snapshot or a digest contradicts."""
        if row.kind == SNAPSHOT:
            return self._snapshot(row)
        if self._lost is not None or row.index <= self._last:
            return None
        if row.index > self._last + 1:
            self._lost = f"entry {self._last + 1} is missing"
            return None
        broken = None
        try:
            if row.kind == COMPARED:
                broken = self._compared(row.index, row.fields or "")
            elif row.kind == MARKED:
                self._marked = row.index, self._state.packed.digest()
            elif row.kind not in (LEADER, MEMBERS):
                apply(self._state, event_of(row.kind, row.fields or ""), tell=False)
        except (StoreCorrupted, InvariantBroken) as error:
            self._lost = f"entry {row.index} cannot be applied: {error}"
            return None
        self._last = row.index
        return broken

    def _compared(self, index: int, fields: str) -> str | None:
        try:
            said = msgspec.json.decode(fields, type=_Compared)
        except msgspec.DecodeError as error:
            raise StoreCorrupted(f"not a digest: {error}") from error
        at, digest = self._marked
        if at != said.log_index or digest == said.digest:
            return None
        return f"entry {index} says that the leader's state at {at} was not what the log makes"

    def _snapshot(self, row: Known) -> str | None:
        try:
            found = MetadataState.from_snapshot(msgspec.json.decode(row.fields or ""))
        except (msgspec.DecodeError, StoreCorrupted) as error:
            return f"the snapshot at {row.index} cannot be read: {error}"
        differs = self._lost is None and self._last == row.index and found != self._state
        self._state, self._last, self._lost = found, row.index, None
        return f"the snapshot at {row.index} is not what the log makes" if differs else None

    def facts(self, at: int, following: int | None) -> Iterator[Fact]:
        """The state at ``at``, knowing the next index that there is."""
        unknown = self._lost
        if unknown is None and at != self._last:
            end = f"the log ends at {self._last}"
            unknown = end if following is None else f"entry {self._last + 1} is missing"
        if unknown is not None:
            yield Fact(at, unknown=unknown)
            return
        yield Fact(at, "", "brokerSets", str(len(self._state.sets)))
        for name in sorted(self._state.sets):
            for key, value in _values(self._state.sets[name]):
                yield Fact(at, name, key, value)


def _values(one: BrokerSet) -> Iterator[tuple[str, str | None]]:
    yield "clusterName", one.cluster_name
    yield "masterBrokerId", None if one.master_broker_id is None else str(one.master_broker_id)
    yield "masterEpoch", str(one.master_epoch)
    yield "syncStateSet", msgspec.json.encode(one.sync_state_set).decode()
    yield "syncStateSetEpoch", str(one.sync_state_set_epoch)
    yield "lastIssuedId", str(one.last_issued_id)
    yield "retiredIds", msgspec.json.encode(one.retired_ids).decode()
    for broker_id in sorted(one.replicas):
        yield f"broker {broker_id}", one.replicas[broker_id].address
