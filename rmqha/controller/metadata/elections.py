"""The last elections as a node saw them applied, for people. Soft state: gone after a restart."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from rmqha.base.ids import MasterEpoch
from rmqha.base.machine import Note

ELECTIONS_KEPT = 50
RESULTS: dict[str, str] = {
    "master_elected": "elected",
    "master_elected_unclean": "elected unclean",
    "master_lost": "no master",
}


class Election(NamedTuple):
    """One change of a set's master.

    Attributes:
        time_ms: since 1970, when this node applied it; None when it replayed an older log.
        commit_ms: from the decision to the commit; None on a node that did not decide.
        passed_over: who else was there, and why not; empty where no history is kept.
    """

    time_ms: int | None
    broker_name: str
    old_master: int | None
    new_master: int | None
    master_epoch: MasterEpoch
    reason: str
    result: str
    commit_ms: int | None
    passed_over: str = ""


class Elections:
    """The newest elections of all sets, newest first."""

    def __init__(self, kept_max: int = ELECTIONS_KEPT) -> None:
        self._kept: deque[Election] = deque(maxlen=kept_max)

    def newest(self) -> tuple[Election, ...]:
        """All that are kept."""
        return tuple(self._kept)

    def noted(self, note: Note, time_ms: int | None) -> None:
        """Keep a note of the machine if it tells of an election."""
        result = RESULTS.get(note.event)
        if result is None:
            return
        facts = note.facts
        why = ", ".join(str(facts[key]) for key in ("trigger", "reason") if facts.get(key))
        self._kept.appendleft(
            Election(
                time_ms,
                facts["broker_name"],
                facts["old_master_broker_id"],
                facts["new_master_broker_id"],
                facts["master_epoch"],
                why,
                result,
                facts.get("commit_ms"),
                facts.get("passed_over", ""),
            )
        )
