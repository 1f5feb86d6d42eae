"""A master that lost power, or its log: it does not resume its epoch, but lets a replica reign that has all.

In its old epoch it would write a second history beside what others hold (ADR 0013). It names the
members of its SyncStateSet one after another to the controllers. Where none can reign it leaves,
so that the controllers miss it and elect anew, perhaps itself in a newer epoch. Where all are there
and came back with less it is elected anew at once: each would wait for the other for ever.

One whose log is empty was emptied while it was down, if others are in the set (ADR 0018).
"""

from __future__ import annotations

from rmqha.base.ids import MasterEpoch
from rmqha.base.machine import Note
from rmqha.broker.common.replicas_settings import ReplicasSettings
from rmqha.broker.membership.agenda import Agenda, Job
from rmqha.broker.membership.events import Effect, Leave
from rmqha.broker.membership.leader_search import LeaderSearch


class HandingOver:
    """What one replica still has to hand over.

    Attributes:
        lost_epoch: the epoch that it must not reign in again, 0 for none.
        is_empty: its log held nothing at the start.
    """

    def __init__(self, settings: ReplicasSettings, agenda: Agenda, search: LeaderSearch) -> None:
        self._settings = settings
        self._search = search
        self._agenda = agenda
        self.lost_epoch = 0
        self.is_empty = False
        self._heirs: tuple[int, ...] = ()
        self._is_best = self._is_leaving = False

    def gives_up(self, epoch: MasterEpoch, others: frozenset[int], *, is_first: bool) -> bool:
        """Whether it does not reign in an epoch in which the controllers name it.

        Args:
            others: of the set.
            is_first: it has had no role since its start, and was not elected upon its own request; one
                that was is the best that is left.
        """
        if self.is_empty and others and is_first:
            self.lost_epoch = epoch
            self._agenda.due.pop(Job.HEARTBEAT, None)  # the controllers shall miss it
        return epoch == self.lost_epoch

    def is_pending(self, master_epoch: MasterEpoch) -> bool:
        """Whether somebody is to be named, and no newer epoch has begun meanwhile."""
        return bool(self._heirs) and master_epoch <= self.lost_epoch

    def next_named(self) -> dict[str, str]:
        """Whom to name now: one after another, attempt by attempt; itself where that was asked for."""
        if self._is_best:
            self._is_best = False
            return {"anew": "true"}
        return {
            "brokerId": str(self._heirs[self._agenda.attempts[Job.HAND_OVER] % len(self._heirs)])
        }

    def begin(self, now_ms: int, others: frozenset[int]) -> list[Effect]:
        """The controllers say that this replica reigns, with these others in the set."""
        self._heirs = tuple(sorted(others))
        effects: list[Effect] = []
        agenda = self._agenda
        if others and Job.HAND_OVER not in agenda.due and not agenda.is_asking(Job.HAND_OVER):
            facts = {"epoch": self.lost_epoch, "heirs": self._heirs}
            effects.append(Note("mastership_not_resumed", "error", facts))
            agenda.again(now_ms, Job.HAND_OVER, self._settings.elect_retry_ms_max)
        return effects + self._leave(now_ms) if self._must_leave() else effects

    def refused(self, now_ms: int, *, is_best: bool) -> list[Effect]:
        """The controllers did not elect the heir that was named.

        Args:
            is_best: they say that all heirs are there and came back with less.
        """
        self._is_best = is_best
        return self._leave(now_ms) if self._must_leave() and not self._is_leaving else []

    def _must_leave(self) -> bool:
        """Whether nobody else can reign, or need be waited for.

        Where slaves must acknowledge, nobody reigns while all other members of the set are dead:
        what they hold may be acknowledged. Elsewhere each of them is asked for once.
        """
        asked_for = self._agenda.attempts[Job.HAND_OVER] - 1
        refused = asked_for >= len(self._heirs) and not self._settings.slaves_must_acknowledge
        return not self._heirs or refused

    def _leave(self, now_ms: int) -> list[Effect]:
        """Be missed by the controllers, and elected anew."""
        effects: list[Effect] = []
        if not self._is_leaving:
            limit_ms = self._settings.controller_heart_beat_timeout_ms
            facts = {"epoch": self.lost_epoch, "limit_ms": limit_ms}
            effects.append(Note("waits_to_be_missed", "error", facts))
        self._is_leaving = True
        self._agenda.due[Job.POLL] = now_ms + self._settings.elect_retry_ms_max
        return [*effects, Leave(self._search.controllers)]
