"""What became of every message of a workload: it knows at any time what is lost."""

from __future__ import annotations

PAYLOAD = b"x" * 200
NUMBERS_AHEAD_MAX = 100_000
"""Numbers that were read before one below them; more mean that reading has gone wrong."""


def body_of(number: int) -> bytes:
    """What the message of a number holds."""
    return b"%d:" % number + PAYLOAD


def number_of(body: bytes) -> int | None:
    """Which message this is; None where that cannot be read."""
    digits = body.partition(b":")[0]
    return int(digits) if digits.isdigit() else None


class Ledger:
    """What was sent, acknowledged and read. Numbers begin with 0 and have no gaps.

    Attributes:
        acknowledged: messages that a master took.
        consumed: different messages that were read.
        duplicates: messages that were read again: sent twice, for the first answer never came.
        refused: sends that were not acknowledged.
        out_of_order: messages that were read, for the first time, after a later one of their queue.
        damaged: places that gave out what no message of the workload is; if one that was acknowledged
            should be there, it is lost as well.
        lost: numbers of messages that are acknowledged and not where they should be.
    """

    def __init__(self) -> None:
        self.acknowledged = self.consumed = self.duplicates = self.refused = 0
        self.out_of_order = self.damaged = 0
        self.lost: list[int] = []
        self._seen_below = 0
        self._seen: set[int] = set()
        self._pending: list[dict[int, int]] = []
        self._positions: list[int] = []
        self._newest: list[int] = []

    def __repr__(self) -> str:
        return (
            f"<{self.acknowledged} acknowledged, {self.consumed} read, {self.duplicates} twice,"
            f" {self.refused} refused, {self.out_of_order} out of order, {self.damaged} damaged,"
            f" {len(self.lost)} lost>"
        )

    @property
    def ends(self) -> tuple[int, ...]:
        """How far each queue was read."""
        return tuple(self._positions)

    @property
    def pending(self) -> int:
        """Acknowledged and not read yet."""
        return sum(map(len, self._pending))

    def position(self, queue: int) -> int:
        """How far a queue was read; one that is new begins at 0."""
        while len(self._positions) <= queue:
            self._pending.append({})
            self._newest.append(-1)
            self._positions.append(0)
        return self._positions[queue]

    def acked(self, number: int, queue: int, offset: int) -> None:
        """A message is safe, the master says."""
        self.acknowledged += 1
        if self._was_seen(number):
            return
        if offset < self.position(queue):
            self.lost.append(number)
        else:
            self._pending[queue][offset] = number

    def read(self, number: int, queue: int, offset: int) -> None:
        """A message was read.

        Raises:
            OverflowError: too many numbers are missing below it.
        """
        self.position(queue)
        if self._was_seen(number):
            self.duplicates += 1
        else:
            self.consumed += 1
            self._see(number)
            # The next message of a queue is sent when the one before it is acknowledged.
            self.out_of_order += number < self._newest[queue]
            self._newest[queue] = max(self._newest[queue], number)
        if self._pending[queue].get(offset) == number:
            del self._pending[queue][offset]

    def passed(self, queue: int, position: int) -> None:
        """The consumer has read a queue up to here: what was to be there and was not is lost."""
        self._positions[queue] = max(self.position(queue), position)
        pending = self._pending[queue]
        for offset in [one for one in pending if one < position]:
            number = pending.pop(offset)
            if not self._was_seen(number):
                self.lost.append(number)

    def give_up(self) -> None:
        """What is still pending will not come."""
        for pending in self._pending:
            self.lost += [number for number in pending.values() if not self._was_seen(number)]
            pending.clear()

    def _was_seen(self, number: int) -> bool:
        return number < self._seen_below or number in self._seen

    def _see(self, number: int) -> None:
        if len(self._seen) >= NUMBERS_AHEAD_MAX:
            raise OverflowError(f"message {self._seen_below} is missing, {number} is here")
        self._seen.add(number)
        while self._seen_below in self._seen:
            self._seen.discard(self._seen_below)
            self._seen_below += 1
