"""Reads a topic again from its beginning, at one broker, when all is over.

What a consumer has read while things broke may be damaged or gone since then, and a message that was
given out damaged is worse than one that is missed.
"""

from __future__ import annotations

import struct

from msgspec import Struct, field

from rmqha.base.errors import RmqhaError
from rmqha.runtime.ports import Clock
from rmqha.testing.client import ClusterClient
from rmqha.testing.workload import body_of, number_of

TRIES = 20
PAUSE_MS = 250.0
"""A broker may need a moment to mend a record before it gives it out."""
REFUSED_MAX = 32
"""After so many places nothing more of the topic is asked for: what is left counts as not found."""


class Again(Struct):
    """What was found.

    Attributes:
        whole: numbers of messages that are as they were sent.
        damaged: messages that were given out and are not as any was sent.
        refused: places that the broker did not give out, with its reason.
    """

    whole: set[int] = field(default_factory=set)
    damaged: int = 0
    refused: list[str] = field(default_factory=list)


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
        position = tries = 0
        while position < end:
            try:
                messages, following = await client.pull(address, topic, queue, position)
            except (RmqhaError, ValueError, struct.error) as error:
                messages, following, reason = [], position, str(error)
            else:
                reason = "nothing came"
            for message in messages:
                number = number_of(message.body)
                if number is None or message.body != body_of(number):
                    found.damaged += 1
                else:
                    found.whole.add(number)
            if following > position:
                position, tries = following, 0
                continue
            tries += 1
            if tries < TRIES:
                await clock.sleep(PAUSE_MS)
            else:
                found.refused.append(f"{topic} queue {queue} offset {position}: {reason}")
                if len(found.refused) >= REFUSED_MAX:
                    return found
                position, tries = position + 1, 0
    return found
