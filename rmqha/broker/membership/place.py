"""A replica's place in its set: who is master of which epoch, and whether that role is taken up.

``place_table.py`` has the states and the invariants; tests hold it against this. Where the master of
an epoch takes slaves is asked of the master itself, again and again.

Source: RIP-44; ReplicasManager of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.base.ids import NEVER_ELECTED, MasterEpoch
from rmqha.base.machine import Note
from rmqha.broker.common.replicas_settings import ReplicasSettings
from rmqha.broker.membership import events as ev
from rmqha.broker.membership.agenda import Agenda, Job
from rmqha.broker.membership.controller_requests import master_of
from rmqha.broker.membership.events import Effect
from rmqha.broker.membership.handing_over import HandingOver
from rmqha.broker.membership.identity import Registration
from rmqha.broker.membership.planned_switch import PlannedSwitch
from rmqha.ha.events import Role
from rmqha.remoting.bodies import SyncStateSet
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.headers import text_field


class Place:
    """Of one replica.

    Attributes:
        master_epoch: of the newest role that was taken up, 0 before the first.
        master_id, master_address: of that epoch's master; the address serves clients.
        master_ha_address: where it takes slaves; empty while that is not known.
        is_settled: the role of ``master_epoch`` is complete.
        refused_epoch: an epoch that the log was ahead of, else 0.
    """

    def __init__(
        self,
        settings: ReplicasSettings,
        registration: Registration,
        agenda: Agenda,
        handing_over: HandingOver,
        switch: PlannedSwitch,
    ) -> None:
        self._settings = settings
        self._registration = registration
        self._agenda = agenda
        self._handing_over = handing_over
        self._switch = switch
        self.master_epoch = NEVER_ELECTED
        self.master_id: int | None = None
        self.master_address = ""
        self.master_ha_address = ""
        # RIP-44, Switching process: until replication says that the role is complete, none is.
        self.is_settled = False
        self.refused_epoch = 0

    @property
    def is_master(self) -> bool:
        """Whether this replica was named, whether or not its role is complete."""
        return self.master_id is not None and self.master_id == self._registration.broker_id

    @property
    def role(self) -> Role | None:
        """The complete role; None while there is none or a change is under way."""
        return self._named if self.is_settled else None

    @property
    def _named(self) -> Role:
        return Role.MASTER if self.is_master else Role.SLAVE

    # -- who is master -----------------------------------------------------------------------------

    def adopt(
        self,
        now_ms: int,
        fields: Mapping[str, str] | None,
        found: SyncStateSet,
        *,
        elected: bool = False,
    ) -> tuple[bool, list[Effect]]:
        """Take over what the controller says of the master, if it is newer.

        Args:
            elected: it was elected now, upon this replica's request.

        Returns:
            Whether it names a master at all, of this epoch or a later one; and what is to be done.

        Raises:
            RemoteProtocolError: it cannot be read.
        """
        master_id, epoch, address = master_of(fields)
        if master_id < 1 or epoch < 1 or epoch < self.master_epoch:
            # RIP-44, Elect Master: epochs only grow, so this was said before what is known.
            return False, []
        if master_id == self._registration.broker_id:
            others = frozenset(found.broker_ids) - {master_id}
            is_first = not self.master_epoch and not elected
            if self._handing_over.gives_up(epoch, others, is_first=is_first):
                return True, self._handing_over.begin(now_ms, others)
        if epoch == self.master_epoch:
            # One epoch has one master: at most its address or its set is new.
            return True, self._adopt_same(now_ms, master_id, address, found)
        self.master_epoch, self.master_id, self.master_address = epoch, master_id, address
        self.master_ha_address = ""
        self.is_settled = False
        for job in (Job.ELECT, Job.FIND_MASTER, Job.HAND_OVER):
            self._agenda.due.pop(job, None)
        self._switch.over()
        self._agenda.due.setdefault(Job.HEARTBEAT, now_ms)
        facts = {"master_id": master_id, "master": address, "epoch": epoch}
        return True, [Note("role_assigned", "info", facts), self._change(now_ms, master_id, found)]

    def _change(self, now_ms: int, master_id: int, found: SyncStateSet) -> Effect:
        epoch = self.master_epoch
        if self.is_master:
            return ev.BecomeMaster(epoch, frozenset(found.broker_ids) | {master_id}, found.epoch)
        self._agenda.attempts[Job.FIND_MASTER] = 0
        self._agenda.due[Job.FIND_MASTER] = now_ms
        return ev.BecomeSlave(epoch, master_id, self.master_address)

    def _adopt_same(
        self, now_ms: int, master_id: int, address: str, found: SyncStateSet
    ) -> list[Effect]:
        if master_id != self.master_id:
            # It cannot be; nothing is changed, so that whoever is wrong changes nothing here.
            facts = {"epoch": self.master_epoch, "other": master_id}
            return [Note("two_masters_reported", "error", facts)]
        if self.is_master:
            if self.is_settled and found.broker_ids:
                return [ev.ConfirmSet(frozenset(found.broker_ids), found.epoch)]
        elif address and address != self.master_address:
            self.master_address = address
            self._agenda.due[Job.FIND_MASTER] = now_ms
        return []

    def settled(self, epoch: MasterEpoch, *, accepted: bool) -> list[Effect]:
        """Replication has taken up the role of an epoch, or cannot."""
        if epoch != self.master_epoch:
            return []
        self.is_settled = accepted
        self.refused_epoch = 0 if accepted else epoch
        if not accepted:
            return [Note("role_refused_by_log", "error", {"epoch": epoch})]
        effects: list[Effect] = [ev.ServeAs(self._named, epoch)]
        if self.master_ha_address:
            effects.append(ev.FollowMaster(self.master_ha_address))
        return effects

    # -- where it takes slaves -----------------------------------------------------------------------

    @property
    def wants_ha_address(self) -> bool:
        """Whether there is a master to ask where it takes slaves."""
        return bool(self.master_address) and not self.is_master

    def answered(self, now_ms: int, answer: ev.Answered, epoch: MasterEpoch) -> list[Effect]:
        """The master of ``epoch`` was asked where it takes slaves."""
        address = text_field(answer.fields, "masterHaAddress", "")
        if epoch != self.master_epoch:
            self._agenda.due[Job.FIND_MASTER] = now_ms
        elif answer.code == ResponseCode.SUCCESS and address:
            return self.found(now_ms, address)
        else:
            # It does not feel as master yet, or answers only its name server.
            self._agenda.again(now_ms, Job.FIND_MASTER, self._settings.find_master_ms_max)
        return []

    def found(self, now_ms: int, address: str) -> list[Effect]:
        """An empty or missing answer never takes a known address away."""
        if self.is_master or self.master_id is None:
            return []
        self._agenda.attempts[Job.FIND_MASTER] = 0
        self._agenda.due[Job.FIND_MASTER] = now_ms + self._settings.refresh_master_ms
        if address == self.master_ha_address:
            return []
        self.master_ha_address = address
        return [ev.FollowMaster(address)] if self.is_settled else []
