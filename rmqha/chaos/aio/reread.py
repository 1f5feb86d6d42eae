"""Reads a topic again from its beginning, at one broker, when all is over.

What a consumer has read while things broke may be damaged or gone since then, and a message that was
given out damaged is worse than one that is missed.
"""

from __future__ import annotations

import struct

from msgspec import Struct, field

from rmqha.base.errors import RmqhaError
from rmqha.runtime.ports import Clock
from rmqha.testing.client import PULL_MESSAGES_MAX, ClusterClient
from rmqha.testing.ledger import body_of, number_of
from rmqha.testing.real.wire import Stored

TRIES = 20
PAUSE_MS = 250.0
"""A broker may need a moment to mend a record before it gives it out."""
REFUSED_MAX = 32
"""After so many places nothing more of the topic is asked for: what is left counts as not found."""


class Again(Struct):
    """What was found.

    Attributes:
        whole: numbers of messages that are as they were sent.
        damaged: messages that were given out and are not as any was sent, or no messages at all.
        refused: places that the broker did not give out, with its reason.
        deleted: places in front of those at which queues begin now: nobody was to delete anything.
    """

    whole: set[int] = field(default_factory=set)
    damaged: int = 0
    refused: list[str] = field(default_factory=list)
    deleted: int = 0


async def read_again(
    client: ClusterClient, clock: Clock, address: str, topic: str, ends: tuple[int, ...]
) -> Again:
    """Read every queue up to where it ended; what a broker does not give out is passed over.

    Args:
        address: of the broker.
        topic: of a workload.
        ends: of its queues.
    """
    found = Again()
    for queue, end in enumerate(ends):
        first = await _first(client, address, topic, queue) if end else 0
        found.deleted += first
        reading = _Reading(client, address, topic, queue, found, first)
        while reading.position < end:
            if not await reading.step():
                await clock.sleep(PAUSE_MS)
            if len(found.refused) >= REFUSED_MAX:
                return found
    return found


async def _first(client: ClusterClient, address: str, topic: str, queue: int) -> int:
    """Where a queue begins; at 0 when nobody says, who then refuses what is asked for."""
    try:
        return await client.first_offset(address, topic, queue)
    except RmqhaError:
        return 0


class _Reading:
    """One queue, from its beginning on.

    What comes is a run of records, and a reader who meets one that cannot be read does not know where
    the next one begins. So a run that is not whole is asked for again, message by message.
    """

    def __init__(
        self, client: ClusterClient, address: str, topic: str, queue: int, found: Again, first: int
    ) -> None:
        self.position = first
        self._client, self._address, self._topic, self._queue = client, address, topic, queue
        self._found = found
        self._count, self._tries = PULL_MESSAGES_MAX, 0

    async def step(self) -> bool:
        """Ask once; False when nothing came and it is worth to wait."""
        at, count = self.position, self._count
        try:
            messages, following = await self._client.pull(
                self._address, self._topic, self._queue, at, count
            )
        except RmqhaError as error:
            return self._refused(str(error))
        except (ValueError, struct.error):
            messages, following = [], at + count
        if following <= at:
            return self._refused("nothing came")
        if len(messages) < following - at and count > 1:
            self._count = 1
            return True
        self._take(messages)
        if not messages and following == at + 1:
            self._found.damaged += 1
        self._pass(following)
        return True

    def _take(self, messages: list[Stored]) -> None:
        for message in messages:
            number = number_of(message.body)
            if number is None or message.body != body_of(number):
                self._found.damaged += 1
            else:
                self._found.whole.add(number)

    def _refused(self, reason: str) -> bool:
        self._tries += 1
        if self._tries < TRIES:
            return False
        where = f"{self._topic} queue {self._queue} offset {self.position}"
        self._found.refused.append(f"{where}: {reason}")
        self._pass(self.position + 1)
        return True

    def _pass(self, position: int) -> None:
        # Those in front of a message that cannot be read come one by one; so does it, and then many.
        if self._count == 1 and position % PULL_MESSAGES_MAX == 0:
            self._count = PULL_MESSAGES_MAX
        self.position, self._tries = position, 0
