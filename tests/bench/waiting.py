"""How long the event loop stands still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable

TICK_S = 0.001


async def waits(work: Awaitable[object]) -> tuple[float, float]:
    """Milliseconds: the longest time that the loop stood still during ``work``, and what it took."""
    longest, running = 0.0, True

    async def beat() -> None:
        nonlocal longest
        while running:
            began = time.perf_counter()
            await asyncio.sleep(TICK_S)
            longest = max(longest, time.perf_counter() - began - TICK_S)

    beating = asyncio.create_task(beat())
    await asyncio.sleep(0)
    began = time.perf_counter()
    await work
    took = time.perf_counter() - began
    running = False
    await beating
    return longest * 1000, took * 1000
