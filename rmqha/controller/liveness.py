"""Which brokers this node hears: soft state, kept by every controller node, never replicated.

A broker is alive from a sign of life until its timeout passes, or until the grace after its
connection closed is over. States of an entry: bound to a connection -> in grace (its connection
closed, nobody else heard) -> dead; any sign of life brings it back.

Rules:
- A connection is a generation: an entry belongs to the newest one that carried its heartbeat,
  and the close of any other connection means nothing for it (#11045). A connection that says the
  broker stands still may be its watcher's: it stands in until the broker beats itself (ADR 0024).
- A connection may carry several brokers (BrokerContainer); its close starts the grace of all.
- Any valid request of a broker is a sign of life, not only heartbeats (#10812).
- Brokers that are heard and not registered may be anybody: one connection carries so many of them
  at most, they take no registered broker's place, and nobody is believed to be silent for long.

Source: Java 5.3.3 DefaultBrokerHeartbeatManager.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from msgspec import Struct

from rmqha.base.ids import BrokerId
from rmqha.controller.live_room import HeardSets, LiveRoom
from rmqha.controller.metadata.decide_register import NAME_LENGTH_MAX
from rmqha.controller.metadata.decision import SOMETHING
from rmqha.controller.metadata.registrations import Identity
from rmqha.remoting.heartbeat import PRIORITY_LAST, Heartbeat

DEFAULT_TIMEOUT_MS = 10_000
DEFAULT_PRIORITY = PRIORITY_LAST
TIMEOUT_MS_MAX = 300_000
CLOSE_GRACE_MS_MAX = 100
DEATHS_A_PART = 200
"""Each may bring an election; the others are told a turn of the loop later."""

STRANGERS_PER_CONNECTION = 256


class LiveBroker(Struct, eq=False):
    """One broker as this node hears it; satisfies ``LiveInfo``.

    Attributes:
        identity: (cluster, name, id).
        connection: the connection it is bound to; None in grace and after its end.
        later_connection: a newer connection that carried a request, but no heartbeat yet.
        stood_in: ``connection`` carried only heartbeats that say that the broker stands still.
        heard_ms: the last sign of life.
        timeout_ms: how long one sign of life lasts.
        dead_at_ms: the first millisecond at which it no longer counts as alive.
        epoch: of its epoch file, -1 when none.
        max_offset: end of its commit log in bytes, -1 when unknown.
        confirm_offset: in bytes, -1 when unknown.
        lacks_to: what it had confirmed before it came back with less; ``SOMETHING`` where it came with
            nothing and nobody knows; -1 while it has all of that.
        unsaid: it is heard over a new connection and has not said yet what it has; what is known of that
            may be of a process before.
        priority: ``electionPriority``, smaller is preferred.
        stalled_ms: for how long its disk has not answered, or has been full, as it said last.
        learner: it said that it shall never be master.
        leased: it said that it acknowledges nothing alone for longer than it was promised.
        revived: its last sign of life brought it (back) to life.
        expired: its death was already reported.
        closed: its last connection was closed while it counted as alive: it ended, or knows it.
        registered: the replicated state has it.
        slot: which heap entry is the valid one, -1 when none is.
        pushed_ms: the deadline that entry holds; lazily corrected when it moved later.
    """

    identity: Identity
    connection: int | None = None
    later_connection: int | None = None
    stood_in: bool = False
    heard_ms: int = 0
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    dead_at_ms: int = 0
    epoch: int = -1
    max_offset: int = -1
    confirm_offset: int = -1
    lacks_to: int = -1
    unsaid: bool = False
    priority: int = DEFAULT_PRIORITY
    stalled_ms: int = 0
    learner: bool = False
    leased: bool = False
    revived: bool = False
    expired: bool = True
    closed: bool = False
    registered: bool = False
    slot: int = -1
    pushed_ms: int = 0


class Liveness:
    """The live table of one node."""

    def __init__(
        self,
        *,
        close_grace_ms: int = 100,
        brokers_max: int = 100_000,
        strangers_per_connection: int = STRANGERS_PER_CONNECTION,
        timeout_ms_max: int = TIMEOUT_MS_MAX,
        is_registered: Callable[[Identity], bool] = lambda identity: False,
        is_at: Callable[[Identity, str], bool] = lambda identity, address: True,
    ) -> None:
        """Start with nobody heard.

        Args:
            close_grace_ms: how long a broker outlives its closed connection, 0 to 100.
            brokers_max: entries kept; ``live_room`` says who makes room at the limit.
            strangers_per_connection: a connection that carries so many brokers brings no further
                one that is not registered.
            timeout_ms_max: how long one sign of life lasts at most.
            is_registered: whether the replicated state has a broker; asked for new entries, and
                when the machine says that it may have changed.
            is_at: whether a broker may be at an address, by the replicated state.
        """
        self.close_grace_ms = close_grace_ms
        self.brokers_max = brokers_max
        self.timeout_ms_max = timeout_ms_max
        self._strangers_per_connection = strangers_per_connection
        self._is_registered = is_registered
        self._is_at = is_at
        self._brokers: dict[Identity, LiveBroker] = {}
        self._by_connection: dict[int, dict[Identity, LiveBroker]] = {}
        self._room = LiveRoom()
        self._sets: HeardSets[LiveBroker] = HeardSets()
        self._heap: list[tuple[int, int, LiveBroker]] = []
        self._slots = 0

    def heartbeat(self, now_ms: int, connection: int, beat: Heartbeat) -> LiveBroker | None:
        """Take a 904.

        Args:
            now_ms: this node's clock; a broker's clock is never used.
            connection: the connection that carried it.
            beat: what it says.

        Returns:
            The broker, ``revived`` telling whether this woke it; None when the heartbeat has
            no id, there is no room for another broker, or it comes from another address than that
            of a broker that is alive over a connection of its own (``twins``).
        """
        identity = (beat.cluster_name, beat.broker_name, beat.broker_id)
        broker = self._brokers.get(identity)  # type: ignore[arg-type]  # an id is an int
        if broker is None:
            if beat.broker_id < 1:
                return None
            broker = self._insert(now_ms, connection, (*identity[:2], BrokerId(beat.broker_id)))
            if broker is None:
                return None
        bound = broker.connection
        stalled = beat.stalled_ms > 0
        if stalled or bound is None or connection != bound:
            rebinds = bound is None or (not stalled and (connection > bound or broker.stood_in))
        else:
            rebinds = broker.stood_in
        if (rebinds or connection != bound) and self._is_unwelcome(
            now_ms, broker, connection, beat.broker_addr, rebinds=rebinds
        ):
            return None
        epoch, max_offset = beat.epoch, beat.max_offset
        # Java only ever raises them, as its requests of one connection may overtake each other; a
        # broker that comes back with less after a restart must be ranked by what it has now.
        if (
            (max_offset > broker.max_offset and epoch == broker.epoch)
            or epoch > broker.epoch
            or rebinds
            or broker.unsaid
            or now_ms >= broker.dead_at_ms
        ):  # fmt: skip
            if rebinds or broker.unsaid or broker.lacks_to >= 0:
                _compare(broker, max_offset)
            broker.unsaid = False
            broker.epoch = epoch
            broker.max_offset = max_offset
            broker.confirm_offset = beat.confirm_offset
        asked_ms, most_ms = beat.heartbeat_timeout_mills, self.timeout_ms_max
        timeout_ms = asked_ms if asked_ms >= 1 else DEFAULT_TIMEOUT_MS
        broker.timeout_ms = min(timeout_ms, most_ms)
        broker.priority = beat.election_priority
        broker.stalled_ms = max(beat.stalled_ms, beat.no_room_ms)
        broker.learner = beat.async_learner
        broker.leased = beat.write_lease
        # A heartbeat still buffered in an older connection must not pull the entry back to it.
        if rebinds:
            self._bind(broker, connection)
            broker.stood_in = stalled
        self._wake(now_ms, broker)
        return broker

    def _is_unwelcome(
        self, now_ms: int, broker: LiveBroker, connection: int, address: str, *, rebinds: bool
    ) -> bool:
        """Whether a heartbeat by another connection than the broker's is not to be heard."""
        has_its_own = broker.connection not in (None, connection) and now_ms < broker.dead_at_ms
        if has_its_own and not self._is_at(broker.identity, address):
            return True
        return rebinds and not broker.registered and self._is_crowded(connection)

    def vouched(self, identity: Identity) -> None:
        """Others have agreed on what it has: a master took it in, or it is elected itself."""
        broker = self._brokers.get(identity)
        if broker is not None:
            broker.lacks_to = -1

    def heard(
        self, now_ms: int, connection: int, cluster: str, name: str, broker_id: BrokerId
    ) -> LiveBroker | None:
        """Count a valid request of a registered broker as a sign of life.

        It binds the entry only when that is bound to nothing; a newer connection is remembered,
        and takes over when the current one closes.
        """
        identity = (cluster, name, broker_id)
        known = self._brokers.get(identity)
        broker = known or self._insert(now_ms, connection, identity)
        if broker is None:
            return None
        if known is None or broker.connection is None:
            broker.unsaid = True
        if broker.connection is None:
            self._bind(broker, connection)
        elif connection > broker.connection:
            self._remember_later(broker, connection)
        self._wake(now_ms, broker)
        return broker

    def heard_on(self, now_ms: int, connection: int, name: str | None) -> None:
        """Count a request that names only a set: it is from the set's brokers bound here."""
        bound = self._by_connection.get(connection)
        if bound is None:
            return
        for broker in bound.values():
            if broker.identity[1] == name and broker.connection == connection:
                self._wake(now_ms, broker)

    def brokers_on(self, connection: int, name: str) -> list[BrokerId]:
        """The brokers of a set whose heartbeats come on this connection."""
        return [
            broker.identity[2]
            for broker in self._by_connection.get(connection, {}).values()
            if broker.identity[1] == name and broker.connection == connection
        ]

    def connection_closed(self, now_ms: int, connection: int) -> None:
        """Start the grace of every broker bound to this connection, and of no other."""
        for broker in self._by_connection.pop(connection, {}).values():
            if broker.later_connection == connection:
                broker.later_connection = None
            elif broker.connection == connection:
                self._lose_connection(now_ms, broker)

    def alive(self, now_ms: int, cluster: str, name: str, broker_id: BrokerId) -> bool:
        """Whether the broker counts as alive at ``now_ms``, exact to the millisecond."""
        broker = self._brokers.get((cluster, name, broker_id))
        return broker is not None and now_ms < broker.dead_at_ms

    def is_elsewhere(
        self, now_ms: int, connection: int, cluster: str, name: str, broker_id: BrokerId
    ) -> bool:
        """Whether the broker is alive, and heard over another connection, which is open."""
        broker = self._brokers.get((cluster, name, broker_id))
        return (
            broker is not None
            and now_ms < broker.dead_at_ms
            and broker.connection is not None
            and connection not in (broker.connection, broker.later_connection)
        )

    def is_dying(self, now_ms: int, cluster: str, name: str, broker_id: BrokerId | None) -> bool:
        """Whether the broker counts as dead and ``expire`` has not told so yet."""
        broker = None if broker_id is None else self._brokers.get((cluster, name, broker_id))
        return broker is not None and not broker.expired and now_ms >= broker.dead_at_ms

    def info(self, cluster: str, name: str, broker_id: BrokerId) -> LiveBroker | None:
        """What was last heard of a broker, alive or not; None when it never was heard here."""
        return self._brokers.get((cluster, name, broker_id))

    def expire(self, now_ms: int, count_max: int = DEATHS_A_PART) -> list[Identity]:
        """Report who died since the last call, each death once, in the order of dying.

        Of more than ``count_max`` the first ones; ``next_deadline_ms`` is over until all are told.
        """
        gone: list[Identity] = []
        while len(gone) < count_max and self._settle_top() and self._heap[0][0] <= now_ms:
            broker = heapq.heappop(self._heap)[2]
            broker.expired = True
            broker.slot = -1
            self._room.died(broker.identity)
            gone.append(broker.identity)
        return gone

    def spare(self, now_ms: int, cluster: str, name: str, broker_id: BrokerId) -> None:
        """Count a silent broker as alive for its timeout, from now on.

        For a node that begins to lead: while it was cut off or slow itself, the broker may have
        been answered by the other controllers, and each answer promised to wait for the timeout
        (ADR 0016). Who was never heard here, or closed its connection, is not touched.
        """
        broker = self._brokers.get((cluster, name, broker_id))
        if broker is None or broker.closed:
            return
        broker.dead_at_ms = max(broker.dead_at_ms, now_ms + broker.timeout_ms + 1)
        if broker.expired:
            broker.expired = False
            self._room.woke(broker.identity)
            self._push(broker)

    def missed(self, now_ms: int, cluster: str, name: str, broker_id: BrokerId) -> None:
        """Count a broker as dead from now on: no controller has an answer of it (``probing``)."""
        broker = self._brokers.get((cluster, name, broker_id))
        if broker is not None and now_ms < broker.dead_at_ms:
            broker.dead_at_ms = now_ms
            self._push(broker)

    def relayed(
        self, now_ms: int, cluster: str, name: str, broker_id: BrokerId, silent_ms: int
    ) -> None:
        """Another controller heard a broker so long ago; one that closed its connection here ended."""
        broker = self._brokers.get((cluster, name, broker_id))
        heard_ms = now_ms - silent_ms
        if broker is None or broker.closed or heard_ms <= broker.heard_ms:
            return
        dead_at_ms = heard_ms + broker.timeout_ms + 1
        if now_ms >= dead_at_ms:
            return
        broker.heard_ms = heard_ms
        broker.dead_at_ms = max(broker.dead_at_ms, dead_at_ms)
        if broker.expired:
            broker.expired = False
            self._room.woke(broker.identity)
            self._push(broker)

    def heard_in(self, cluster: str, name: str) -> Iterable[tuple[BrokerId, LiveBroker]]:
        """Everyone of a set that was ever heard and not forgotten, registered or not."""
        return self._sets.members(cluster, name)

    def first_heard_ms(self, cluster: str, name: str) -> int | None:
        """When anybody of a set was first heard; None when nobody was, or all are forgotten."""
        return self._sets.first_ms(cluster, name)

    def registration_changed(self, identity: Identity) -> None:
        """The replicated state has taken a broker in, or has it no more."""
        broker = self._brokers.get(identity)
        if broker is not None:
            self._register_again(broker)

    def registrations_replaced(self) -> None:
        """The replicated state is another one."""
        for broker in self._brokers.values():
            self._register_again(broker)

    def _register_again(self, broker: LiveBroker) -> None:
        registered = self._is_registered(broker.identity)
        if registered != broker.registered:
            broker.registered = registered
            self._room.turned(broker.identity, registered=registered)

    def is_closed(self, cluster: str, name: str, broker_id: BrokerId) -> bool:
        """Whether the broker's last connection was closed, rather than silent or never there."""
        broker = self._brokers.get((cluster, name, broker_id))
        return broker is not None and broker.connection is None

    def next_deadline_ms(self) -> int | None:
        """When ``expire`` will have something to report; None when nobody is alive."""
        return self._heap[0][0] if self._settle_top() else None

    def hears_nobody(self, now_ms: int) -> bool:
        """Whether nobody at all was heard for half the timeout of who dies next.

        Of living brokers each beats several times in that; walks the whole table.
        """
        if not self._settle_top():
            return False
        newest_ms = max(one.heard_ms for one in self._brokers.values())
        return 2 * (now_ms - newest_ms) > self._heap[0][2].timeout_ms

    def living(self, now_ms: int) -> list[Identity]:
        """Everyone alive, ascending; walks the whole table, for status pages and metrics."""
        return sorted(key for key, one in self._brokers.items() if now_ms < one.dead_at_ms)

    def _insert(self, now_ms: int, connection: int, identity: Identity) -> LiveBroker | None:
        registered = self._is_registered(identity)
        too_long = max(len(identity[0]), len(identity[1])) > NAME_LENGTH_MAX
        if not registered and (too_long or self._is_crowded(connection)):
            return None
        if len(self._brokers) >= self.brokers_max:
            victim = self._room.victim(registered=registered)
            if victim is not None:
                self._forget(victim)
            elif not registered:
                return None
        broker = LiveBroker(identity, registered=registered)
        self._brokers[identity] = broker
        self._room.added(identity, registered=registered)
        self._sets.add(now_ms, identity, broker)
        return broker

    def _is_crowded(self, connection: int) -> bool:
        return len(self._by_connection.get(connection, ())) >= self._strangers_per_connection

    def _forget(self, identity: Identity) -> None:
        self._room.removed(identity)
        self._sets.remove(identity)
        broker = self._brokers.pop(identity)
        # Its deadline in the heap is void.
        broker.slot = -1
        self._unlink(broker.connection, broker)
        self._unlink(broker.later_connection, broker)

    def _bind(self, broker: LiveBroker, connection: int) -> None:
        later = broker.later_connection
        if later is not None and later <= connection:
            broker.later_connection = None
            self._unlink(later, broker)
        self._unlink(broker.connection, broker)
        broker.connection = connection
        self._by_connection.setdefault(connection, {})[broker.identity] = broker

    def _remember_later(self, broker: LiveBroker, connection: int) -> None:
        if broker.later_connection is not None and broker.later_connection >= connection:
            return
        self._unlink(broker.later_connection, broker)
        broker.later_connection = connection
        self._by_connection.setdefault(connection, {})[broker.identity] = broker

    def _unlink(self, connection: int | None, broker: LiveBroker) -> None:
        bound = None if connection is None else self._by_connection.get(connection)
        if connection is None or bound is None:
            return
        bound.pop(broker.identity, None)
        if not bound:
            del self._by_connection[connection]

    def _lose_connection(self, now_ms: int, broker: LiveBroker) -> None:
        broker.connection, broker.later_connection = broker.later_connection, None
        broker.unsaid = broker.connection is not None
        broker.stood_in = False
        if broker.connection is not None or now_ms >= broker.dead_at_ms:
            return
        broker.closed = True
        broker.dead_at_ms = min(broker.dead_at_ms, now_ms + self.close_grace_ms)
        self._push(broker)

    def _wake(self, now_ms: int, broker: LiveBroker) -> None:
        broker.revived = now_ms >= broker.dead_at_ms
        broker.heard_ms = now_ms
        broker.closed = False
        broker.dead_at_ms = now_ms + broker.timeout_ms + 1
        if broker.expired:
            broker.expired = False
            self._room.woke(broker.identity)
            self._push(broker)
        elif broker.dead_at_ms < broker.pushed_ms:
            # Its timeout was shortened: waiting for the old deadline would be too late.
            self._push(broker)

    def _push(self, broker: LiveBroker) -> None:
        heapq.heappush(self._heap, self._new_slot(broker))
        if len(self._heap) > 2 * len(self._brokers) + 64:
            self._heap = [item for item in self._heap if item[1] == item[2].slot]
            heapq.heapify(self._heap)

    def _new_slot(self, broker: LiveBroker) -> tuple[int, int, LiveBroker]:
        self._slots += 1
        broker.slot = self._slots
        broker.pushed_ms = broker.dead_at_ms
        return broker.dead_at_ms, broker.slot, broker

    def _settle_top(self) -> bool:
        """Make the heap's top exact: deadlines only moved later are corrected lazily here."""
        while self._heap:
            deadline_ms, slot, broker = self._heap[0]
            if slot != broker.slot:
                heapq.heappop(self._heap)
            elif deadline_ms != broker.dead_at_ms:
                heapq.heapreplace(self._heap, self._new_slot(broker))
            else:
                return True
        return False


def _compare(broker: LiveBroker, max_offset: int) -> None:
    """Whether it has what it had confirmed, as far as this node heard: before a heartbeat is taken.

    A log loses its end with the power, and everything where somebody empties it. What was confirmed is
    never cut otherwise but by an unclean election, after which a master takes it in.
    """
    confirmed = max(broker.lacks_to, min(broker.confirm_offset, broker.max_offset))
    if max_offset == 0:
        confirmed = max(confirmed, SOMETHING)
    broker.lacks_to = confirmed if max_offset < confirmed else -1
