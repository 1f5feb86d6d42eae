"""What a leader knows of one follower's log, and how much it may send ahead of the answers."""

from __future__ import annotations

from collections import deque
from enum import Enum

from msgspec import Struct, field

from rmqha.controller.raft.events import SnapshotMeta

LONG_AGO_MS = -(1 << 40)

HEARD_HEARTBEATS = 10
"""A follower that has answered in so many heartbeats' time is there."""

REST_MAX = 20
"""Heartbeats, at most, between two tries with a follower that takes nothing."""


class Mode(Enum):
    """How a follower is fed."""

    PROBE = "probe"
    """Where its log agrees is not known: one request, then wait for the answer."""
    REPLICATE = "replicate"
    """It follows: requests are sent ahead, up to the window."""
    SNAPSHOT = "snapshot"
    """It is behind the compacted prefix: chunk by chunk."""


class Progress(Struct):
    """A follower as its leader sees it.

    Attributes:
        next_index: the first entry of the next request.
        match_index: durable there up to here; 0 while the follower does not count.
        recovering: the follower's store id while it does not count, else empty.
        furthest_index: what it has acknowledged at any time, over whichever connection.
        held_index: what a recovering follower has acknowledged.
        readmit_index: a recovering follower counts again when this entry is committed without
            it, and held by it.
        acked_round: newest round it has answered.
        answered_ms: when it last answered a newer one than before, or this node began to lead.
        waiting: probe or chunk sent and not answered; a heartbeat tick tries again.
        is_offered: the probe under way has entries.
        declined: so many probes, or snapshots, it has not taken one after the other.
        rest: so many heartbeats from now on do not try again.
        patience: so many heartbeats a chunk has for its way there and back.
        in_flight: last index of each request sent ahead, oldest first.
        snapshot, snapshot_offset: what is being installed there and how far it is.
    """

    next_index: int
    match_index: int = 0
    furthest_index: int = 0
    recovering: str = ""
    held_index: int = 0
    readmit_index: int = 0
    acked_round: int = 0
    answered_ms: int = LONG_AGO_MS
    mode: Mode = Mode.PROBE
    waiting: bool = False
    is_offered: bool = False
    declined: int = 0
    rest: int = 0
    patience: int = 0
    in_flight: deque[int] = field(default_factory=deque)
    snapshot: SnapshotMeta | None = None
    snapshot_offset: int = 0

    def sent(self, last_index: int) -> None:
        """A request that ends at ``last_index`` was sent ahead."""
        self.in_flight.append(last_index)
        self.next_index = last_index + 1

    def matched(self, index: int) -> bool:
        """The follower holds everything up to ``index``; whether that is news."""
        while self.in_flight and self.in_flight[0] <= index:
            self.in_flight.popleft()
        self.next_index = max(self.next_index, index + 1)
        if self.recovering:
            # It has forgotten votes: what it holds is noted, and counts for no commit.
            self.held_index = max(self.held_index, index)
            return False
        if index <= self.match_index:
            return False
        self.match_index = index
        return True

    def is_first_at(self, index: int) -> bool:
        """Whether none of its answers has been as far; a new connection says the old ones again."""
        if index <= self.furthest_index:
            return False
        self.furthest_index = index
        return True

    def heartbeat_due(self) -> None:
        """Try again what was not answered, unless that is expected to take longer."""
        if self.rest:
            self.rest -= 1
            return
        if self.waiting and self.mode is Mode.SNAPSHOT:
            # On a slow link each copy of a chunk would be answered, too.
            self.patience = min(2 * self.patience + 1, REST_MAX)
        self.waiting = False

    def offered(self) -> None:
        """A probe with entries was sent."""
        self.waiting = self.is_offered = True

    def takes_nothing(self, index: int) -> bool:
        """Whether a follower that agrees up to ``index`` takes none of the entries it was offered.

        It has no space, and is asked less and less often; or it has them, and they are not durable
        yet, or the answer is one to an earlier request: then the next answer says so.
        """
        if self.mode is not Mode.PROBE or index >= self.next_index:
            return False
        if self.is_offered:
            self.is_offered = False
            self._decline()
        return self.declined > 0

    def began_anew(self, offset: int) -> None:
        """It has lost what it had of the snapshot beyond ``offset``, or could not take the whole."""
        self.snapshot_offset = offset
        self.waiting = True
        self._decline()

    def _decline(self) -> None:
        self.declined += 1
        self.rest = min((1 << min(self.declined, REST_MAX) - 1) - 1, REST_MAX)

    def chunk_sent(self) -> None:
        """The chunk at ``snapshot_offset`` is on its way."""
        self.waiting = True
        self.rest = self.patience

    def chunk_taken(self, next_offset: int) -> None:
        """It has all before ``next_offset``."""
        self.snapshot_offset = next_offset
        self.waiting = False
        self.patience = max(0, self.patience - 1)

    def probe_from(self, index: int) -> None:
        """Go back to asking where the logs agree."""
        self.mode = Mode.PROBE
        self.waiting = self.is_offered = False
        self.in_flight.clear()
        self.snapshot = None
        # Never below what it has acknowledged: that is durable there (Raft 5.3).
        self.next_index = max(index, self.match_index + 1)

    def connection_lost(self, last_index: int) -> None:
        """Believe nothing any more: who comes back may have lost its disk.

        A smaller match only delays commits, until the first answer says what is there.
        """
        self.match_index = 0
        self.held_index = 0
        self.declined = self.rest = self.patience = 0
        self.probe_from(last_index + 1)

    def replicate(self) -> None:
        """The logs agree: send ahead."""
        self.mode = Mode.REPLICATE
        self.waiting = self.is_offered = False
        self.declined = self.rest = 0
        self.snapshot = None

    def start_snapshot(self, meta: SnapshotMeta) -> None:
        """Install ``meta`` there, from its first byte."""
        self.mode = Mode.SNAPSHOT
        self.waiting = False
        self.in_flight.clear()
        self.snapshot = meta
        self.snapshot_offset = 0
