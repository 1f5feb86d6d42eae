"""The leader's walk over all broker sets, a part at a time.

A walk over a hundred thousand sets, which any stranger can have registered where no users are, takes
longer than followers wait for their leader. Heartbeats and Raft are heard between two parts.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.controller.metadata.decision import LiveTable
from rmqha.controller.metadata.messages import MachineSettings
from rmqha.controller.metadata.state import BrokerSet
from rmqha.controller.metadata.vacancy import wants_election

SETS_A_PART = 1_000
"""What one turn of the loop has time for: some milliseconds."""

REST = 9
"""A walk takes a tenth of the time at most, however often it is asked for."""


class Scan:
    """Where the walk is, and when it goes on.

    Attributes:
        next_ms: when the next part is due: at once while a walk is under way.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._begun_ms = self._after_ms = 0
        self.next_ms = 0

    def begin(self) -> None:
        """The next part is the first of a new walk."""
        self._names.clear()

    def part(
        self,
        now_ms: int,
        sets: Mapping[str, BrokerSet],
        live: LiveTable,
        settings: MachineSettings,
        cold_until_ms: int,
    ) -> list[str]:
        """Walk on; the sets that want an election, in the order in which they were registered."""
        if not self._names:
            self._names = list(sets)[::-1]
            self._begun_ms = now_ms
            self._after_ms = now_ms + max(settings.scan_inactive_master_interval_ms, 1)
            if now_ms < cold_until_ms:
                self._after_ms = min(self._after_ms, cold_until_ms)
        names = self._names[: -SETS_A_PART - 1 : -1]
        del self._names[-SETS_A_PART:]
        rested_ms = now_ms + REST * (now_ms - self._begun_ms)
        self.next_ms = now_ms if self._names else max(rested_ms, self._after_ms)
        notify = settings.notify_broker_role_changed
        return [
            name
            for name in names
            if (one := sets.get(name)) is not None
            and wants_election(now_ms, one, live, notify=notify, cold_until_ms=cold_until_ms)
        ]
