"""The last ten minutes of a node's documents, in little: what the page draws, and since when.

Pure. It is given each document once; it keeps a sample every few seconds, of so many broker sets,
and when each trouble that is there now was seen first.
"""

from __future__ import annotations

from collections import deque

import msgspec
from msgspec import Struct

from rmqha.web.document import BrokerSetView, ReplicaView, StatusDocument
from rmqha.web.presence import Before, Presence
from rmqha.web.verdict import is_unheard, troubles_of

SAMPLE_MS = 5_000
SAMPLES_MAX = 120
SETS_MAX = 50
"""Broker sets that have charts; a cluster of thousands has its figures in Prometheus."""


class SetSample(Struct, frozen=True):
    """One broker set at one moment; None where the node does not know.

    Attributes:
        put_tps: the master's.
        gap_bytes: of the replica that is furthest behind, among those that are alive.
        alive, in_sync: how many replicas.
        epoch: the master's.
    """

    name: str
    has_master: bool
    alive: int | None = None
    in_sync: int | None = None
    put_tps: float | None = None
    gap_bytes: int | None = None
    epoch: int | None = None


class Sample(Struct, frozen=True):
    """All sets at one moment."""

    time_ms: int
    sets: tuple[SetSample, ...]


def sample_of(one: BrokerSetView) -> SetSample:
    """What is kept of a broker set."""
    master = next((r for r in one.replicas if r.role == "master" and not _is_gone(r)), None)
    gaps = [r.gap_bytes for r in one.replicas if r.gap_bytes is not None and r.alive is not False]
    lives = [r.alive for r in one.replicas if r.alive is not None]
    syncs = [r.in_sync for r in one.replicas if r.in_sync is not None]
    return SetSample(
        f"{one.cluster}/{one.broker_name}",
        master is not None,
        sum(lives) if lives else None,
        sum(syncs) if syncs else None,
        None if master is None else master.put_tps,
        max(gaps, default=None),
        one.master_epoch,
    )


def _is_gone(one: ReplicaView) -> bool:
    return one.alive is False and not is_unheard(one)


class History:
    """Samples, oldest first, and the beginnings of troubles.

    Attributes:
        since: when each trouble was seen first; troubles of the very first document are absent,
            for they may be older.
        before: what was in the documents before the newest, and is not in it.
    """

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._troubles: frozenset[str] | None = None
        self.since: dict[str, int] = {}
        self._presence = Presence()
        self.before = Before()

    def add(self, document: StatusDocument) -> None:
        """Take in a document that is newer than those before."""
        self.before = self._presence.add(document)
        troubles = troubles_of(document, self.before)
        if self._troubles is not None:
            for key in troubles - self._troubles:
                self.since[key] = document.time_ms
        for key in self.since.keys() - troubles:
            del self.since[key]
        self._troubles = troubles
        if not self._samples or document.time_ms - self._samples[-1].time_ms >= SAMPLE_MS:
            sets = tuple(map(sample_of, document.broker_sets[:SETS_MAX]))
            self._samples.append(Sample(document.time_ms, sets))

    @property
    def samples(self) -> tuple[Sample, ...]:
        """What is kept."""
        return tuple(self._samples)

    def encode(self) -> bytes:
        """JSON, member names as above."""
        return msgspec.json.encode(self.samples)
