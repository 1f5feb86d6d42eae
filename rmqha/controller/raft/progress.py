"""What a leader knows of one follower's log, and how much it may send ahead of the answers."""

from __future__ import annotations

from collections import deque
from enum import Enum

from msgspec import Struct, field

from rmqha.controller.raft.events import SnapshotMeta


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
        held_index: what a recovering follower has acknowledged.
        readmit_index: a recovering follower counts again when this entry is committed without
            it, and held by it.
        acked_round: newest round it has answered.
        waiting: probe or chunk sent and not answered; a heartbeat tick tries again.
        in_flight: last index of each request sent ahead, oldest first.
        snapshot, snapshot_offset: what is being installed there and how far it is.
    """

    next_index: int
    match_index: int = 0
    recovering: str = ""
    held_index: int = 0
    readmit_index: int = 0
    acked_round: int = 0
    mode: Mode = Mode.PROBE
    waiting: bool = False
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

    def probe_from(self, index: int) -> None:
        """Go back to asking where the logs agree."""
        self.mode = Mode.PROBE
        self.waiting = False
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
        self.probe_from(last_index + 1)

    def replicate(self) -> None:
        """The logs agree: send ahead."""
        self.mode = Mode.REPLICATE
        self.waiting = False
        self.snapshot = None

    def start_snapshot(self, meta: SnapshotMeta) -> None:
        """Install ``meta`` there, from its first byte."""
        self.mode = Mode.SNAPSHOT
        self.waiting = False
        self.in_flight.clear()
        self.snapshot = meta
        self.snapshot_offset = 0
