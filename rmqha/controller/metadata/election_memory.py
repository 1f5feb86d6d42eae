"""What a controller remembers of elections: how each ended, and which were a moment ago."""

from __future__ import annotations

from rmqha.controller.metadata.answers import ELECTION_RESULTS
from rmqha.controller.metadata.events import MasterElected
from rmqha.controller.metadata.lanes import Work
from rmqha.controller.metadata.state import MetadataState
from rmqha.remoting.codes import RequestCode

_RESULTS = tuple(sorted(set(ELECTION_RESULTS.values())))


class ElectionMemory:
    """Soft: a restart begins anew.

    Attributes:
        counts: elections by (cluster, set, result), for the metric ``election_total``; of sets that
            there are.
    """

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self.counts: dict[tuple[str, str, str], int] = {}
        self._elected_ms: dict[str, int] = {}

    def count(self, state: MetadataState, work: Work, code: int) -> None:
        """Count how an election ended; other work is none."""
        is_election = (
            work.request is None or work.request.code == RequestCode.CONTROLLER_ELECT_MASTER
        )
        broker_set = state.sets.get(work.broker_name)
        result = ELECTION_RESULTS.get(code)
        if is_election and broker_set is not None and result is not None:
            key = (broker_set.cluster_name, work.broker_name, result)
            self.counts[key] = self.counts.get(key, 0) + 1

    def removed(self, cluster: str, name: str) -> None:
        """A set is gone, and what was counted of it."""
        for result in _RESULTS:
            self.counts.pop((cluster, name, result), None)

    def replaced(self, state: MetadataState) -> None:
        """The replicated state is another one."""
        for key in [key for key in self.counts if key[1] not in state.sets]:
            del self.counts[key]

    def committed(self, now_ms: int, event: MasterElected, window_ms: int) -> None:
        """Remember a set's newest master, and forget one that was elected before the window."""
        self._elected_ms.pop(event.broker_name, None)
        if event.new_master_broker_id is not None:
            self._elected_ms[event.broker_name] = now_ms
        oldest = next(iter(self._elected_ms), None)
        if oldest is not None and now_ms - self._elected_ms[oldest] > window_ms:
            del self._elected_ms[oldest]

    def recent(self, now_ms: int, window_ms: int) -> list[str]:
        """The sets whose master was elected within the window, the oldest first."""
        return [name for name, at_ms in self._elected_ms.items() if now_ms - at_ms <= window_ms]
