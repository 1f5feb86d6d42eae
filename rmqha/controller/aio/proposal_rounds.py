"""Proposals go out in groups: what comes while a group is under way is gathered for the next one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rmqha.runtime.ports import Clock, TimerHandle

ROUNDS_MAX = 2
"""Groups of proposals under way at a time. A group costs its nodes as much as twenty entries, so
the next one is gathered while one is under way, and leaves before that has committed only when it
takes long."""

OVERLAP_AFTER_MS = 3
"""So long a group is waited for: longer than a quick disk and two hops take."""

PROPOSALS_HELD_MAX = 1024
"""So many are never held back, whatever is under way; the core then limits what it takes."""


class ProposalRounds:
    """Gathers the proposals of one node and gives them to its core, group by group.

    Args:
        applied_index: how far this node's state is: a group that ends there has committed.
        send: gives a group to the core; returns the log's last index after it, or None when this
            node does not lead and so has nothing under way.

    Attributes:
        is_open: whether there is a core that takes proposals.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        applied_index: Callable[[], int],
        send: Callable[[tuple[bytes, ...]], int | None],
    ) -> None:
        self._clock = clock
        self._applied_index = applied_index
        self._send = send
        self.is_open = False
        self._gathered: list[bytes] = []
        self._flush_scheduled = False
        self._under_way: deque[tuple[int, int]] = deque()  # last index, and when it left
        self._overlap_timer: TimerHandle | None = None

    def propose(self, record: bytes) -> None:
        """Append a record to the log; all of one turn of the loop go out together."""
        self._gathered.append(record)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._clock.call_later(0, self.flush)

    def flush(self) -> None:
        """Send what is gathered, now or when a group that is under way has committed."""
        self._flush_scheduled = False
        if not self._gathered or not self.is_open:
            return  # as nearly always: every chunk of requests ends here
        applied_index = self._applied_index()
        while self._under_way and self._under_way[0][0] <= applied_index:
            self._under_way.popleft()
        now_ms = self._clock.now_ms()
        if self._under_way and len(self._gathered) < PROPOSALS_HELD_MAX:
            wait_ms = self._under_way[-1][1] + OVERLAP_AFTER_MS - now_ms
            if wait_ms > 0 and self._overlap_timer is None:
                self._overlap_timer = self._clock.call_later(wait_ms, self._overlap)
            if wait_ms > 0 or len(self._under_way) >= ROUNDS_MAX:
                return
        records, self._gathered = tuple(self._gathered), []
        last_index = self._send(records)
        if last_index is not None:
            self._under_way.append((last_index, now_ms))

    def settled(self) -> None:
        """The core has done all that it was given: a group may have committed."""
        if self._gathered and not self._flush_scheduled:
            self.flush()

    def role_changed(self) -> None:
        """Whatever was under way is another leader's, or another term's."""
        self._under_way.clear()

    def close(self) -> None:
        """Send nothing any more by itself."""
        if self._overlap_timer is not None:
            self._overlap_timer.cancel()

    def _overlap(self) -> None:
        """The group under way takes long: the next need not wait for it."""
        self._overlap_timer = None
        self.flush()
