"""When a master is silent: ask it, ask the other controllers, and only then give it up.

States of a set's watch: quiet (the master is heard) -> probing (it missed a heartbeat and was
asked) -> asking (it did not answer; the peers are asked) -> given up, or quiet again. Rules:
- Whatever is heard of the master, by this node or a peer, ends it.
- Only who said that it holds a write lease is probed, unless the settings say otherwise: any other
  master goes on acknowledging when it was given up, and an older one of ours believes in its timeout.
- Nobody is probed for whom nobody could follow: another member of the SyncStateSet must be heard.
- An answered heartbeat promises the master to wait ``promise_ms`` (ADR 0016). It is given up only
  when a majority of the controllers say that no promise of theirs is left, and none that answers
  says otherwise. Who said so promises nothing for ``WITHHELD_MS``, or a lease could live on by
  promises that are made while the others are being asked.
- A node that was not scheduled when an answer was due asks again: the answer may lie in its buffer.

Source: our own; ADR 0031.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from enum import Enum

from msgspec import Struct

from rmqha.base.ids import BrokerId
from rmqha.base.machine import Note
from rmqha.controller.liveness import LiveBroker, Liveness
from rmqha.controller.metadata.answers import HEARTBEAT_OK, broker_facts
from rmqha.controller.metadata.decision import Decision
from rmqha.controller.metadata.probe_messages import (
    NEVER_HEARD,
    AskPeers,
    PeerReport,
    PeersHeard,
    Probe,
)
from rmqha.controller.metadata.registrations import Identity, is_registered
from rmqha.controller.metadata.state import BrokerSet, MetadataState
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.heartbeat import Heartbeat

QUIET_MS = 600
"""So long a master may be silent before it is asked. Java's beats once a second, and so is asked once
between two beats: the fresher the last sign of life, the longer a pause may be that costs nothing.
Ours beats more often where it is told of a promise, and is seldom asked."""
ASK_MS = 200
LATE_MS = 100
UNASKED_MS = 5_000
"""After so long a set whose master is not probed is looked at again: it may have another by then."""
WITHHELD_MS = 1_000
WITHHELD_MAX = 10_000
"""Brokers that are promised nothing at a time; registered ones beside."""
TURN_MAX = 200
"""Sets that are looked at in one turn of the loop."""

NO_PROMISE = Decision(ResponseCode.SUCCESS, HEARTBEAT_OK.remark, ext_fields={"promiseMillis": "0"})


class Phase(Enum):
    """How far a watch is."""

    QUIET = "quiet"
    PROBING = "probing"
    ASKING = "asking"


class ProbeCounts(Struct):
    """Figures for people.

    Attributes:
        sent: probes.
        unanswered: of these, by the end of their time.
        elections: that were begun for it.
        held: masters that were not given up because another controller hears them.
    """

    sent: int = 0
    unanswered: int = 0
    elections: int = 0
    held: int = 0


class _Watch(Struct, eq=False):
    name: str
    due_ms: int
    slot: int = 0
    phase: Phase = Phase.QUIET
    number: int = 0
    sent_ms: int = 0
    identity: Identity | None = None


Asked = list[Probe | AskPeers | Note]


class Probing:
    """The watches of one node, and what it has promised.

    Args:
        state: what is replicated; read only.
        liveness: whom this node hears.

    Attributes:
        counts: what has happened.
        born_ms: when this node began to hear brokers; 0 before.
        promise: what a broker hears upon a heartbeat that is not in ``withheld``.
        withheld: until when a broker is promised nothing; the first one to end comes first.
    """

    def __init__(self, state: MetadataState, liveness: Liveness) -> None:
        self._state = state
        self._liveness = liveness
        self.counts = ProbeCounts()
        self._timeout_ms = 0
        self._only_leased = True
        self._leads = False
        self._watches: dict[str, _Watch] = {}
        self._asked: dict[int, _Watch] = {}
        self._heap: list[tuple[int, int, str]] = []
        self._slots = self._number = 0
        self.born_ms = 0
        self.withheld: OrderedDict[Identity, int] = OrderedDict()
        self.promise = HEARTBEAT_OK

    @property
    def promise_ms(self) -> int:
        """How long this node waits for a silent master at least; 0 for the broker's own timeout."""
        return QUIET_MS + self._timeout_ms if self._timeout_ms else 0

    def configure(self, timeout_ms: int, *, only_leased: bool) -> None:
        """Take ``activeProbeTimeoutMillis``, 0 for no probes, and ``activeProbeMasters``."""
        self._only_leased = only_leased
        if timeout_ms == self._timeout_ms:
            return
        self._timeout_ms = timeout_ms
        fields = {"promiseMillis": str(self.promise_ms)}
        self.promise = (
            Decision(ResponseCode.SUCCESS, HEARTBEAT_OK.remark, ext_fields=fields)
            if timeout_ms
            else HEARTBEAT_OK
        )

    # -- what this node promises -----------------------------------------------------------------

    def answer(self, now_ms: int, beat: Heartbeat) -> Decision:
        """What a broker hears upon a heartbeat: how long this node waits from now on."""
        if self.withheld:
            identity = (beat.cluster_name, beat.broker_name, BrokerId(beat.broker_id))
            if now_ms < self.withheld.get(identity, 0):
                return NO_PROMISE
            self.withheld.pop(identity, None)
        return self.promise if beat.write_lease or not self._only_leased else HEARTBEAT_OK

    def _is_probed(self, broker: LiveBroker) -> bool:
        return broker.leased or not self._only_leased

    def report(self, now_ms: int, identity: Identity) -> PeerReport:
        """What a peer that leads is told of a broker; with nothing promised, nothing will be."""
        broker = self._liveness.info(*identity)
        length_ms = self.promise_ms
        if broker is not None and not (length_ms and self._is_probed(broker)):
            length_ms = broker.timeout_ms
        # What was promised before a restart is not known here.
        promised_ms = self.born_ms + (length_ms or QUIET_MS) - now_ms
        silent_ms = NEVER_HEARD
        if broker is not None:
            silent_ms = now_ms - broker.heard_ms
            promised_ms = max(promised_ms, length_ms - silent_ms)
        if promised_ms <= 0:
            promised_ms = 0 if self._withhold(now_ms, identity) else 1
        return PeerReport("", silent_ms, promised_ms)

    def _withhold(self, now_ms: int, identity: Identity) -> bool:
        """Promise a broker nothing for a while; False when too many strangers are kept already."""
        withheld = self.withheld
        while withheld and now_ms >= next(iter(withheld.values())):
            withheld.popitem(last=False)
        is_new = withheld.pop(identity, None) is None
        # Anybody may ask for anybody; whom the group knows always finds room.
        if is_new and len(withheld) >= WITHHELD_MAX and not is_registered(self._state, identity):
            return False
        withheld[identity] = now_ms + WITHHELD_MS
        return True

    # -- what the leader watches -----------------------------------------------------------------

    def lead(self, now_ms: int) -> None:
        """Watch every set with a master."""
        self.follow()
        self._leads = True
        for name, one in self._state.sets.items():
            if one.master_broker_id is not None:
                self.watch(now_ms, name)

    def follow(self) -> None:
        """This node does not lead, and watches nobody."""
        self._leads = False
        self._watches.clear()
        self._asked.clear()
        self._heap.clear()

    def watch(self, now_ms: int, name: str) -> None:
        """A set has a master, maybe a new one."""
        if not self._leads or not self._timeout_ms:
            return
        watch = self._watches.get(name)
        if watch is None:
            watch = self._watches[name] = _Watch(name, 0)
        elif watch.due_ms - now_ms <= QUIET_MS:
            return
        self._wait(watch, now_ms + QUIET_MS)

    def next_deadline_ms(self) -> int | None:
        """When ``due`` has something to look at."""
        while self._heap:
            due_ms, slot, name = self._heap[0]
            watch = self._watches.get(name)
            if watch is not None and watch.slot == slot:
                return due_ms
            heapq.heappop(self._heap)
        return None

    def due(self, now_ms: int) -> Asked:
        """Look at those whose time has come."""
        asked: Asked = []
        for _ in range(TURN_MAX):
            due_ms = self.next_deadline_ms()
            if due_ms is None or due_ms > now_ms:
                break
            asked += self._look(now_ms, self._watches[heapq.heappop(self._heap)[2]])
        return asked

    def answered(self, number: int) -> Identity | None:
        """Who has answered a probe; None when nobody waits for it any more."""
        watch = self._asked.pop(number, None)
        if watch is None:
            return None
        watch.phase = Phase.QUIET
        return watch.identity

    def peers_heard(self, now_ms: int, event: PeersHeard) -> tuple[Identity | None, Asked]:
        """Judge a master by what all controllers know.

        Returns:
            Who is given up, if somebody is, and what to tell.
        """
        watch = self._asked.get(event.number)
        if watch is None or watch.phase is not Phase.ASKING or watch.identity is None:
            return None, []
        identity = watch.identity
        for one in event.reports:
            if one.silent_ms != NEVER_HEARD:
                self._liveness.relayed(now_ms, *identity, one.silent_ms)
        broker = self._silent(now_ms, watch)
        promised_ms = max((one.promised_ms for one in event.reports), default=0)
        if promised_ms > 0 or broker is None:
            self.counts.held += broker is None
            watch.phase = Phase.PROBING if broker is not None else Phase.QUIET
            self._wait(watch, now_ms + min(max(promised_ms, 1), QUIET_MS))
            return None, []
        if len(event.reports) + 1 < event.majority:
            watch.phase = Phase.PROBING
            self._wait(watch, now_ms + ASK_MS)
            return None, []
        self._withhold(now_ms, identity)
        self._begin_anew(now_ms, watch)
        self.counts.elections += 1
        facts = {**broker_facts(identity), "silent_ms": now_ms - broker.heard_ms,
                 "reports": len(event.reports)}  # fmt: skip
        return identity, [Note("master_given_up", "warning", facts)]

    def _look(self, now_ms: int, watch: _Watch) -> Asked:
        broker_set = self._state.sets.get(watch.name)
        if broker_set is None or broker_set.master_broker_id is None:
            del self._watches[watch.name]
            self._asked.pop(watch.number, None)
            return []
        identity = (broker_set.cluster_name, watch.name, broker_set.master_broker_id)
        if identity != watch.identity:
            watch.identity, watch.phase = identity, Phase.QUIET
        known = self._liveness.info(*identity)
        if known is not None and not self._is_probed(known):
            self._begin_anew(now_ms - QUIET_MS + UNASKED_MS, watch)
            return []
        broker = self._silent(now_ms, watch)
        if broker is None:
            heard_ms = now_ms if known is None else known.heard_ms
            self._begin_anew(heard_ms if now_ms - heard_ms < QUIET_MS else now_ms, watch)
            return []
        if not self._has_heir(now_ms, broker_set):
            self._begin_anew(now_ms - QUIET_MS + ASK_MS, watch)
            return []
        stale = now_ms - watch.due_ms > LATE_MS or broker.heard_ms > watch.sent_ms
        if stale or watch.phase is not Phase.PROBING:
            return self._probe(now_ms, watch, broker_set, broker)
        left_ms = broker.heard_ms + self.promise_ms - now_ms
        if left_ms > 0:
            self._wait(watch, now_ms + left_ms)
            return []
        self.counts.unanswered += 1
        watch.phase = Phase.ASKING
        self._renumber(watch)
        self._wait(watch, now_ms + 2 * ASK_MS)
        return [AskPeers(watch.number, identity, ASK_MS)]

    def _probe(
        self, now_ms: int, watch: _Watch, broker_set: BrokerSet, broker: LiveBroker
    ) -> Asked:
        self.counts.sent += 1
        watch.phase, watch.sent_ms = Phase.PROBING, now_ms
        self._renumber(watch)
        self._wait(watch, now_ms + self._timeout_ms)
        ways = tuple(one for one in (broker.connection, broker.later_connection) if one is not None)
        address = broker_set.replicas[broker.identity[2]].address
        facts = {**broker_facts(broker.identity), "silent_ms": now_ms - broker.heard_ms}
        return [
            Note("master_probed", "info", facts),
            Probe(watch.number, broker.identity, ways, address, self._timeout_ms),
        ]

    def _silent(self, now_ms: int, watch: _Watch) -> LiveBroker | None:
        """The master, when it counts as alive and was not heard for too long."""
        if watch.identity is None:
            return None
        broker = self._liveness.info(*watch.identity)
        if broker is None or now_ms >= broker.dead_at_ms or now_ms - broker.heard_ms < QUIET_MS:
            return None
        return broker

    def _has_heir(self, now_ms: int, broker_set: BrokerSet) -> bool:
        cluster, name = broker_set.cluster_name, broker_set.broker_name
        for broker_id in broker_set.sync_state_set:
            one = self._liveness.info(cluster, name, broker_id)
            if broker_id == broker_set.master_broker_id or one is None:
                continue
            if now_ms < one.dead_at_ms and now_ms - one.heard_ms < self.promise_ms:
                return True
        return False

    def _renumber(self, watch: _Watch) -> None:
        self._asked.pop(watch.number, None)
        self._number += 1
        watch.number = self._number
        self._asked[watch.number] = watch

    def _begin_anew(self, since_ms: int, watch: _Watch) -> None:
        watch.phase = Phase.QUIET
        self._asked.pop(watch.number, None)
        self._wait(watch, since_ms + QUIET_MS)

    def _wait(self, watch: _Watch, due_ms: int) -> None:
        self._slots += 1
        watch.slot, watch.due_ms = self._slots, due_ms
        heapq.heappush(self._heap, (due_ms, watch.slot, watch.name))
