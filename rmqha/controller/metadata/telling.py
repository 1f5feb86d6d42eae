"""Lines about committed changes: with the times they took, and of a storm only the first ones."""

from __future__ import annotations

from rmqha.base.ids import Term
from rmqha.base.machine import Note
from rmqha.controller.metadata.lanes import Work

TOLD_PER_SECOND_MAX = 200
"""Changes of SyncStateSets that get a line in the log; what is left out is counted there."""


class Telling:
    """Decides which of this leader's changes people read about."""

    def __init__(self) -> None:
        """Start with nothing told."""
        self._second = 0
        self._count = 0
        self._untold = 0

    def may_tell(self, now_ms: int) -> bool:
        """Count a change; whether people can still follow this second's."""
        second = now_ms // 1000
        if second != self._second:
            self._untold += max(0, self._count - TOLD_PER_SECOND_MAX)
            self._second, self._count = second, 0
        self._count += 1
        return self._count <= TOLD_PER_SECOND_MAX

    def told(self, now_ms: int, note: Note, work: Work, log_index: int, term: Term) -> list[Note]:
        """The line of a change, and one that counts those left out before it.

        Args:
            now_ms: when it was committed and applied.
            note: what apply says about it.
            work: what it was proposed for.
            log_index, term: where it stands in the log.
        """
        stages = {
            "waited_ms": work.proposed_ms - work.arrived_ms,
            "commit_ms": now_ms - work.proposed_ms,
            "log_index": log_index,
            "term": term,
        }
        lines = [Note(note.event, note.level, {**note.facts, **stages})]
        if self._untold:
            counts = {"sync_state_set_changed": self._untold}
            lines.append(Note("notes_left_out", facts={"counts": counts}))
            self._untold = 0
        return lines
