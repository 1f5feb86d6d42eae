"""Puts that wait for slaves: completed in order of their offsets, each with its own deadline.

All of them wait for one number, the offset up to which enough replicas hold the log, so an
acknowledgement costs O(log n) for each put that it completes, and a put that is stuck delays
nobody (Java examines them in turn, in one thread).

Source: HAService and GroupTransferService of RocketMQ 5.1.1 to 5.5; RIP-44, "A solution without
losing messages".
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from rmqha.ha.settings import PUT_WAITS_MAX, HaSettings

NOTHING = -1
"""No offset is held by enough replicas."""


def acked_level(
    *,
    settings: HaSettings,
    own_id: int,
    max_offset: int,
    possible: Iterable[AbstractSet[int]],
    acks: Mapping[int, int],
) -> int:
    """Up to which offset enough replicas hold the log.

    ``allAckInSyncStateSet``: every member of every set that the controller may hold. Otherwise
    ``inSyncReplicas`` members, this master included, of each such set. Java counts any
    connection, learners and strangers included, and one of them cannot be elected; so what it
    has acknowledged could be lost with this master alone.

    Never fewer than ``minInSyncReplicas``, also when the set has shrunk since the put was let in:
    then the put times out. Java looks at it before the put only, and acknowledges what one holds.

    Args:
        settings: which rule applies.
        own_id: this master.
        max_offset: the end of its log.
        possible: the sets.
        acks: by slave id, one a slave.
    """
    level = max_offset
    for members in possible:
        others = sorted((acks.get(one, NOTHING) for one in members if one != own_id), reverse=True)
        needed = (
            len(others) if settings.all_ack_in_sync_state_set else settings.in_sync_replicas - 1
        )
        needed = max(needed, settings.min_in_sync_replicas - 1)
        if needed <= 0:
            continue
        if needed > len(others):
            return NOTHING
        level = min(level, others[needed - 1])
    return level


class PutWaits:
    """The waiting puts of a master."""

    def __init__(self) -> None:
        self._by_offset: list[tuple[int, int]] = []
        self._by_deadline: list[tuple[int, int]] = []
        self._waiting: set[int] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """No other put may be written before one of these has ended."""
        return len(self._waiting) >= PUT_WAITS_MAX

    @property
    def first_offset(self) -> int | None:
        """Where the record ends that is the first to be completed; None when no put waits."""
        return self._by_offset[0][0] if self._by_offset else None

    def add(self, token: int, end_offset: int, deadline_ms: int) -> None:
        """Wait until the level reaches ``end_offset``, or the deadline."""
        self._waiting.add(token)
        heapq.heappush(self._by_offset, (end_offset, token))
        heapq.heappush(self._by_deadline, (deadline_ms, token))

    def reached(self, level: int) -> list[int]:
        """Take the puts that end at or before ``level``, in order of their offsets."""
        done: list[int] = []
        while self._by_offset and self._by_offset[0][0] <= level:
            token = heapq.heappop(self._by_offset)[1]
            if token in self._waiting:
                self._waiting.remove(token)
                done.append(token)
        self._prune(self._by_deadline)
        return done

    def expired(self, now_ms: int) -> list[int]:
        """Take the puts whose deadline has come."""
        late: list[int] = []
        while self._by_deadline and self._by_deadline[0][0] <= now_ms:
            token = heapq.heappop(self._by_deadline)[1]
            if token in self._waiting:
                self._waiting.remove(token)
                late.append(token)
        self._prune(self._by_offset)
        self._prune(self._by_deadline)
        return late

    def take_all(self) -> list[int]:
        """Take every put, in order of their tokens: this replica is no master any more."""
        left = sorted(self._waiting)
        self._by_offset, self._by_deadline, self._waiting = [], [], set()
        return left

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next put expires."""
        return self._by_deadline[0][0] if self._by_deadline else None

    def _prune(self, heap: list[tuple[int, int]]) -> None:
        """Drop entries of puts that have ended; each is dropped once."""
        while heap and heap[0][1] not in self._waiting:
            heapq.heappop(heap)
