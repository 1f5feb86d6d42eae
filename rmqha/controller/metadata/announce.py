"""Telling brokers about an election: the new master first, the others when it has taken over.

A slave that hears first asks the name server for a master that has not registered there yet, and
gets nothing or the old one. Nothing costs it up to 30 s; the old one is worse where that still
accepts connections: the slave then replicates from a former master and does not let go for
minutes. A Java broker that leaves a living master takes 5 s until it serves as master. So:

- the new master hears at once, and so does a living old master, for until then it takes writes;
- the slaves hear when the name servers name the new master, after a long delay at the latest.

Where that cannot be seen (no name server, an old one, access refused):

- if the old master's connection is closed, its ports are gone: the slaves hear with the new
  master's heartbeat in the new epoch, after a short delay at the latest;
- elsewhere (it hangs, or an operator chose another one): they hear a margin after that heartbeat,
  in which the new master registers, after a long delay at the latest.

A newer election of the set replaces what is still to be told. A slave that asks by itself before
its turn would hear the same thing too early: it gets an answer that makes it ask again.

Source: Java 5.3.3 ControllerManager#notifyBrokerRoleChanged, which tells all at once.
"""

from __future__ import annotations

import heapq

from msgspec import Struct

from rmqha.base.ids import BrokerId, MasterEpoch
from rmqha.controller.metadata.by_address import knows_no_ids
from rmqha.controller.metadata.decide_query import master_fields
from rmqha.controller.metadata.decision import LiveTable
from rmqha.controller.metadata.election_stages import ElectionStages
from rmqha.controller.metadata.messages import (
    MachineSettings,
    Notify,
    RouteFollowed,
    RouteUnknown,
    RouteUpdated,
    WatchRoute,
)
from rmqha.controller.metadata.state import BrokerSet, MetadataState


class SlaveDelays(Struct, frozen=True):
    """How long slaves wait to be told.

    Attributes:
        delay_ms: at most, where the route cannot be seen.
        margin_ms: there, after the master's heartbeat with the new epoch.
        watch_ms: at most, for the route; 0 for not looking at it.
    """

    delay_ms: int
    margin_ms: int = 0
    watch_ms: int = 0

    @classmethod
    def of(cls, settings: MachineSettings, *, old_is_gone: bool) -> SlaveDelays:
        """The delays of one election; ``old_is_gone``: nobody can reach the old master's ports."""
        watch_ms = settings.slave_notify_open_delay_ms if settings.watch_name_server_route else 0
        if old_is_gone:
            return cls(settings.slave_notify_delay_ms, watch_ms=watch_ms)
        open_ms = settings.slave_notify_open_delay_ms
        return cls(open_ms, settings.slave_notify_open_margin_ms, watch_ms)


SETS_A_PART = 200
"""Sets whose slaves are told in one turn of the loop."""


class _Pending(Struct):
    master_epoch: MasterEpoch
    due_ms: int
    due_blind_ms: int
    due_watching_ms: int
    margin_ms: int
    watching: bool = False
    heard_ms: int | None = None
    told: BrokerId | None = None
    slot: int = -1


