"""One lane a broker set: at most one piece of work in flight, the others wait in order.

Deciding on applied state and appending are then safe without locks, and sets never wait for
each other. What does not live here: any decision.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from rmqha.controller.metadata.decision import Decision
from rmqha.controller.metadata.messages import RequestReceived


class Work(Struct, eq=False):
    """A request, or an election that the controller wants itself (``request`` None).

    Attributes:
        reason: of a controller's election, for the log.
        arrived_ms: when it came in.
        attempts: proposals made so far.
        proposed_ms: when the last one was made.
        decision: what it waits to answer.
        abandoned: its connection closed; nobody waits for the answer.
    """

    broker_name: str
    request: RequestReceived | None
    reason: str
    arrived_ms: int
    attempts: int = 0
    proposed_ms: int = 0
    decision: Decision | None = None
    abandoned: bool = False


class Lanes:
    """All lanes with something in flight; idle ones take no room."""

    def __init__(self) -> None:
        """Start with every lane idle."""
        self._in_flight: dict[str, Work] = {}
        self._waiting: dict[str, deque[Work]] = {}  # of lanes in which something waits
        # Of each connection that had any; when it closes, its entry goes.
        self._of_connection: dict[int, dict[Work, None]] = {}

    def busy(self, name: str) -> bool:
        """Whether something of this set is in flight."""
        return name in self._in_flight

    def start(self, work: Work) -> None:
        """Put work in flight; what waits behind it stays."""
        self._in_flight[work.broker_name] = work
        self._note(work)

    def wait(self, work: Work, waiting_max: int) -> bool:
        """Queue work of a busy lane; False when the queue is full."""
        waiting = self._waiting.get(work.broker_name)
        if (0 if waiting is None else len(waiting)) >= waiting_max:
            return False
        if waiting is None:
            waiting = self._waiting[work.broker_name] = deque()
        waiting.append(work)
        self._note(work)
        return True

    def next(self, name: str) -> Work | None:
        """End what is in flight and take the next; the lane goes idle when nothing waits."""
        ended = self._in_flight.get(name)
        if ended is not None:
            self._forget(ended)
        waiting = self._waiting.get(name)
        if waiting is None:
            self._in_flight.pop(name, None)
            return None
        following = waiting.popleft()
        self._forget(following)
        if not waiting:
            del self._waiting[name]
        return following

    def electing(self, name: str) -> bool:
        """Whether an election by the controller is already in flight or waiting."""
        in_flight = self._in_flight.get(name)
        return in_flight is not None and any(
            work.request is None for work in (in_flight, *self._waiting.get(name, ()))
        )

    def abandon(self, connection: int) -> list[Work]:
        """Take out what waits for a closed connection, and mark what is in flight for it."""
        dropped: dict[str, dict[Work, None]] = {}
        for work in self._of_connection.pop(connection, ()):
            if self._in_flight.get(work.broker_name) is work:
                work.abandoned = True
            else:
                dropped.setdefault(work.broker_name, {})[work] = None
        for name, mine in dropped.items():
            self._keep(name, deque(work for work in self._waiting[name] if work not in mine))
        return [work for mine in dropped.values() for work in mine]

    def _note(self, work: Work) -> None:
        if work.request is not None:
            self._of_connection.setdefault(work.request.connection, {})[work] = None

    def _forget(self, work: Work) -> None:
        if work.request is not None:
            works = self._of_connection.get(work.request.connection)
            if works is not None:
                works.pop(work, None)

    def _keep(self, name: str, waiting: deque[Work]) -> None:
        if waiting:
            self._waiting[name] = waiting
        else:
            del self._waiting[name]

    def clear(self) -> list[Work]:
        """Empty every lane; all work, lane by lane, in order."""
        works: list[Work] = []
        for name, in_flight in self._in_flight.items():
            works += (in_flight, *self._waiting.get(name, ()))
        self._in_flight.clear()
        self._waiting.clear()
        self._of_connection.clear()
        return works

    def size(self) -> int:
        """Pieces of work in flight and waiting."""
        return len(self._in_flight) + sum(map(len, self._waiting.values()))
