"""The machine's clock and random numbers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from rmqha.runtime.ports import TimerHandle


class SystemClock:
    """Clock port on the running event loop and the machine's monotonic clock."""

    def now_ms(self) -> int:
        """Milliseconds of the monotonic clock."""
        return time.monotonic_ns() // 1_000_000

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