class Announcer:
    """What is still to be told to slaves, by brokerName."""

    def __init__(
        self, state: MetadataState, live: LiveTable, stages: ElectionStages | None = None
    ) -> None:
        """Announce elections of ``state`` to the brokers alive in ``live``; ``stages`` is told."""
        self._stages = stages or ElectionStages()
        self._state = state
        self._live = live
        self._pending: dict[str, _Pending] = {}
        # By due_ms; an entry whose slot is not its set's is void.
        self._heap: list[tuple[int, int, str]] = []
        self._slots = 0

    def elected(
        self,
        now_ms: int,
        broker_set: BrokerSet,
        delays: SlaveDelays,
        *,
        asker: BrokerId | None = None,
        old_master: BrokerId | None = None,
    ) -> list[Notify | WatchRoute]:
        """Tell the new master now, then the old one if it lives, and plan the rest."""
        master = broker_set.master_broker_id
        self._pending.pop(broker_set.broker_name, None)
        if master is None:
            return []
        due_ms = now_ms + delays.delay_ms
        pending = self._pending[broker_set.broker_name] = _Pending(
            broker_set.master_epoch, due_ms, due_ms, now_ms + delays.watch_ms, delays.margin_ms
        )
        self._wait(broker_set.broker_name, pending, due_ms)
        told: list[Notify | WatchRoute] = [
            _notify(broker_set, broker_id)
            for broker_id in (master, old_master)
            if broker_id in broker_set.replicas
            and (broker_id == asker or self._alive(now_ms, broker_set, broker_id))
        ]
        pending.told = old_master
        self._stages.told(now_ms, broker_set.broker_name, broker_set.master_epoch)
        address = broker_set.address(master)
        if delays.watch_ms and address is not None:
            told.append(
                WatchRoute(
                    broker_set.cluster_name,
                    broker_set.broker_name,
                    broker_set.master_epoch,
                    address,
                    delays.watch_ms,
                )
            )
        return told

    def waits_for(self, name: str) -> bool:
        """Whether slaves of this set still have to be told."""
        return name in self._pending

    def is_too_early_for(self, name: str, broker_ids: list[BrokerId]) -> bool:
        """Whether all of these brokers, one at least, are slaves that still have to be told."""
        pending = self._pending.get(name)
        broker_set = self._state.sets.get(name)
        if pending is None or broker_set is None or not broker_ids:
            return False
        return broker_set.master_broker_id not in broker_ids and pending.told not in broker_ids

    def master_heard(self, now_ms: int, name: str, broker_id: BrokerId, epoch: int) -> list[Notify]:
        """Tell the slaves, now or soon, when this heartbeat is the new master's in its epoch."""
        pending = self._pending.get(name)
        broker_set = self._state.sets.get(name)
        if pending is None or broker_set is None or broker_set.master_broker_id != broker_id:
            return []
        if epoch < pending.master_epoch or pending.heard_ms is not None:
            return []
        pending.heard_ms = now_ms
        return [] if pending.watching else self._after_heartbeat(now_ms, name, pending)

    def route_news(
        self, now_ms: int, news: RouteFollowed | RouteUpdated | RouteUnknown
    ) -> list[Notify]:
        """Take what is seen of the new master's route.

        While it is followed, heartbeats and the short delay do not count. Once it is there,
        whatever a slave asks a name server leads to the new master. When it cannot be seen, all
        is as if nobody had looked.
        """
        name = news.broker_name
        pending = self._pending.get(name)
        if pending is None or pending.master_epoch != news.master_epoch:
            return []
        match news:
            case RouteFollowed():
                pending.watching = True
                self._wait(name, pending, pending.due_watching_ms)
                return []
            case RouteUpdated():
                return self._tell_slaves(now_ms, name)
            case RouteUnknown():
                pending.watching = False
                self._wait(name, pending, min(pending.due_ms, pending.due_blind_ms))
                heard = pending.heard_ms is not None
                return self._after_heartbeat(now_ms, name, pending) if heard else []

    def _after_heartbeat(self, now_ms: int, name: str, pending: _Pending) -> list[Notify]:
        if pending.margin_ms == 0:
            return self._tell_slaves(now_ms, name)
        heard_ms = now_ms if pending.heard_ms is None else pending.heard_ms
        self._wait(name, pending, min(pending.due_ms, heard_ms + pending.margin_ms))
        return []

    def due(self, now_ms: int) -> list[Notify]:
        """Tell the slaves of the sets whose time is up, the first ones of very many."""
        told: list[Notify] = []
        for _ in range(SETS_A_PART):
            due_ms = self.next_deadline_ms()
            if due_ms is None or due_ms > now_ms:
                break
            told += self._tell_slaves(now_ms, self._heap[0][2])
        return told

    def next_deadline_ms(self) -> int | None:
        """When the next ones are due; asked behind each chunk of requests."""
        while self._heap:
            due_ms, slot, name = self._heap[0]
            pending = self._pending.get(name)
            if pending is not None and pending.slot == slot:
                return due_ms
            heapq.heappop(self._heap)
        return None

    def _wait(self, name: str, pending: _Pending, due_ms: int) -> None:
        self._slots += 1
        pending.slot, pending.due_ms = self._slots, due_ms
        heapq.heappush(self._heap, (due_ms, pending.slot, name))
        if len(self._heap) > 2 * len(self._pending) + 64:
            self._heap = [(one.due_ms, one.slot, name) for name, one in self._pending.items()]
            heapq.heapify(self._heap)

    def clear(self) -> None:
        """Forget everything: another node leads."""
        self._pending.clear()
        self._heap.clear()

    def _tell_slaves(self, now_ms: int, name: str) -> list[Notify]:
        pending = self._pending.pop(name)
        broker_set = self._state.sets.get(name)
        if broker_set is None or broker_set.master_epoch != pending.master_epoch:
            return []
        self._stages.slaves_told(now_ms, name, broker_set.master_epoch)
        return [
            _notify(broker_set, broker_id)
            for broker_id in sorted(broker_set.replicas)
            if broker_id not in {broker_set.master_broker_id, pending.told}
            and self._alive(now_ms, broker_set, broker_id)
        ]

    def _alive(self, now_ms: int, broker_set: BrokerSet, broker_id: BrokerId) -> bool:
        return self._live.alive(now_ms, broker_set.cluster_name, broker_set.broker_name, broker_id)


def _notify(broker_set: BrokerSet, broker_id: BrokerId) -> Notify:
    replica, fields = broker_set.replicas[broker_id], master_fields(broker_set)
    if knows_no_ids(replica):
        # It takes this for its own id, which it learns nowhere else before it registers again.
        own = 0 if broker_id == broker_set.master_broker_id else broker_id
        fields = {**fields, "brokerId": str(own)}
    return Notify(replica.address, fields, broker_set.sync_state_set_body())
