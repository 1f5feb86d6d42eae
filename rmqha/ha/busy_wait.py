"""Staying awake for a moment, because what a peer is to answer will be here in a moment.

A put waits for two wake-ups, the slave's and the master's, and a processor that was put to sleep
takes longer to wake than the record takes to travel (docs/benchmarks/runs.md, "A put without
sleep"). A loop that asks for its next turn at once looks at its sockets without sleeping.

That takes a processor from whoever has one to share, so a wait ends as soon as somebody else was let
in, and after waits in vain the next ones are left out: one, three, seven, up to ``LEFT_OUT_MAX``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

SHARED_US = 15
"""A step aside that took this long has let somebody in; alone it takes one or two."""

FEW_BYTES = 4_096
"""Of records, after which nobody stays awake if there are more: many puts are under way then, so the
next bytes are here soon, and a loop that sleeps meanwhile takes more of them at once."""

LEFT_OUT_MAX = 1_023
"""Waits left out in a row: at a thousand puts a second somebody looks once a second whether
answers are quick again."""

ANSWERED, VAIN, SHARED = "answered", "vain", "shared"
"""How a wait ends: with what it waited for, without it, or because others want the processor."""


class Processor(Protocol):
    """What a wait needs of the machine."""

    def now_us(self) -> int:
        """Microseconds of a clock that never goes back."""

    def step_aside(self) -> None:
        """Let whoever waits for this processor run first."""

    def soon(self, callback: Callable[[], object]) -> None:
        """Run ``callback`` in the loop's next turn, which comes without sleep."""


class BusyWait:
    """The waits of one connection, one at a time.

    Args:
        processor: the machine.
        window_us: how long a wait may take.
        ended: counts the waits by their ends.
    """

    def __init__(self, processor: Processor, window_us: int, ended: Counter[str]) -> None:
        self._processor = processor
        self._window_us = window_us
        self._ended = ended
        self._until_us = 0
        self._waits = self._turns = False
        self._pause = self._left_out = 0

    def expect(self) -> None:
        """Something was sent whose answer is near: stay awake for it, unless that was vain lately."""
        if not self._waits and self._left_out:
            self._left_out -= 1
            return
        self._waits = True
        self._until_us = self._processor.now_us() + self._window_us
        if not self._turns:
            self._turns = True
            self._processor.soon(self._turn)

    def came(self) -> None:
        """Bytes of the peer are here."""
        if self._waits:
            self._waits = False
            self._pause = 0
            self._ended[ANSWERED] += 1

    def stop(self) -> None:
        """The connection is gone; nothing is waited for."""
        self._waits = False

    def _turn(self) -> None:
        self._turns = False
        if not self._waits:
            return
        begun_us = self._processor.now_us()
        if begun_us >= self._until_us:
            self._give_up(VAIN)
            return
        self._processor.step_aside()
        if self._processor.now_us() - begun_us >= SHARED_US:
            self._give_up(SHARED)
            return
        self._turns = True
        self._processor.soon(self._turn)

    def _give_up(self, why: str) -> None:
        self._waits = False
        self._ended[why] += 1
        self._pause = self._left_out = min(2 * self._pause + 1, LEFT_OUT_MAX)
