"""What was popped is with who popped it, until its invisible time is over.

A failover may repeat: the check point of an earlier reign comes beside that of this one. So only what
was sent in a reign is looked at, and only in that one. A time that somebody wanted to change, and was
not told, is not known any more.
"""

from __future__ import annotations

from msgspec import Struct, field

from rmqha.base.invariants import invariant


class PopTimes(Struct):
    """Of one reign of one broker, and one group.

    Attributes:
        reign: whose it is.
        until_ms: by the broker's wall clock: before which moment nobody may get a message; 0 for one
            that nobody has had.
    """

    reign: object = None
    until_ms: dict[bytes, int] = field(default_factory=dict)
    _changing: set[bytes] = field(default_factory=set)

    def _see(self, reign: object) -> None:
        if reign != self.reign:
            self.reign = reign
            self.until_ms, self._changing = {}, set()

    def was_sent(self, reign: object, body: bytes) -> None:
        """A message was sent and acknowledged in this reign."""
        self._see(reign)
        self.until_ms[body] = 0

    def was_given(self, reign: object, body: bytes, pop_ms: int, visible_ms: int) -> bool:
        """A pop has got it.

        Args:
            pop_ms: when, by the broker's wall clock.
            visible_ms: from when on others may.

        Returns:
            Whether somebody had it before, in this reign.

        Raises:
            InvariantBroken: it was still with somebody.
        """
        self._see(reign)
        until_ms = self.until_ms.get(body)
        if until_ms is None:
            return False
        invariant(
            pop_ms >= until_ms, "a message is popped before its invisible time is over",
            body=body, pop_ms=pop_ms, invisible_until_ms=until_ms,
        )  # fmt: skip
        self.until_ms[body] = visible_ms
        return until_ms > 0

    def is_changing(self, reign: object, body: bytes) -> None:
        """Who has it asks for another time: from here on nobody knows which one counts."""
        self._see(reign)
        if self.until_ms.pop(body, None) is not None:
            self._changing.add(body)

    def was_changed(self, reign: object, body: bytes, visible_ms: int) -> bool:
        """The broker has taken another time before the old one was over; others may get it then.

        Returns:
            Whether that is known for certain.
        """
        self._see(reign)
        if body not in self._changing:
            return False
        self._changing.discard(body)
        self.until_ms[body] = visible_ms
        return True
