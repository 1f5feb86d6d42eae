"""Pulls that wait for a message: found by queue when one comes, by time when none does.

Source: PullRequestHoldService of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

from msgspec import Struct

from rmqha.base.ids import ConnectionId

Key = tuple[bytes, int]
AskedT = TypeVar("AskedT")


class Held(Struct, Generic[AskedT], eq=False):
    """One pull that waits.

    Attributes:
        asked: the request and whatever belongs to it.
        offset: everything before it was looked at, and nothing in it was wanted.
        until_ms: when it is answered at the latest.
    """

    number: int
    connection: ConnectionId
    key: Key
    asked: AskedT
    offset: int
    until_ms: int


class HeldPulls(Generic[AskedT]):
    """All of them.

    Args:
        held_max: at a time; one more is not held but answered.
    """

    def __init__(self, held_max: int) -> None:
        self._max = held_max
        self._all: dict[int, Held[AskedT]] = {}
        self._of_queue: dict[Key, dict[int, None]] = {}
        self._of_connection: dict[ConnectionId, dict[int, None]] = {}
        self._deadlines: list[tuple[int, int]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def is_full(self) -> bool:
        """No more can be held."""
        return len(self._all) >= self._max

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next one's time is over."""
        while self._deadlines and self._deadlines[0][1] not in self._all:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def hold(
        self, connection: ConnectionId, key: Key, asked: AskedT, offset: int, until_ms: int
    ) -> None:
        """Keep a pull until somebody takes it."""
        self._number += 1
        number = self._number
        self._all[number] = Held(number, connection, key, asked, offset, until_ms)
        self._of_queue.setdefault(key, {})[number] = None
        self._of_connection.setdefault(connection, {})[number] = None
        heapq.heappush(self._deadlines, (until_ms, number))
        if len(self._deadlines) > 2 * len(self._all) + 64:
            # Pulls that were answered leave their deadlines behind.
            self._deadlines = [(one.until_ms, one.number) for one in self._all.values()]
            heapq.heapify(self._deadlines)

    def waits_for(self, key: Key) -> bool:
        """Whether any pull waits for this queue."""
        return key in self._of_queue

    def count(self, key: Key) -> int:
        """How many wait for this queue."""
        return len(self._of_queue.get(key, ()))

    def is_held(self, held: Held[AskedT]) -> bool:
        """Whether a pull waits still."""
        return held.number in self._all

    def of_queue(self, key: Key) -> list[Held[AskedT]]:
        """The pulls that wait for a queue, oldest first."""
        return [self._all[number] for number in self._of_queue.get(key, ())]

    def all(self) -> list[Held[AskedT]]:
        """Every pull, oldest first."""
        return list(self._all.values())

    def due(self, now_ms: int) -> list[Held[AskedT]]:
        """The pulls whose time is over, earliest first; they are still held."""
        found: list[Held[AskedT]] = []
        while (deadline := self.next_deadline_ms) is not None and deadline <= now_ms:
            found.append(self._all[heapq.heappop(self._deadlines)[1]])
        return found

    def drop(self, held: Held[AskedT]) -> None:
        """A pull waits no more."""
        if self._all.pop(held.number, None) is None:
            return
        _discard(self._of_queue, held.key, held.number)
        _discard(self._of_connection, held.connection, held.number)

    def closed(self, connection: ConnectionId) -> list[Key]:
        """A connection has ended; returns the queues that its pulls waited for."""
        numbers = list(self._of_connection.get(connection, ()))
        gone = [self._all[number] for number in numbers]
        for held in gone:
            self.drop(held)
        return list(dict.fromkeys(held.key for held in gone))


KeyT = TypeVar("KeyT")


def _discard(table: dict[KeyT, dict[int, None]], key: KeyT, number: int) -> None:
    numbers = table[key]
    del numbers[number]
    if not numbers:
        del table[key]
