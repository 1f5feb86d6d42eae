"""Why each election ended as it did: what the leader saw, replicated with its outcome.

The leader that decides writes what it knew into the event, so that every later leader tells the
same. How much is kept travels in the event too: a node's own setting must not change its state.

What does not live here: who wins (``elect``), the words for it (``why_elected``), and what happens
after the commit (``election_stages``), which no event holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from msgspec import Struct

from rmqha.base.ids import BrokerId, MasterEpoch


class Candidate(Struct, frozen=True, array_like=True):
    """One replica as the deciding leader knew it.

    Attributes:
        epoch, max_offset, priority: what its heartbeats said; -1, -1 and None when never heard.
        silent_ms: since its last sign of life; None when never heard.
        stalled_ms: for how long its disk had not answered.
        verdict: ``elected``, or why it was passed over.
    """

    broker_id: BrokerId
    epoch: int
    max_offset: int
    priority: int | None
    alive: bool
    in_sync: bool
    silent_ms: int | None
    stalled_ms: int
    verdict: str


class Why(Struct, frozen=True, array_like=True):
    """What an election's event tells beside its outcome.

    Attributes:
        kept_per_set: so many of the set's elections are kept, this one among them.
        kept_in_all: so many of all sets'.
        decided_ms: since 1970, by the leader's clock; None when the leader knew no time of day.
        waited_ms: from noticing to deciding.
        candidates: by id; ``left_out`` more are not here.
    """

    kept_per_set: int
    kept_in_all: int
    decided_ms: int | None
    waited_ms: int
    candidates: tuple[Candidate, ...]
    left_out: int = 0


class ElectionRecord(Struct, frozen=True, array_like=True):
    """One election that is kept.

    Attributes:
        number: grows over all sets' elections that are kept.
        old_master, new_master: None for nobody.
    """

    number: int
    old_master: BrokerId | None
    new_master: BrokerId | None
    master_epoch: MasterEpoch
    trigger: str
    reason: str
    unclean: bool
    why: Why


class Kept(Protocol):
    """A broker set, as far as this file cares."""

    elections: tuple[ElectionRecord, ...]


class ElectionOrder:
    """Which set each kept election belongs to, the oldest first: a function of the sets alone."""

    def __init__(self, sets: Mapping[str, Kept]) -> None:
        """Read what the sets hold, in whatever order they come."""
        found = [(one.number, name) for name, kept in sets.items() for one in kept.elections]
        self._names: dict[int, str] = dict(sorted(found))

    def __len__(self) -> int:
        """How many are kept in all."""
        return len(self._names)

    def next_number(self) -> int:
        """One more than the newest that is kept, on every node the same."""
        return next(reversed(self._names), 0) + 1

    def add(self, number: int, name: str) -> None:
        """A set has one more; its number is ``next_number``."""
        self._names[number] = name

    def forget(self, records: tuple[ElectionRecord, ...]) -> None:
        """These are no longer kept."""
        for one in records:
            del self._names[one.number]

    def oldest(self) -> str:
        """The set of the oldest one."""
        return next(iter(self._names.values()))

    def newest(self) -> Iterator[tuple[int, str]]:
        """(number, set), the newest first."""
        return reversed(self._names.items())
