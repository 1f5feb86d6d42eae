"""Says of each replica why it was elected or passed over, by the rules of ``elect``.

Only words: who wins is decided before, and these follow the same ranks.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from rmqha.base.ids import BrokerId
from rmqha.controller.metadata.decision import LiveInfo
from rmqha.controller.metadata.elect import held_back, rank
from rmqha.controller.metadata.election_records import Candidate

CANDIDATES_MAX = 32
"""So many are written down with an election; the elected one is always among them."""

ELECTED = "elected"
CAME_BACK = (
    "came back with less, or has not said with what, and others of the SyncStateSet may have more"
)
_RANKS = ("older epoch", "shorter log", "lower priority", "greater id")


class Ballot(Struct, frozen=True):
    """What one election was decided on.

    Attributes:
        replicas: ascending ids of everybody registered.
        sync_state_set: of them, who was in sync.
        any_replica: a first election: being in sync did not matter.
        elected: None for nobody.
        old_master: None for nobody.
        prefer: the only one that would do.
        asked_first: the first election of a set that never lived goes to who asks.
    """

    replicas: tuple[BrokerId, ...]
    sync_state_set: tuple[BrokerId, ...]
    any_replica: bool
    elected: BrokerId | None
    old_master: BrokerId | None
    prefer: BrokerId | None
    asked_first: bool
    alive: Callable[[BrokerId], bool]
    info: Callable[[BrokerId], LiveInfo | None]


def candidates(now_ms: int, ballot: Ballot) -> tuple[tuple[Candidate, ...], int]:
    """Each replica with its verdict, by id, and how many are left out."""
    kept = ballot.replicas
    if len(kept) > CANDIDATES_MAX:
        first = sorted(kept, key=lambda one: (one != ballot.elected, _ranked(ballot, one)))
        kept = tuple(sorted(first[:CANDIDATES_MAX]))
    return tuple(_candidate(now_ms, ballot, one) for one in kept), len(ballot.replicas) - len(kept)


def _ranked(ballot: Ballot, broker_id: BrokerId) -> tuple[bool, tuple[int, int, int, int]]:
    return broker_id not in ballot.sync_state_set, rank(broker_id, ballot.info(broker_id))


def _candidate(now_ms: int, ballot: Ballot, broker_id: BrokerId) -> Candidate:
    said, heard = ballot.info(broker_id), verdict(ballot, broker_id)
    alive, in_sync = ballot.alive(broker_id), broker_id in ballot.sync_state_set
    if said is None:
        return Candidate(broker_id, -1, -1, None, alive, in_sync, None, 0, heard)
    return Candidate(
        broker_id, said.epoch, said.max_offset, said.priority, alive, in_sync,
        max(0, now_ms - said.heard_ms), said.stalled_ms, heard,
    )  # fmt: skip


def verdict(ballot: Ballot, broker_id: BrokerId) -> str:
    """``elected``, or the first rule that speaks against this one."""
    if broker_id == ballot.elected:
        return ELECTED
    said = ballot.info(broker_id)
    if said is not None and said.learner:
        return "a learner"
    if not ballot.alive(broker_id):
        return "never heard" if ballot.info(broker_id) is None else "not alive"
    if ballot.prefer is not None and broker_id != ballot.prefer:
        return "another is designated"
    in_sync = ballot.any_replica or broker_id in ballot.sync_state_set
    elected = ballot.elected
    if not in_sync and (elected is None or elected in ballot.sync_state_set):
        return "not in the SyncStateSet"
    if not ballot.any_replica and broker_id in held_back(
        ballot.sync_state_set, ballot.alive, ballot.info
    ):
        return CAME_BACK
    if elected is None:
        return "awaits a newer log"
    if ballot.asked_first:
        return "another asked first"
    if elected == ballot.old_master:
        return "the master is alive"
    return _behind(ballot, broker_id, elected)


def _behind(ballot: Ballot, broker_id: BrokerId, elected: BrokerId) -> str:
    own, best = ballot.info(broker_id), ballot.info(elected)
    clean = ballot.any_replica or elected in ballot.sync_state_set
    if clean and _stalled(own) and not _stalled(best):
        return "its disk stands still or is full"
    mine, theirs = rank(broker_id, own), rank(elected, best)
    return next(word for word, a, b in zip(_RANKS, mine, theirs, strict=True) if a != b)


def _stalled(said: LiveInfo | None) -> bool:
    return said is not None and said.stalled_ms > 0


def passed_over(found: tuple[Candidate, ...]) -> str:
    """For people: ``2 (not alive), 3 (shorter log)``; empty when nobody was."""
    return ", ".join(f"{one.broker_id} ({one.verdict})" for one in found if one.verdict != ELECTED)
