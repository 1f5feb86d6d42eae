"""A broker's half of RIP-44: register, heartbeat, follow elections, keep the SyncStateSet reported.

One machine with a few jobs. Each job has a time when it is due and at most one request under way;
what fails comes back after a pause that grows. What answers say of the set's master goes to
``place.py``: a role changes only to a higher master epoch, and nothing is served before the first role
is complete.

Source: RIP-44; ReplicasManager of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from rmqha.base.errors import RemoteProtocolError
from rmqha.base.ids import MasterEpoch, SyncStateSetEpoch
from rmqha.base.machine import Note, Ticked
from rmqha.broker.common.replicas_settings import ReplicasSettings
from rmqha.broker.membership import events as ev
from rmqha.broker.membership.agenda import Agenda, Job
from rmqha.broker.membership.controller_requests import (
    NEEDS_OPERATOR,
    NOT_APPLIED,
    OF_A_MEMBER,
    alter_fields,
    heartbeat_fields,
    master_of,
    who_fields,
)
from rmqha.broker.membership.events import Effect, Event
from rmqha.broker.membership.handing_over import HandingOver
from rmqha.broker.membership.hints import Hints
from rmqha.broker.membership.identity import REQUEST_OF, Registration
from rmqha.broker.membership.leader_search import LeaderSearch
from rmqha.broker.membership.place import Place
from rmqha.broker.membership.planned_switch import PlannedSwitch
from rmqha.ha.events import Role
from rmqha.remoting.bodies import SyncStateSet
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.headers import ext_fields, int_field

BEATS_A_PROMISE = 4


class ReplicasCore:
    """One replica's dealings with the controllers.

    Attributes:
        registration: the way to the id.
        search: the controllers' leader.
        place: who is master, and whether this replica's role is taken up.
    """

    def __init__(self, settings: ReplicasSettings) -> None:
        self.settings = settings
        self.registration = Registration(
            settings.cluster_name, settings.broker_name, settings.broker_address
        )
        self.search = LeaderSearch(settings.controllers, settings.broker_address)
        self._agenda = Agenda(settings)
        self._due = self._agenda.due
        self._attempts = self._agenda.attempts
        self._waiting: list[Job] = []
        self._wall_offset_ms = 0
        self._handing_over = HandingOver(settings, self._agenda, self.search)
        self._switch = PlannedSwitch(self._agenda)
        self.place = Place(
            settings, self.registration, self._agenda, self._handing_over, self._switch
        )
        self._hints = Hints(settings, self._agenda)
        self._alter_token = 0
        self._promise_ms = 0
        self._effects: list[Effect] = []

    # -- questions -------------------------------------------------------------------------------

    @property
    def broker_id(self) -> int | None:
        """The persistent id; None before the final identity file is there."""
        return self.registration.broker_id

    @property
    def next_deadline_ms(self) -> int | None:
        """When to send ``Ticked`` next."""
        return self._agenda.next_deadline_ms

    # -- the machine -----------------------------------------------------------------------------

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """Take one event and return what the shell must do, in order.

        Raises:
            StoreMismatch: at ``Started``, when the identity files are another broker's.
        """
        match event:
            case ev.Started(wall_ms, final, temporary):
                self._wall_offset_ms = wall_ms - now_ms
                self.registration.loaded(final, temporary)
                self._due[Job.FIND_LEADER] = now_ms
                self._identify(now_ms)
            case ev.Answered():
                self._answered(now_ms, event)
            case ev.Unanswered(token, sent, reason):
                self._unanswered(now_ms, token, reason, sent=sent)
            case ev.Notified() | ev.Told() | ev.NameServerAnswered() | ev.ControllersNamed():
                self._heard(now_ms, event)
            case ev.RoleSettled(epoch, accepted):
                self._effects += self.place.settled(epoch, accepted=accepted)
            case ev.AlterWanted(ids, set_epoch):
                self._alter(now_ms, ids, set_epoch)
            case ev.Promised(for_ms):
                self._promised(now_ms, for_ms)
            case ev.SwitchWanted(heir):
                self._switch.wanted(now_ms, heir)
            case Ticked():
                pass
            case _:
                self._disk_done(now_ms, event)
        self._run_due(now_ms)
        effects, self._effects = self._effects, []
        return effects

    def _heard(self, now_ms: int, event: ev.Unasked) -> None:
        """What nobody here has asked for."""
        match event:
            case ev.Notified(fields, _):
                self._hinted(now_ms, fields)
            case ev.Told(fields, body):
                self._told(now_ms, fields, body)
            case ev.NameServerAnswered(master_address, ha_address):
                if ha_address and master_address == self.place.master_address:
                    self._effects += self.place.found(now_ms, ha_address)
            case ev.ControllersNamed(addresses, same_group):
                self.search.named(addresses, same_group=same_group)
                self._due[Job.FIND_LEADER] = now_ms
                self._beat_soon(now_ms)
                self._note("controllers_named", configured=addresses, members=self.search.members)

    def _note(self, event: str, level: str = "info", **facts: object) -> None:
        self._effects.append(Note(event, level, facts))

    def _disk_done(self, now_ms: int, event: ev.DiskDone) -> None:
        match event:
            case ev.TemporaryWritten(identity):
                self.registration.temporary_written(identity)
                self._identify(now_ms)
            case ev.TemporaryRemoved():
                self.registration.temporary_removed()
                self._identify(now_ms)
            case ev.IdentityWritten(identity):
                self.registration.identity_written(identity)
                self._identify(now_ms)
            case ev.ReplicationStarted(lost_epoch, is_empty):
                self._handing_over.lost_epoch, self._handing_over.is_empty = lost_epoch, is_empty
                self._due[Job.REGISTER] = now_ms
                if not lost_epoch:  # the controllers shall miss one that lost power
                    self._due[Job.HEARTBEAT] = now_ms
            case _:
                assert_never(event)

    # -- jobs --------------------------------------------------------------------------------------

    def _run_due(self, now_ms: int) -> None:
        for job in self._agenda.take_due(now_ms):
            self._run(now_ms, job)

    def _run(self, now_ms: int, job: Job) -> None:
        match job:
            case Job.FIND_LEADER:
                self._find_leader(now_ms)
            case Job.HEARTBEAT:
                self._beat(now_ms)
            case Job.FIND_MASTER:
                self._find_master(now_ms)
            case Job.CHECK:
                self._check(now_ms)
            case Job.ALTER:
                pass
            case Job.HAND_OVER | Job.SWITCH if not self._has_heir(job):
                pass
            case Job.IDENTIFY | Job.REGISTER | Job.ELECT | Job.HAND_OVER | Job.SWITCH | Job.POLL:
                if self._agenda.is_asking(job):
                    return
                if self.search.leader is None:
                    self._waiting.append(job)
                    self._due.setdefault(Job.FIND_LEADER, now_ms)
                else:
                    self._ask_leader(now_ms, job)
            case _:
                assert_never(job)

    def _has_heir(self, job: Job) -> bool:
        if job is Job.SWITCH:
            return bool(self._switch.heir)
        return self._handing_over.is_pending(self.place.master_epoch)

    def _ask_leader(self, now_ms: int, job: Job) -> None:
        match job:
            case Job.IDENTIFY:
                wanted = self.registration.request()
                if wanted is not None:
                    self._ask(job, REQUEST_OF[type(wanted)], wanted.fields)
            case Job.REGISTER:
                fields = self._who(now_ms, brokerAddress=self.settings.broker_address)
                self._ask(job, RequestCode.CONTROLLER_REGISTER_BROKER, fields)
            case Job.ELECT:
                # The election looks at who is alive: be it, before it is asked for.
                self._beat(now_ms)
                fields = self._who(now_ms, designateElect=False)
                self._ask(job, RequestCode.CONTROLLER_ELECT_MASTER, fields)
            case Job.HAND_OVER | Job.SWITCH:
                planned = job is Job.SWITCH
                fields = self._who(now_ms, designateElect=True, completeOnly=True)
                if planned:
                    fields["brokerId"] = str(self._switch.heir)
                else:
                    fields |= self._handing_over.next_named()
                self._ask(job, RequestCode.CONTROLLER_ELECT_MASTER, fields)
            case _:
                fields = ext_fields(brokerName=self.settings.broker_name)
                self._ask(job, RequestCode.CONTROLLER_GET_REPLICA_INFO, fields)

    def _ask(
        self, job: Job, code: int, fields: dict[str, str], body: bytes = b"", to: str = ""
    ) -> int:
        """Send a request, to the leader unless ``to`` names somebody else."""
        token = self._agenda.asked(job, self.place.master_epoch)
        address = to or self.search.leader or ""
        timeout_ms = self.settings.invoke_timeout_ms
        self._effects.append(ev.Ask(token, address, code, fields, body, timeout_ms))
        return token

    def _who(self, now_ms: int, **more: str | bool) -> dict[str, str]:
        return who_fields(self.settings, self.broker_id, self._wall_ms(now_ms), **more)

    def _wall_ms(self, now_ms: int) -> int:
        return now_ms + self._wall_offset_ms

    def _find_leader(self, now_ms: int) -> None:
        next_ms = now_ms + self.settings.sync_controller_metadata_period_ms
        if self.search.is_open:
            self._due.setdefault(Job.FIND_LEADER, next_ms)
            return
        self._due[Job.FIND_LEADER] = next_ms
        for address in self.search.controllers:
            code = RequestCode.CONTROLLER_GET_METADATA_INFO
            self.search.asked(self._ask(Job.FIND_LEADER, code, {}, to=address), address)

    def _leader_answered(self, now_ms: int) -> None:
        """A controller answered or not: go on with what waits, or try again when all have."""
        if self.search.leader is not None:
            waiting, self._waiting = self._waiting, []
            for job in waiting:
                self._due.setdefault(job, now_ms)
        elif not self.search.is_open:
            self._effects += self.search.ended(now_ms)
            self._agenda.again(now_ms, Job.FIND_LEADER, self.settings.retry_ms_max)

    def _leader_lost(self, now_ms: int, job: Job) -> None:
        """A request to the leader failed: look for another, and then do the job again."""
        self.search.lost()
        if job not in self._waiting:
            self._waiting.append(job)
        delay_ms = self.search.pause_ms(self.settings.retry_ms, self.settings.retry_ms_max)
        self._agenda.sooner(Job.FIND_LEADER, now_ms + delay_ms)

    def _answered(self, now_ms: int, answer: ev.Answered) -> None:
        asked = self._agenda.ended(answer.token)
        if asked is None:
            return
        job, epoch = asked
        if job is Job.FIND_MASTER:
            self._effects += self.place.answered(now_ms, answer, epoch)
            return
        if job in (Job.FIND_LEADER, Job.CHECK):
            self._anybody_answered(now_ms, job, answer)
            return
        if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            if job is Job.ALTER:
                self._effects.append(ev.EndAlter(refused=False))
                job = Job.POLL
            self._leader_lost(now_ms, job)
            return
        self.search.worked()
        try:
            self._decide(now_ms, job, answer, epoch)
        except RemoteProtocolError as error:
            self._note("controller_answer_malformed", "warning", job=job.value, reason=str(error))
            if job is Job.ALTER:
                self._effects.append(ev.EndAlter(refused=False))
            else:
                self._agenda.again(now_ms, job, self.settings.retry_ms_max)

    def _anybody_answered(self, now_ms: int, job: Job, answer: ev.Answered) -> None:
        """The answer to a question that went to all controllers."""
        if job is Job.CHECK:
            if answer.code == ResponseCode.SUCCESS:
                self._told(now_ms, answer.fields, answer.body)
            self._hints.checked(now_ms, self.place.master_epoch)
            return
        known = self.search.controllers
        if self.search.answered(answer.token, answer.fields):
            self._attempts[job] = 0
            self._note("controller_leader_found", leader=self.search.leader)
        if self.search.controllers != known:
            self._note("controller_members_found", members=self.search.members)
            self._beat_soon(now_ms)
        self._leader_answered(now_ms)

    def _unanswered(self, now_ms: int, token: int, reason: str, *, sent: bool) -> None:
        asked = self._agenda.ended(token)
        if asked is None:
            return
        job, _ = asked
        if job is Job.FIND_LEADER:
            self.search.silent(token)
            self._leader_answered(now_ms)
        elif job is Job.FIND_MASTER:
            self._agenda.again(now_ms, job, self.settings.find_master_ms_max)
        elif job is Job.CHECK:
            self._hints.checked(now_ms, self.place.master_epoch)
        else:
            self._note("controller_silent", "warning", job=job.value, reason=reason)
            if job is Job.ALTER:
                # What was sent may be applied although nothing is heard of it (#5663).
                self._effects.append(ev.EndAlter(refused=not sent and token == self._alter_token))
                job = Job.POLL
            self._leader_lost(now_ms, job)

    def _decide(self, now_ms: int, job: Job, answer: ev.Answered, epoch: MasterEpoch) -> None:
        match job:
            case Job.IDENTIFY:
                self._identity_answered(now_ms, answer)
            case Job.REGISTER:
                self._register_answered(now_ms, answer)
            case Job.ELECT | Job.HAND_OVER | Job.SWITCH:
                self._elect_answered(now_ms, job, answer)
            case Job.POLL:
                self._poll_answered(now_ms, answer)
            case _:
                self._alter_answered(now_ms, answer, epoch)

    def _identify(self, now_ms: int) -> None:
        if self.broker_id is None:
            self._due[Job.IDENTIFY] = now_ms
        else:
            self._effects.append(ev.StartReplication(self.broker_id))

    def _identity_answered(self, now_ms: int, answer: ev.Answered) -> None:
        want = self.registration.answered(answer.code, answer.fields, self._wall_ms(now_ms))
        if want is None:
            self._refused(now_ms, Job.IDENTIFY, answer)
        else:
            self._effects.append(want)

    def _refused(self, now_ms: int, job: Job, answer: ev.Answered, limit_ms: int = 0) -> None:
        level = "error" if answer.code in NEEDS_OPERATOR else "warning"
        self._note(
            "controller_refused", level, job=job.value, code=answer.code, remark=answer.remark
        )
        self._agenda.again(now_ms, job, limit_ms or self.settings.retry_ms_max)

    def _register_answered(self, now_ms: int, answer: ev.Answered) -> None:
        if answer.code != ResponseCode.SUCCESS:
            self._refused(now_ms, Job.REGISTER, answer)
            return
        body = SyncStateSet.decode(answer.body)
        self._attempts[Job.REGISTER] = 0
        self.registration.registered()
        settings = self.settings
        pause_ms = min(settings.sync_broker_metadata_period_ms, settings.first_poll_ms_max)
        self._due[Job.POLL] = now_ms + pause_ms
        known = self._adopt(now_ms, answer.fields, body) or self.place.master_id is not None
        if not known and not settings.async_learner:
            self._due[Job.ELECT] = now_ms

    def _elect_answered(self, now_ms: int, job: Job, answer: ev.Answered) -> None:
        if answer.code in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
            found = SyncStateSet.decode(answer.body)
            # An election's body has the set without its epoch; that stands in the header.
            epoch = SyncStateSetEpoch(int_field(answer.fields, "syncStateSetEpoch", found.epoch))
            members = SyncStateSet(found.broker_ids, epoch)
            elected = answer.code == ResponseCode.SUCCESS
            if self._adopt(now_ms, answer.fields, members, elected=elected):
                if job not in self._due:
                    self._attempts[job] = 0
                if job is Job.SWITCH and self.place.is_master:
                    self._effects += self._switch.refused("this broker was elected anew")
                return
        elif answer.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            self._due[Job.REGISTER] = now_ms + self.settings.retry_ms
            return
        if job is Job.SWITCH:
            self._effects += self._switch.refused(f"the controllers: {answer.code} {answer.remark}")
            return
        self._refused(now_ms, job, answer, self.settings.elect_retry_ms_max)
        if job is Job.HAND_OVER and answer.code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE:
            self._due[Job.POLL] = now_ms  # its reign was ended as it asked, and an election is due
        elif job is Job.HAND_OVER:
            is_best = (answer.fields or {}).get("masterIsBest") == "true"
            self._effects += self._handing_over.refused(now_ms, is_best=is_best)

    def _poll_answered(self, now_ms: int, answer: ev.Answered) -> None:
        self._due[Job.POLL] = now_ms + self.settings.sync_broker_metadata_period_ms
        if answer.code == ResponseCode.SYSTEM_BUSY:
            self._due[Job.POLL] = now_ms + self.settings.busy_retry_ms
        elif answer.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
            self._due[Job.REGISTER] = now_ms
        elif answer.code == ResponseCode.SUCCESS:
            epoch = MasterEpoch(int_field(answer.fields, "masterEpoch", 0))
            found = SyncStateSet.decode(answer.body)
            known = self._adopt(now_ms, answer.fields, found)
            self._tell_set(epoch, found)
            if not known and epoch > self.place.master_epoch and not self.settings.async_learner:
                self._due.setdefault(Job.ELECT, now_ms)

    def _tell_set(self, epoch: MasterEpoch, found: SyncStateSet) -> None:
        """Only what was asked for just now: a notification may be of another time."""
        follows = self.place.role is Role.SLAVE
        if self.settings.slave_start_over_enable and follows and epoch == self.place.master_epoch:
            self._effects.append(ev.TellSet(frozenset(found.broker_ids)))

    def _hinted(self, now_ms: int, fields: Mapping[str, str] | None) -> None:
        """A notification, which anybody can send."""
        try:
            hint = master_of(fields)
        except RemoteProtocolError as error:
            self._note("notification_malformed", "warning", reason=str(error))
            return
        known = (self.place.master_id, self.place.master_epoch, self.place.master_address)
        self._hints.heard(now_ms, hint, known, self.broker_id)

    def _check(self, now_ms: int) -> None:
        if not self._hints.may_check(now_ms):
            return
        fields = ext_fields(brokerName=self.settings.broker_name)
        for address in self.search.controllers:
            self._ask(Job.CHECK, RequestCode.CONTROLLER_GET_REPLICA_INFO, fields, to=address)

    def _told(self, now_ms: int, fields: Mapping[str, str] | None, body: bytes) -> None:
        try:
            self._adopt(now_ms, fields, SyncStateSet.decode(body))
        except RemoteProtocolError as error:
            self._note("controller_answer_malformed", "warning", job="check", reason=str(error))

    def _adopt(
        self, now_ms: int, fields: Mapping[str, str] | None, found: SyncStateSet, *,
        elected: bool = False,
    ) -> bool:  # fmt: skip
        """Whether a controller names a master at all, of this epoch or a later one."""
        known, effects = self.place.adopt(now_ms, fields, found, elected=elected)
        self._effects += effects
        if any(isinstance(one, ev.BecomeMaster) for one in effects):
            # Answered while the role is taken up, it begins the write lease.
            self._beat(now_ms)
        return known

    def _find_master(self, now_ms: int) -> None:
        if self.place.wants_ha_address and not self._agenda.is_asking(Job.FIND_MASTER):
            code = RequestCode.EXCHANGE_BROKER_HA_INFO
            self._ask(Job.FIND_MASTER, code, {}, to=self.place.master_address)

    def _beat(self, now_ms: int) -> None:
        self._due[Job.HEARTBEAT] = now_ms + self._beat_ms()
        fields = heartbeat_fields(self.settings, self.broker_id)
        self._effects.append(ev.Beat(self.search.controllers, fields))

    def _beat_soon(self, now_ms: int) -> None:
        """Others are to hear of this broker, if it is one that beats at all."""
        if Job.HEARTBEAT in self._due:
            self._due[Job.HEARTBEAT] = now_ms

    def _promised(self, now_ms: int, for_ms: int) -> None:
        self._promise_ms = for_ms
        if Job.HEARTBEAT in self._due:
            self._agenda.sooner(Job.HEARTBEAT, now_ms + self._beat_ms())

    def _beat_ms(self) -> int:
        """A master whose controllers wait for less beats so often that one lost beat ends no lease."""
        interval_ms = self.settings.broker_heartbeat_interval_ms
        if not self._promise_ms or not self.place.is_master:
            return interval_ms
        return min(interval_ms, max(1, self._promise_ms // BEATS_A_PROMISE))

    def _alter(self, now_ms: int, ids: frozenset[int], set_epoch: SyncStateSetEpoch) -> None:
        if self.search.leader is None or self.place.role is not Role.MASTER:
            self._effects.append(ev.EndAlter(refused=True))
            return
        wall_ms = self._wall_ms(now_ms)
        fields = alter_fields(self.settings, self.broker_id, self.place.master_epoch, wall_ms)
        body = SyncStateSet(tuple(sorted(ids)), set_epoch).encode()
        alter = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
        self._alter_token = self._ask(Job.ALTER, alter, fields, body)

    def _alter_answered(self, now_ms: int, answer: ev.Answered, epoch: MasterEpoch) -> None:
        if answer.code == ResponseCode.SUCCESS:
            found = SyncStateSet.decode(answer.body)
            if epoch == self.place.master_epoch and found.broker_ids:
                ids = frozenset(found.broker_ids)
                self._effects.append(ev.ConfirmSet(ids, found.epoch))
                return
            self._effects.append(ev.EndAlter(refused=False))
            return
        self._note("sync_state_set_refused", "warning", code=answer.code, remark=answer.remark)
        refused = answer.token == self._alter_token and answer.code in NOT_APPLIED
        # An older wish says nothing of the newest.
        self._effects.append(ev.EndAlter(refused, refused and answer.code in OF_A_MEMBER))
        # Whoever knows better is asked at once: the epochs here are out of date.
        self._due[Job.POLL] = now_ms
