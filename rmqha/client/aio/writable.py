"""Which queues of a topic take messages: kept for a while, and asked for again.

A topic that is drained (``wipeWritePerm``, or its permission is taken away) goes on taking messages
of whoever has not heard of it, and nobody tells a client. So it asks now and then, as Java's do.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqha.client.aio.masters import Masters
from rmqha.client.exchange import Refused, Unreachable
from rmqha.client.routes import QueueKey, TopicRoute
from rmqha.remoting.headers import INT32_MAX
from rmqha.remoting.topic_names import AUTO_CREATE_TOPIC, PERM_WRITE
from rmqha.runtime.ports import Clock

ROUTE_AGE_MS = 30_000
"""Java's ``pollNameServerInterval``."""
NEW_TOPIC_QUEUES = 4
"""Of a topic that a broker makes for its first message."""


class _Known(NamedTuple):
    queues: list[QueueKey]
    asked_ms: float


class WritableQueues:
    """The writable queues of topics.

    Args:
        masters: asks the name servers.
    """

    def __init__(self, masters: Masters, clock: Clock) -> None:
        self._masters = masters
        self._clock = clock
        self._known: dict[str, _Known] = {}

    def forget(self) -> None:
        """Ask for all of them again."""
        self._known.clear()

    async def of(self, topic: str) -> list[QueueKey]:
        """Those of a topic, neighbours of different broker sets; a topic that nobody has yet gets
        those of the template that brokers make topics of.

        Raises:
            Refused, Unreachable: no name server tells, and nothing is known.
        """
        now_ms, known = self._clock.now_ms(), self._known.get(topic)
        if known is None:
            queues = await self._found(topic)
        elif now_ms - known.asked_ms < ROUTE_AGE_MS:
            return known.queues
        else:
            # Those who send meanwhile go on with what is known.
            self._known[topic] = known._replace(asked_ms=now_ms)
            queues = await self._found_anew(topic, known.queues)
        self._known[topic] = _Known(queues, now_ms)
        return queues

    async def _found(self, topic: str) -> list[QueueKey]:
        route = await self._masters.find_route(topic)
        if route is not None:
            return self._allowed(topic, route, INT32_MAX)
        route = await self._masters.find_route(AUTO_CREATE_TOPIC)
        return [] if route is None else self._allowed(topic, route, NEW_TOPIC_QUEUES)

    async def _found_anew(self, topic: str, known: list[QueueKey]) -> list[QueueKey]:
        """A name server that is away, or just started and empty, stops nobody who sends."""
        try:
            route = await self._masters.find_route(topic, is_patient=False)
        except (Refused, Unreachable):
            return known
        return known if route is None else self._allowed(topic, route, INT32_MAX)

    def _allowed(self, topic: str, route: TopicRoute, most: int) -> list[QueueKey]:
        if route.is_mapped:
            return self._masters.led_queues(topic, PERM_WRITE)
        found = [
            QueueKey(topic, one.broker_name, queue_id)
            for one in route.queues
            if one.perm & PERM_WRITE
            for queue_id in range(min(one.write_queue_nums, most))
        ]
        return sorted(found, key=lambda queue: (queue.queue_id, queue.broker_name))
