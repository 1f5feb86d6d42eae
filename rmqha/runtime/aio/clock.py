"""The machine's clock and random numbers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from rmqha.runtime.ports import TimerHandle

SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's monotonic clock stands still while the machine is suspended: what is a promise for some seconds,
a lease of reads or of writes, would go on behind it. Of a machine that a hypervisor stops none tells."""


class SystemClock:
    """Clock port on the running event loop and the machine's monotonic clock."""

    def now_ms(self) -> int:
        """Milliseconds of the monotonic clock, with those in which the machine was suspended."""
        return time.clock_gettime_ns(SINCE_BOOT) // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def call_later(
        self, delay_ms: float, callback: Callable[..., object], *args: object
    ) -> TimerHandle:
        """Run ``callback(*args)`` in the running loop after ``delay_ms``."""
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback, *args)

    async def sleep(self, delay_ms: float) -> None:
        """Wait for ``delay_ms``."""
        await asyncio.sleep(delay_ms / 1000)


class SystemRng:
    """Rng port from the operating system's entropy."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def randint(self, low: int, high: int) -> int:
        """An integer with ``low <= n <= high``."""
        return self._random.randint(low, high)
