"""The machine's processor, for loops that stay awake."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable


class SystemProcessor:
    """The port of ``ha.busy_wait`` on the running event loop."""

    def now_us(self) -> int:
        """Microseconds of the monotonic clock."""
        return time.monotonic_ns() // 1_000

    def step_aside(self) -> None:
        """Let whoever waits for this processor run first."""
        os.sched_yield()

    def soon(self, callback: Callable[[], object]) -> None:
        """Run ``callback`` in the loop's next turn."""
        asyncio.get_running_loop().call_soon(callback)
