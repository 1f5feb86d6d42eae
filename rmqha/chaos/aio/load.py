"""The workload of a cell, which knows of each message how often it was sent and how often it was read."""

from __future__ import annotations

from collections.abc import Sequence

from rmqha.chaos.copies import Copies
from rmqha.testing.client import Acked, ClusterClient
from rmqha.testing.ledger import Ledger
from rmqha.testing.workload import Workload

TOLD = 3
"""Numbers of messages that have too many copies."""


class _CopyLedger(Ledger):
    """A ledger that knows which messages were read again."""

    def __init__(self, copies: Copies) -> None:
        super().__init__()
        self._copies = copies

    def read(self, number: int, queue: int, offset: int) -> None:
        """See ``Ledger.read``."""
        before = self.duplicates
        super().read(number, queue, offset)
        if self.duplicates > before:
            self._copies.came_again(number)


class Load(Workload):
    """See ``Workload``: its producer is the only one of the topic, so each attempt is known."""

    def __init__(
        self, client: ClusterClient, topic: str, pause_ms: float, read_ms: float, batch: int = 1
    ) -> None:
        super().__init__(client, topic, pause_ms, read_ms, batch)
        self._copies = Copies()
        self.ledger = _CopyLedger(self._copies)

    async def _try(self, number: int, bodies: Sequence[bytes], attempt: int) -> list[Acked]:
        acked = await super()._try(number, bodies, attempt)
        if not acked:
            self._copies.unanswered(range(number, number + len(bodies)))
        return acked

    def broken(self) -> list[str]:
        """Rules that what was read did not keep, in words."""
        found = []
        if self.ledger.out_of_order:
            found.append(f"{self.topic}: {self.ledger.out_of_order} read out of order")
        if numbers := self._copies.unexplained():
            some = ", ".join(map(str, numbers[:TOLD]))
            found.append(
                f"{self.topic}: {len(numbers)} messages are stored more often than they were sent"
                f" (of the numbers {some}...)"
            )
        return found
