"""One lane a broker set: at most one piece of work in flight, the others wait in order.

Deciding on applied state and appending are then safe without locks, and sets never wait for
each other. What does not live here: any decision.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from rmqha.controller.metadata.decision import Decision
from rmqha.controller.metadata.messages import RequestReceived


@dataclass(slots=True, eq=False)
class Work:
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


@dataclass(slots=True)
class _Lane:
    in_flight: Work
    waiting: deque[Work] = field(default_factory=deque)


class Lanes:
    """All lanes with something in flight; idle ones take no room."""

    def __init__(self) -> None:
        """Start with every lane idle."""
        self._lanes: dict[str, _Lane] = {}

    def busy(self, name: str) -> bool:
        """Whether something of this set is in flight."""
        return name in self._lanes

    def start(self, work: Work) -> None:
        """Put work in flight; what waits behind it stays."""
        lane = self._lanes.get(work.broker_name)
        if lane is None:
            self._lanes[work.broker_name] = _Lane(work)
        else:
            lane.in_flight = work

    def wait(self, work: Work, waiting_max: int) -> bool:
        """Queue work of a busy lane; False when the queue is full."""
        waiting = self._lanes[work.broker_name].waiting
        if len(waiting) >= waiting_max:
            return False
        waiting.append(work)
        return True

    def next(self, name: str) -> Work | None:
        """End what is in flight and take the next; the lane goes idle when nothing waits."""
        lane = self._lanes.get(name)
        if lane is None:
            return None
        if lane.waiting:
            return lane.waiting.popleft()
        del self._lanes[name]
        return None

    def electing(self, name: str) -> bool:
        """Whether an election by the controller is already in flight or waiting."""
        lane = self._lanes.get(name)
        return lane is not None and any(
            work.request is None for work in (lane.in_flight, *lane.waiting)
        )

    def abandon(self, connection: int) -> list[Work]:
        """Take out what waits for a closed connection, and mark what is in flight for it."""
        dropped: list[Work] = []
        for lane in self._lanes.values():
            if _from(lane.in_flight, connection):
                lane.in_flight.abandoned = True
            mine = [work for work in lane.waiting if _from(work, connection)]
            if mine:
                dropped += mine
                lane.waiting = deque(work for work in lane.waiting if work not in mine)
        return dropped

    def clear(self) -> list[Work]:
        """Empty every lane; all work, lane by lane, in order."""
        lanes, self._lanes = self._lanes, {}
        return [work for lane in lanes.values() for work in (lane.in_flight, *lane.waiting)]

    def size(self) -> int:
        """Pieces of work in flight and waiting."""
        return sum(1 + len(lane.waiting) for lane in self._lanes.values())


def _from(work: Work, connection: int) -> bool:
    return work.request is not None and work.request.connection == connection
