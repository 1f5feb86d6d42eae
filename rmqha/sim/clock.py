"""A host's own clock: virtual time at a slightly wrong rate, silent once the host is dead."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from rmqha.runtime.ports import TimerHandle
from rmqha.sim.loop import HOST, SimLoop

WALL_START_MS = 1_700_000_000_000


class SimClock:
    """Clock port of one life of one host.

    Args:
        loop: the simulation's loop.
        rate: how fast this clock runs; 1.02 gains two per cent.
        offset_ms: what it showed at the start; hosts do not agree on it.
    """

    def __init__(self, loop: SimLoop, *, rate: float = 1.0, offset_ms: int = 0) -> None:
        self._loop = loop
        self._rate = rate
        self._offset_ms = float(offset_ms)
        self._since_s = 0.0
        self.wall_offset_ms = 0
        self.dead = False

    def now_ms(self) -> int:
        """This host's monotonic milliseconds."""
        return int((self._loop.time() - self._since_s) * 1000 * self._rate + self._offset_ms)

    def wall_ms(self) -> int:
        """Milliseconds since 1970, the same for all hosts but those whose clock was set."""
        return WALL_START_MS + int(self._loop.time() * 1000) + self.wall_offset_ms

    def set_rate(self, rate: float) -> None:
        """Run at another rate from now on, without a jump; timers already set keep their time."""
        now_s = self._loop.time()
        self._offset_ms += (now_s - self._since_s) * 1000 * self._rate
        self._since_s = now_s
        self._rate = rate

    def call_later(
        self, delay_ms: float, callback: Callable[..., object], *args: object
    ) -> TimerHandle:
        """A timer that fires only while the host lives."""

        def fire() -> None:
            if not self.dead:
                callback(*args)

        return self._loop.call_later(delay_ms / 1000 / self._rate, fire)

    async def sleep(self, delay_ms: float) -> None:
        """Wait in virtual time."""
        await asyncio.sleep(delay_ms / 1000 / self._rate)


class SimRng:
    """Rng port from the simulation's seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def randint(self, low: int, high: int) -> int:
        """An integer with ``low <= n <= high``."""
        return self._random.randint(low, high)


__all__ = ["HOST", "SimClock", "SimRng"]
