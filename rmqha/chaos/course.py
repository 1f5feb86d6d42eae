"""How a cell goes: how many faults, for how long, and how much is sent meanwhile."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

TOPICS = 3
SEND_MESSAGES_MAX = 1_000
"""Of one send: a quarter of a MiB."""
ACKS_PER_S_MIN = 50
"""Of all topics together; a cluster that takes less is as good as none."""


class Course(Struct, frozen=True):
    """How a cell goes.

    Attributes:
        rounds: faults, one after another.
        fault_ms: how long each holds.
        pause_ms: between two, once the set is whole.
        services: use delays, timers, transactions, pops and locks as well.
        history: a file for what the clients did (``verify/client_history.py``); None for none.
        topics: of a producer each, with one send in flight.
        messages: acknowledged when the last fault comes; each round waits for its share. 0 for what
            comes meanwhile.
        batch: so many go in one request.
    """

    rounds: int = 5
    fault_ms: int = 10_000
    pause_ms: int = 2_000
    services: bool = False
    history: Path | None = None
    topics: int = TOPICS
    messages: int = 0
    batch: int = 1

    def acknowledged_before(self, number: int) -> int:
        """How many messages are acknowledged before the fault of a round, of which the first is 0."""
        return self.messages * (number + 1) // self.rounds

    @property
    def words(self) -> list[str]:
        """What was asked for; the same of two cells that were to go alike."""
        words = [f"{self.rounds} rounds of {self.fault_ms} ms, {self.pause_ms} ms between two"]
        words += ["services"] * self.services
        words += [f"{self.topics} topics"] * (self.topics != TOPICS)
        words += [f"{self.batch} messages a send"] * (self.batch > 1)
        return words + [f"{self.messages} messages"] * (self.messages > 0)
