"""How often a message is in a log: never more often than somebody has sent it.

A producer without an answer cannot know whether its message was stored, so each attempt may have left
one copy. A copy more has been made by the broker itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field

from rmqha.base.invariants import invariant


class Attempts(Struct):
    """What was sent, by topic and body.

    Attributes:
        repeated: topics into which brokers write by themselves, and after a failover once more.
        made: how often each message was sent, answered or not.
    """

    repeated: set[str] = field(default_factory=set)
    made: Counter[tuple[str, bytes]] = field(default_factory=Counter)

    def sent(self, topic: str, body: bytes) -> None:
        """A request leaves."""
        if topic not in self.repeated:
            self.made[topic, body] += 1

    def check(self, stored: Iterable[tuple[str, bytes]]) -> int:
        """Look at all that a log holds, topic and body of each record.

        Returns:
            How many of these messages are known here.

        Raises:
            InvariantBroken: there are more copies than attempts.
        """
        copies = Counter(stored)
        known = [one for one in copies if one in self.made]
        for topic, body in known:
            count, made = copies[topic, body], self.made[topic, body]
            invariant(
                count <= made, "a message is stored more often than it was sent",
                topic=topic, body=body[:40], copies=count, attempts=made,
            )  # fmt: skip
        return len(known)
