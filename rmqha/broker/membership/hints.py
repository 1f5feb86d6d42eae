"""What anybody may say of another master (1008): it makes this broker ask, and nothing else.

A made-up master would make a replica cut its log, a made-up epoch fence it for good. So the
controllers are asked, all at once, since whoever told may lead since a moment ago, and each at
most every so often.
"""

from __future__ import annotations

from rmqha.base.ids import MasterEpoch
from rmqha.broker.common.replicas_settings import ReplicasSettings
from rmqha.broker.membership.agenda import Agenda, Job


class Hints:
    """The newest hint, and when it may be looked into."""

    def __init__(self, settings: ReplicasSettings, agenda: Agenda) -> None:
        self._settings = settings
        self._agenda = agenda
        self._epoch = 0
        self._check_from_ms = 0

    def heard(
        self,
        now_ms: int,
        hint: tuple[int, MasterEpoch, str],
        known: tuple[int | None, MasterEpoch, str],
        own_id: int | None,
    ) -> None:
        """Somebody told of a master, by id, epoch and address: have it checked, if that is news."""
        master_id, epoch, _ = hint
        if own_id is None or master_id < 1 or epoch < max(1, known[1]):
            return
        if hint == known and master_id != own_id:
            return
        self._epoch = epoch
        self._agenda.due[Job.CHECK] = max(now_ms, self._check_from_ms)

    def may_check(self, now_ms: int) -> bool:
        """Whether to ask now; the next check waits for its time, and for this one's answers."""
        self._check_from_ms = now_ms + self._settings.check_gap_ms
        if self._agenda.is_asking(Job.CHECK):
            self._agenda.due[Job.CHECK] = self._check_from_ms
            return False
        return True

    def checked(self, now_ms: int, master_epoch: MasterEpoch) -> None:
        """One controller answered or did not. Nobody confirmed the hint: the next poll comes
        sooner, in case the leader was in a hurry."""
        if not self._agenda.is_asking(Job.CHECK) and self._epoch > master_epoch:
            self._epoch = 0
            if Job.POLL in self._agenda.due:
                self._agenda.sooner(Job.POLL, now_ms + self._settings.busy_retry_ms)
