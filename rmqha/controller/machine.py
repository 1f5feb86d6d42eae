"""The controller: requests, heartbeats and committed events in; answers and proposals out.

States: follower (answers 2007, but hears heartbeats and applies) <-> leader.
Rules:
- The log holds events. The leader decides on applied state, proposes the event, and answers
  when that is committed and applied. Refusals and reads are answered at once.
- One request in flight a broker set; see ``metadata/lanes``. A (term, token) pair matches a
  committed event to the request that waits for it.
- A master that dies is replaced once: by the report of its death, by the periodic scan, by a
  new leader's first look, or, when there was nobody, by the first in-sync replica heard again.
- A new leader spares masters that it never heard, for ``cold_start_grace_ms``, and silent ones
  for their own timeout: other controllers may have answered them meanwhile. So does one that was
  not scheduled for long; see ``late``.

Source: RIP-44; Java 5.3.3 ControllerManager, DLedgerController.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import partial
from typing import assert_never

from msgspec.structs import replace

from rmqha.base.ids import NO_TERM, BrokerId
from rmqha.base.machine import Note, Ticked
from rmqha.controller.late import LateTicks
from rmqha.controller.liveness import CLOSE_GRACE_MS_MAX, LiveBroker, Liveness
from rmqha.controller.metadata.announce import Announcer, SlaveDelays
from rmqha.controller.metadata.answers import (
    ANNOUNCING,
    BUSY,
    GONE,
    OVERTAKEN,
    answer_to,
    broker_facts,
    heartbeat_answer,
    quiet,
    reply,
)
from rmqha.controller.metadata.apply import apply
from rmqha.controller.metadata.by_address import id_at, is_by_address
from rmqha.controller.metadata.decide import NOT_LEADER, READS, WRITES, decide, not_supported
from rmqha.controller.metadata.decide_elect import ElectRequest, elect_master
from rmqha.controller.metadata.decide_query import replica_info
from rmqha.controller.metadata.decision import Context, Decision
from rmqha.controller.metadata.digests import Digests
from rmqha.controller.metadata.election_memory import ElectionMemory
from rmqha.controller.metadata.election_stages import ElectionStages
from rmqha.controller.metadata.events import (
    STATE_RECORDS,
    BrokerIdTaken,
    Event,
    MasterElected,
    SyncStateSetAltered,
)  # fmt: skip
from rmqha.controller.metadata.fields import broker_id_field
from rmqha.controller.metadata.lanes import Lanes, Work
from rmqha.controller.metadata.messages import (
    Committed,
    Configured,
    ConnectionClosed,
    ControllerEffect,
    ControllerEvent,
    Effects,
    HeartbeatHeard,
    LeadershipChanged,
    MachineSettings,
    Notify,
    ProposalDropped,
    Propose,
    Reply,
    RequestReceived,
    RouteFollowed,
    RouteUnknown,
    RouteUpdated,
    SnapshotLoaded,
    WatchRoute,
)
from rmqha.controller.metadata.probe_messages import AskPeers, PeersHeard, Probe, ProbeAnswered
from rmqha.controller.metadata.proposals import Proposals
from rmqha.controller.metadata.registrations import concerned, is_registered, vouched_for
from rmqha.controller.metadata.senders import sender
from rmqha.controller.metadata.snapshot import from_snapshot, join_snapshot
from rmqha.controller.metadata.state import MetadataState
from rmqha.controller.metadata.status import Status, status
from rmqha.controller.metadata.telling import Telling
from rmqha.controller.metadata.vacancy import may_fill_vacancy
from rmqha.controller.probe_requests import silence_answer
from rmqha.controller.probing import NO_PROMISE, Probing
from rmqha.controller.scan import Scan
from rmqha.controller.twins import Twins, is_at
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.heartbeat import Heartbeat
from rmqha.runtime.late import PAUSED_MS

__all__ = [
    "AskPeers", "Committed", "Configured", "ConnectionClosed", "ControllerEffect", "ControllerEvent",
    "ControllerMachine", "HeartbeatHeard", "LeadershipChanged", "MachineSettings", "Notify", "PeersHeard", "Probe",
    "ProbeAnswered", "ProposalDropped", "Propose", "Reply",
    "RequestReceived", "RouteFollowed", "RouteUnknown", "RouteUpdated", "SnapshotLoaded",
    "WatchRoute", "heartbeat_answer",
]  # fmt: skip


class ControllerMachine:
    """One node's controller, as a pure core."""

    def __init__(self, settings: MachineSettings | None = None) -> None:
        """Start as a follower with an empty state and nobody heard."""
        self.state = MetadataState()
        self.liveness = Liveness(
            is_registered=partial(is_registered, self.state), is_at=partial(is_at, self.state)
        )
        self._twins = Twins(self.liveness)
        self.digests = Digests()
        self.probing = Probing(self.state, self.liveness)
        self._applied_index = 0
        self._settings = MachineSettings()
        self.configure(settings or MachineSettings())
        self.stages = ElectionStages()
        self._wall_offset_ms: int | None = None
        self._announcer = Announcer(self.state, self.liveness, self.stages)
        self._lanes = Lanes()
        self._proposals = Proposals()
        self.check_record = self._proposals.check
        self._leader = False
        self._term = NO_TERM
        self._cold_until_ms = 0
        self._late = LateTicks()
        self._scanning = Scan()
        self._elections = ElectionMemory()
        self._telling = Telling()

    @property
    def settings(self) -> MachineSettings:
        """The settings in force; change them with ``configure``."""
        return self._settings

    @property
    def is_leader(self) -> bool:
        """Whether this node decides."""
        return self._leader

    @property
    def applied_index(self) -> int:
        """The log index of the last event applied."""
        return self._applied_index

    def configure(self, settings: MachineSettings) -> None:
        """Take new settings from here on; deadlines already running keep theirs."""
        self._settings = settings
        self.liveness.close_grace_ms = min(max(settings.close_grace_ms, 0), CLOSE_GRACE_MS_MAX)
        self.liveness.brokers_max = settings.live_brokers_max
        self.liveness.timeout_ms_max = settings.heartbeat_timeout_ms_max
        self.probing.configure(
            settings.active_probe_timeout_ms, only_leased=settings.active_probe_only_leased
        )
        self.digests.configure(settings.digest_every, self._applied_index)

    def step(  # noqa: C901 - one case an event
        self, now_ms: int, event: ControllerEvent
    ) -> list[ControllerEffect]:
        """Take one event and return what the shell must do, in this order.

        Raises:
            StoreCorrupted: a committed record or a snapshot cannot be read.
            InvariantBroken: a safety rule does not hold; the process must stop.
        """
        self.probing.born_ms = self.probing.born_ms or now_ms
        match event:
            case RequestReceived():
                return self._received(now_ms, event)
            case Committed():
                return self._committed(now_ms, event)
            case Ticked():
                return self._ticked(now_ms)
            case HeartbeatHeard(connection, beat):
                return [*self.heartbeat(now_ms, connection, beat)]
            case Configured(settings):
                self.configure(settings)
                return []
            case ConnectionClosed():
                return self._connection_closed(now_ms, event.connection)
            case LeadershipChanged():
                return self._leadership_changed(now_ms, event)
            case ProposalDropped():
                return self._proposal_dropped(now_ms, event.record)
            case SnapshotLoaded():
                return self._snapshot_loaded(event)
            case ProbeAnswered() | PeersHeard():
                return self._probe_news(now_ms, event)
            case RouteFollowed() | RouteUpdated() | RouteUnknown():
                return [*self._announcer.route_news(now_ms, event)]
            case _:
                assert_never(event)

    def heartbeat(self, now_ms: int, connection: int, beat: Heartbeat) -> Effects:
        """Take a 904: what ``step`` does of ``HeartbeatHeard``, for who takes thousands a second.

        Seldom has anything to do.
        """
        probing = self.probing
        if not probing.born_ms:
            probing.born_ms = now_ms
        if beat.broker_id < 1 and beat.broker_addr:
            beat = self._named(beat)
        broker = self.liveness.heartbeat(now_ms, connection, beat)
        if broker is None:
            return ()
        name = beat.broker_name
        awaited = self.stages.awaited.get(name)
        if awaited is not None and awaited[0] == beat.broker_id:
            self.stages.heard(now_ms, name, awaited[0], beat.epoch)
        if not broker.revived and not self._announcer.waits_for(name):
            broker_set = self.state.sets.get(name)
            if broker_set is not None and broker_set.master_broker_id is not None:
                return ()
        return self._after_heartbeat(now_ms, broker)

    def _named(self, beat: Heartbeat) -> Heartbeat:
        """The heartbeat of a broker that knows no ids, with the id that it has here."""
        found = id_at(self.state.sets.get(beat.broker_name), beat.broker_addr)
        return beat if found is None else replace(beat, broker_id=found)

    def heartbeat_answer(self, now_ms: int, beat: Heartbeat) -> Decision:
        """What somebody hears who sends 904 as a request: for how long this node will wait."""
        identity = beat.cluster_name, beat.broker_name, BrokerId(beat.broker_id)
        if beat.broker_id < 1:
            return heartbeat_answer(beat)
        if not is_at(self.state, identity, beat.broker_addr):
            # Who has not registered where it is has no promise: somebody else may have its id.
            return NO_PROMISE
        return self.probing.answer(now_ms, beat)

    def read(
        self,
        now_ms: int,
        connection: int,
        code: int,
        ext_fields: Mapping[str, str],
        body: bytes = b"",
    ) -> Decision:
        """Answer 1004, 1006 or 1012 at once; reads need not wait for events in flight.

        It is what ``step`` does of a ``RequestReceived``, for who takes thousands a second.
        The shell asks only while its read lease is valid. The answer's ``ext_fields`` is shared:
        nobody may change it.
        """
        name = ext_fields.get("brokerName", "")
        self.liveness.heard_on(now_ms, connection, name)
        if not self._leader:
            return NOT_LEADER
        if code == RequestCode.CONTROLLER_GET_REPLICA_INFO:
            if self._announcer.waits_for(name) and self._announcer.is_too_early_for(
                name, self.liveness.brokers_on(connection, name)
            ):
                return ANNOUNCING
            known = self.state.sets.get(name)
            if known is not None and not is_by_address(code, ext_fields):
                return replica_info(known)
        if code not in READS:
            return not_supported(code)
        return decide(self.state, self._context(now_ms), code, ext_fields, body)

    def next_deadline_ms(self) -> int | None:
        """When to tick next, exact; None when nothing waits for time to pass."""
        deadlines = [self.liveness.next_deadline_ms()]
        if self._leader:
            deadlines += [self._announcer.next_deadline_ms(), self._scanning.next_ms]
            deadlines.append(self.probing.next_deadline_ms())
        due_ms = min((one for one in deadlines if one is not None), default=None)
        return None if due_ms is None else max(due_ms, self._late.until_ms)

    def snapshot(self) -> bytes:
        """The state up to ``applied_index``, the same bytes on every node."""
        return join_snapshot(self._applied_index, self.state)

    def status(self, now_ms: int) -> Generator[None, None, Status]:
        """Plain figures for the status page and the metrics, in parts."""
        return status(
            now_ms,
            self.state,
            self.liveness,
            is_leader=self._leader,
            term=self._term,
            applied_index=self._applied_index,
            work_queued=self._lanes.size(),
            elections=self._elections.counts,
        )

    def _context(self, now_ms: int, arrived_ms: int | None = None) -> Context:
        settings = self._settings
        return Context(
            now_ms,
            self.liveness,
            settings.enable_elect_unclean_master,
            settings.adopt_unknown_brokers,
            settings.broker_sets_max,
            settings.replicas_per_set_max,
            settings.cold_start_grace_ms,
            arrived_ms,
            self._wall_offset_ms,
            settings.elections_per_set,
            settings.elections_in_all,
            self.stages,
        )

    # Requests

    def _received(self, now_ms: int, request: RequestReceived) -> list[ControllerEffect]:
        code = request.code
        if code == RequestCode.BROKER_HEARTBEAT:
            return self._heartbeat_request(now_ms, request)
        if code in READS:
            answer = self.read(now_ms, request.connection, code, request.ext_fields, request.body)
            return [reply(request.token, answer)]
        if code == RequestCode.GET_BROKER_SILENCE:
            return [reply(request.token, silence_answer(now_ms, self.probing, request.ext_fields))]
        if code not in WRITES:
            return [reply(request.token, not_supported(code))]
        twin = self._twins.refused(now_ms, self.state, request)
        if twin is None:
            self._hear_sender(now_ms, request)
        if not self._leader:
            return [reply(request.token, NOT_LEADER)]
        if twin is not None:
            return [reply(request.token, twin), *self._twins.notes(now_ms, request, twin)]
        name = request.ext_fields.get("brokerName", "")
        return self._admit(now_ms, Work(name, request, "", now_ms))

    def _heartbeat_request(self, now_ms: int, request: RequestReceived) -> list[ControllerEffect]:
        beat = Heartbeat.of(request.ext_fields)
        answer = reply(request.token, self.heartbeat_answer(now_ms, beat))
        return [answer, *self.heartbeat(now_ms, request.connection, beat)]

    def _hear_sender(self, now_ms: int, request: RequestReceived) -> None:
        named = sender(self.state, request.code, request.ext_fields)
        if named is not None:
            self.liveness.heard(now_ms, request.connection, *named)

    def _admit(self, now_ms: int, work: Work) -> list[ControllerEffect]:
        if not self._lanes.busy(work.broker_name):
            return self._run(now_ms, work)
        if self._lanes.wait(work, self._settings.requests_queued_per_set_max):
            return []
        return answer_to(work, BUSY)

    def _run(self, now_ms: int, work: Work | None) -> list[ControllerEffect]:
        """Decide one piece of work after another until one must wait for its commit."""
        effects: list[ControllerEffect] = []
        while work is not None:
            decision = self._decide(now_ms, work)
            if decision.event is not None:
                effects.append(self._propose(now_ms, work, decision, decision.event))
                return effects
            self._elections.count(self.state, work, decision.code)
            effects += answer_to(work, decision)
            work = self._lanes.next(work.broker_name)
        return effects

    def _decide(self, now_ms: int, work: Work) -> Decision:
        context = self._context(now_ms, work.arrived_ms)
        if work.request is None:
            wanted = ElectRequest(work.broker_name, None, False, "controller", work.reason)
            return elect_master(self.state, context, wanted)
        request = work.request
        return decide(self.state, context, request.code, request.ext_fields, request.body)

    def _propose(self, now_ms: int, work: Work, decision: Decision, event: Event) -> Propose:
        work.decision = decision
        work.attempts += 1
        work.proposed_ms = now_ms
        self._lanes.start(work)
        return Propose(self._proposals.add(self._term, work, event))

    # The log

    def _committed(self, now_ms: int, event: Committed) -> list[ControllerEffect]:
        if event.index <= self._applied_index:
            return []
        self._applied_index = event.index
        if not event.record:
            return []
        work, what = self._proposals.committed(event.record)
        if isinstance(what, STATE_RECORDS):
            told = self.digests.committed(event.index, what, self.state)
            return [Propose(told)] if told is not None and self._leader else []
        effects = self._event_committed(now_ms, work, what)
        if event.index >= self.digests.due_index and self._leader:
            effects.append(Propose(self.digests.mark(event.index, self._term)))
        return effects

    def _event_committed(
        self, now_ms: int, work: Work | None, what: Event
    ) -> list[ControllerEffect]:
        known = self.state.sets.get(what.broker_name)
        old_master = None if known is None else known.master_broker_id
        touched = concerned(self.state, what)
        members = frozenset(() if known is None else known.sync_state_set)
        cluster = "" if known is None else known.cluster_name
        own = work is not None and work.decision is not None
        applied = apply(self.state, what, tell=own and self._telling.may_tell(now_ms))
        for identity in touched:
            self.liveness.registration_changed(identity)
        # What others proposed may be of long ago, read again after a start: it says nothing of a broker
        # that came back since.
        for broker_id in vouched_for(what, members) if own and applied.changed else ():
            self.liveness.vouched((cluster, what.broker_name, broker_id))
        if touched and known is not None and what.broker_name not in self.state.sets:
            self._elections.removed(known.cluster_name, what.broker_name)
        if isinstance(what, MasterElected) and applied.changed:
            self._elections.committed(now_ms, what, self._settings.renotify_window_ms)
            self.stages.applied(
                now_ms, what.broker_name, what.new_master_broker_id, what.master_epoch,
                None if work is None or work.decision is None else work.proposed_ms,
            )  # fmt: skip
            self.probing.watch(now_ms, what.broker_name)
        if work is None or work.decision is None:
            # Another node's decision, or one from before a restart: people read the leader's.
            return quiet(applied.note)
        if work.decision.decide_again and applied.changed and not work.abandoned:
            if work.request is not None:
                self._hear_sender(now_ms, work.request)
            return [*quiet(applied.note), *self._run(now_ms, work)]
        effects = answer_to(work, work.decision if applied.changed else OVERTAKEN)
        if applied.note is not None:
            effects += self._telling.told(
                now_ms, applied.note, work, self._applied_index, self._term
            )
        if applied.changed:
            effects += self._follow_up(now_ms, work, work.decision, old_master)
        following = self._lanes.next(work.broker_name)
        return effects if following is None else effects + self._run(now_ms, following)

    def _follow_up(
        self, now_ms: int, work: Work, decision: Decision, old_master: BrokerId | None
    ) -> list[ControllerEffect]:
        """After a commit: count, announce, and hear the broker that just got its id."""
        if isinstance(decision.event, SyncStateSetAltered):
            return []
        self._elections.count(self.state, work, decision.code)
        event = decision.event
        waited_for = work.request is not None and not work.abandoned
        if isinstance(event, BrokerIdTaken) and work.request is not None and waited_for:
            self._hear_sender(now_ms, work.request)
        if not isinstance(event, MasterElected):
            return []
        asker = None
        if work.request is not None and waited_for and event.trigger == "broker":
            asker = broker_id_field(work.request.ext_fields, "brokerId")
        return self._announce(now_ms, event.broker_name, asker, old_master)

    def _announce(
        self, now_ms: int, name: str, asker: BrokerId | None, old_master: BrokerId | None
    ) -> list[ControllerEffect]:
        broker_set = self.state.sets.get(name)
        if broker_set is None or not self._settings.notify_broker_role_changed:
            return []
        is_gone = old_master is None or self.liveness.is_closed(
            broker_set.cluster_name, name, old_master
        )
        delays = SlaveDelays.of(self._settings, old_is_gone=is_gone)
        return [
            *self._announcer.elected(now_ms, broker_set, delays, asker=asker, old_master=old_master)
        ]

    def _proposal_dropped(self, now_ms: int, record: bytes) -> list[ControllerEffect]:
        work = self._proposals.dropped(record)
        if work is None:
            return []
        if work.request is None and work.attempts < self._settings.elect_master_max_retry_count:
            return self._run(now_ms, work)
        return [
            *answer_to(work, NOT_LEADER),
            *self._run(now_ms, self._lanes.next(work.broker_name)),
        ]

    def _snapshot_loaded(self, event: SnapshotLoaded) -> list[ControllerEffect]:
        index, state = event.state or from_snapshot(event.data)
        # The announcer and shells hold on to this object.
        self.state.replace(state)
        self.liveness.registrations_replaced()
        self._elections.replaced(self.state)
        self._applied_index = event.index
        self.digests.passed(event.index)
        facts = {"index": event.index, "snapshot_index": index, "broker_sets": len(state.sets)}
        return [Note("snapshot_loaded", facts=facts)]

    # Leadership

    def _leadership_changed(self, now_ms: int, event: LeadershipChanged) -> list[ControllerEffect]:
        effects = self._step_down()
        self._leader, self._term = event.is_leader, event.term
        self._wall_offset_ms = event.wall_offset_ms
        facts = {"is_leader": event.is_leader, "term": event.term}
        effects.append(Note("controller_role_changed", facts=facts))
        if not event.is_leader:
            return effects
        self._cold_until_ms = now_ms + self._settings.cold_start_grace_ms
        self._spare_masters(now_ms)
        for name in self._elections.recent(now_ms, self._settings.renotify_window_ms):
            # The old leader may have died before it told the brokers; they ignore a repetition.
            effects += self._announce(now_ms, name, None, None)
        self.probing.lead(now_ms)
        self._scanning.begin()
        return [*effects, *self._scan(now_ms)]

    def _spare_masters(self, now_ms: int) -> None:
        for one in self.state.sets.values():
            if one.master_broker_id is not None:
                self.liveness.spare(now_ms, one.cluster_name, one.broker_name, one.master_broker_id)

    def _step_down(self) -> list[ControllerEffect]:
        """Answer everything that waits: its outcome is open, and the next leader's business."""
        self._leader = False
        self._proposals.clear()
        self._announcer.clear()
        self.probing.follow()
        effects: list[ControllerEffect] = []
        for work in self._lanes.clear():
            effects += answer_to(work, NOT_LEADER)
        return effects

    # Life and death

    def _after_heartbeat(self, now_ms: int, broker: LiveBroker) -> Effects:
        cluster, name, broker_id = broker.identity
        broker_set = self.state.sets.get(name)
        has_master = broker_set is not None and broker_set.master_broker_id is not None
        effects: list[ControllerEffect] = []
        if broker.revived:
            effects.append(Note("broker_active", facts=broker_facts(broker.identity)))
        if not self._leader:
            return effects
        if self._announcer.waits_for(name):
            effects += self._announcer.master_heard(now_ms, name, broker_id, broker.epoch)
        if broker_set is not None and not has_master and broker_set.cluster_name == cluster:
            notify = self._settings.notify_broker_role_changed
            if broker_id in broker_set.sync_state_set and may_fill_vacancy(
                broker_set, notify=notify
            ):
                effects += self._elect(now_ms, name, "in_sync_replica_returned")
        return effects

    def _elect(self, now_ms: int, name: str, reason: str) -> list[ControllerEffect]:
        if self._lanes.electing(name):
            return []
        return self._admit(now_ms, Work(name, None, reason, now_ms))

    def _connection_closed(self, now_ms: int, connection: int) -> list[ControllerEffect]:
        self.liveness.connection_closed(now_ms, connection)
        effects: list[ControllerEffect] = []
        for work in self._lanes.abandon(connection):
            effects += answer_to(work, GONE)
        return effects + self._expire(now_ms)

    def _ticked(self, now_ms: int) -> list[ControllerEffect]:
        effects = self._expire(now_ms, ticked=True)
        if not self._leader or self._late.rests:
            return effects
        effects += self._announcer.due(now_ms)
        effects += self.probing.due(now_ms)
        return effects + self._scan(now_ms) if now_ms >= self._scanning.next_ms else effects

    def _was_late(self, now_ms: int, late_ms: int) -> list[ControllerEffect]:
        """This node was not scheduled: it cannot tell who was silent, if that took long."""
        if late_ms < PAUSED_MS and not self.liveness.hears_nobody(now_ms):
            return []
        if self._leader:
            self._spare_masters(now_ms)
        return [Note("controller_was_away", "warning", {"late_ms": late_ms})]

    def _expire(self, now_ms: int, *, ticked: bool = False) -> list[ControllerEffect]:
        if not self._late.may_look(now_ms, ticked=ticked):
            return []
        effects = self._tell_deaths(now_ms, self._late.read_ms) if ticked else []
        due_ms = self.liveness.next_deadline_ms()
        if due_ms is None or due_ms > now_ms or (ticked and due_ms <= self._late.read_ms):
            return effects
        if not self._late.is_late(now_ms, due_ms, ticked=ticked):
            return effects + self._tell_deaths(now_ms, now_ms)
        return effects + self._was_late(now_ms, now_ms - due_ms) if ticked else effects

    def _tell_deaths(self, now_ms: int, until_ms: int) -> list[ControllerEffect]:
        effects: list[ControllerEffect] = []
        for identity in self.liveness.expire(until_ms):
            cluster, name, broker_id = identity
            broker_set = self.state.sets.get(name)
            was_master = (
                broker_set is not None
                and broker_set.cluster_name == cluster
                and broker_set.master_broker_id == broker_id
            )
            facts = {**broker_facts(identity), "was_master": was_master}
            effects.append(Note("broker_inactive", "warning", facts))
            if self._leader and was_master:
                effects += self._elect(now_ms, name, "master_inactive")
        return effects

    def _probe_news(self, now_ms: int, event: ProbeAnswered | PeersHeard) -> list[ControllerEffect]:
        if isinstance(event, ProbeAnswered):
            answered = self.probing.answered(event.number)
            if answered is not None:
                self.liveness.relayed(now_ms, *answered, 0)
            return []
        given_up, told = self.probing.peers_heard(now_ms, event)
        if given_up is None:
            return [*told]
        self.liveness.missed(now_ms, *given_up)
        effects = [*told, *self._elect(now_ms, given_up[1], "probe_unanswered")]
        return effects + self._expire(now_ms)

    def _scan(self, now_ms: int) -> list[ControllerEffect]:
        """Look for masters whose death nobody acted on."""
        effects: list[ControllerEffect] = []
        for name in self._scanning.part(
            now_ms, self.state.sets, self.liveness, self._settings, self._cold_until_ms
        ):
            one = self.state.sets[name]
            if not self.liveness.is_dying(now_ms, one.cluster_name, name, one.master_broker_id):
                effects += self._elect(now_ms, name, "scan")
        return effects
