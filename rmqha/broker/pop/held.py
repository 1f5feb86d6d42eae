"""Pops that wait for a message: each of any of several queues.

What they wait for by time and by connection is as for pulls; only the queues are many.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from rmqha.base.ids import ConnectionId
from rmqha.broker.pull.held import Held, HeldPulls, Key

AskedT = TypeVar("AskedT")


class HeldPops(Generic[AskedT]):
    """All of them, by what they ask for: (topic@group, queue).

    Args:
        held_max: at a time.
        same_max: of one group and topic.
    """

    def __init__(self, held_max: int, same_max: int) -> None:
        self._held: HeldPulls[AskedT] = HeldPulls(held_max)
        self._same_max = same_max
        self._queues_of: dict[Key, dict[Key, None]] = {}
        self._askers_of: dict[Key, dict[Key, None]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def count(self, key: Key) -> int:
        """How many wait with the same question."""
        return self._held.count(key)

    def is_full(self, key: Key) -> bool:
        """No more can be held."""
        return self._held.is_full or self.count(key) >= self._same_max

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next one's time is over."""
        return self._held.next_deadline_ms

    def hold(
        self,
        connection: ConnectionId,
        key: Key,
        asked: AskedT,
        until_ms: int,
        queues: Iterable[Key],
    ) -> list[Key]:
        """Keep a pop; returns the queues that nobody waited for before."""
        self._held.hold(connection, key, asked, 0, until_ms)
        known = self._queues_of.setdefault(key, {})
        found = []
        for queue in queues:
            if queue in known:
                continue  # mostly: others have asked the same
            known[queue] = None
            if queue not in self._askers_of:
                found.append(queue)
            self._askers_of.setdefault(queue, {})[key] = None
        return found

    def waiting_for(self, queues: Iterable[Key]) -> list[Held[AskedT]]:
        """The pops that any of these queues may serve, oldest of each question first."""
        keys = dict.fromkeys(key for queue in queues for key in self._askers_of.get(queue, ()))
        return [held for key in keys for held in self._held.of_queue(key)]

    def is_held(self, held: Held[AskedT]) -> bool:
        """Whether a pop waits still."""
        return self._held.is_held(held)

    def all(self) -> list[Held[AskedT]]:
        """Every pop, oldest first."""
        return self._held.all()

    def due(self, now_ms: int) -> list[Held[AskedT]]:
        """The pops whose time is over; they are still held."""
        return self._held.due(now_ms)

    def drop(self, held: Held[AskedT]) -> list[Key]:
        """A pop waits no more; returns the queues that nobody waits for any more."""
        self._held.drop(held)
        return self._unasked([held.key])

    def closed(self, connection: ConnectionId) -> list[Key]:
        """A connection has ended; returns as :meth:`drop`."""
        return self._unasked(self._held.closed(connection))

    def _unasked(self, keys: Iterable[Key]) -> list[Key]:
        found = []
        for key in keys:
            if self._held.waits_for(key):
                continue
            for queue in self._queues_of.pop(key, ()):
                askers = self._askers_of[queue]
                del askers[key]
                if not askers:
                    del self._askers_of[queue]
                    found.append(queue)
        return found
