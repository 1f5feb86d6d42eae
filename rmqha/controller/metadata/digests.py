"""Nodes that applied the same entries hold the same state, and see it when they do not.

Every so many entries the leader lets the log hold a mark. Each node takes the digest of its state
when it applies the mark, so all of them at the same place. The leader tells its own in a second
record, and a node whose digest is another one stops (ADR 0019).

What does not live here: the digest itself (``packed``), and the records (``events``).
"""

from __future__ import annotations

import sys

from rmqha.base.errors import InvariantBroken
from rmqha.base.ids import Term
from rmqha.controller.metadata.events import StateCompared, StateMarked, to_mark
from rmqha.controller.metadata.state import MetadataState

MARKS_MAX = 4
"""A leader tells its digest at once, so older marks wait for nothing."""

CHECKED_SETS = 100
"""At a mark so many sets are looked at that nobody has changed."""

NEVER = sys.maxsize


class Digests:
    """What this node's state was at the newest marks.

    Attributes:
        due_index: the leader marks the log once it has applied this index.
        compared: how often this node's digest was held against a leader's.
    """

    def __init__(self) -> None:
        self._every = 0
        self._marks: dict[int, str] = {}
        self.due_index = NEVER
        self.compared = 0

    def configure(self, every: int, applied_index: int) -> None:
        """Mark every so many entries from here on; 0 for never."""
        if every != self._every:
            self._every = every
            self.passed(applied_index)

    def passed(self, index: int) -> None:
        """The log is marked here, or will be, or the state came by a snapshot."""
        self.due_index = index + self._every if self._every else NEVER

    def mark(self, index: int, term: Term) -> bytes:
        """The record with which the leader of ``term`` marks the log, having applied ``index``."""
        self.passed(index)
        return to_mark(StateMarked(term))

    def committed(
        self, index: int, record: StateMarked | StateCompared, state: MetadataState
    ) -> bytes | None:
        """Take this node's digest, or compare it.

        Returns:
            The record with which a leader tells its digest.

        Raises:
            InvariantBroken: a set has changed without an event, or the digests differ.
        """
        if isinstance(record, StateCompared):
            self._compare(record)
            return None
        changed = state.packed.check_some(CHECKED_SETS)
        if changed is not None:
            raise InvariantBroken(
                f"at entry {index} broker set {changed} of this node is not what the log made of it"
            )
        digest = state.packed.digest()
        self._marks[index] = digest
        if len(self._marks) > MARKS_MAX:
            del self._marks[min(self._marks)]
        self.passed(index)
        return to_mark(StateCompared(index, digest))

    def _compare(self, said: StateCompared) -> None:
        own = self._marks.get(said.log_index)
        if own is None:  # The state came by a snapshot that is newer than the mark.
            return
        self.compared += 1
        if own != said.digest:
            raise InvariantBroken(
                f"this node's state differs from its leader's: at entry {said.log_index} it is"
                f" {own}, the leader's is {said.digest}"
            )
