"""What followed an election, on this node's clock: soft, and no event holds it.

Every node sees the commit and hears the new master; only the one that decided tells brokers.
"""

from __future__ import annotations

from msgspec import Struct

from rmqha.base.ids import BrokerId, MasterEpoch

STAGES_KEPT = 1_000


class Stages(Struct):
    """Milliseconds after this node had applied the election; None for what it does not know.

    Attributes:
        applied_ms: this node's monotonic clock.
        commit_ms: from the decision to the commit; None where another node decided.
        told_ms: the new master was told.
        slaves_told_ms: the others were.
        first_heartbeat_ms: the new master was heard in its new epoch.
    """

    applied_ms: int
    commit_ms: int | None = None
    told_ms: int | None = None
    slaves_told_ms: int | None = None
    first_heartbeat_ms: int | None = None


class ElectionStages:
    """The newest elections' stages, by broker set and master epoch.

    Attributes:
        awaited: sets whose new master was not heard in its epoch yet: (id, epoch).
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], Stages] = {}
        self.awaited: dict[str, tuple[BrokerId, int]] = {}

    def of(self, name: str, master_epoch: MasterEpoch) -> Stages | None:
        """What is known of one election."""
        return self._kept.get((name, master_epoch))

    def applied(
        self, now_ms: int, name: str, master: BrokerId | None, epoch: int, decided_ms: int | None
    ) -> None:
        """An election took effect here; ``decided_ms`` where this node decided it."""
        commit_ms = None if decided_ms is None else now_ms - decided_ms
        self._kept[name, epoch] = Stages(now_ms, commit_ms)
        self.awaited.pop(name, None)
        if master is not None:
            self.awaited[name] = (master, epoch)
        if len(self._kept) > STAGES_KEPT:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            if self.awaited.get(oldest[0], (0, 0))[1] == oldest[1]:
                del self.awaited[oldest[0]]

    def told(self, now_ms: int, name: str, epoch: int) -> None:
        """The new master was told."""
        one = self._kept.get((name, epoch))
        if one is not None and one.told_ms is None:
            one.told_ms = now_ms - one.applied_ms

    def slaves_told(self, now_ms: int, name: str, epoch: int) -> None:
        """The others were told."""
        one = self._kept.get((name, epoch))
        if one is not None and one.slaves_told_ms is None:
            one.slaves_told_ms = now_ms - one.applied_ms

    def heard(self, now_ms: int, name: str, broker_id: BrokerId, epoch: int) -> None:
        """A heartbeat of a set that is ``awaited``."""
        awaited = self.awaited.get(name)
        if awaited is None or awaited[0] != broker_id or epoch < awaited[1]:
            return
        del self.awaited[name]
        one = self._kept.get((name, awaited[1]))
        if one is not None:
            one.first_heartbeat_ms = now_ms - one.applied_ms
