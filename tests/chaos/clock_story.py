"""Tells its clocks, a line for each line that it hears: wall as ours read it, as libraries do, interval."""

from __future__ import annotations

import sys
import time

from rmqha.runtime.aio.clock import SystemClock

if __name__ == "__main__":
    clock = SystemClock()
    for _ in sys.stdin:
        wall_s = time.time()
        print(clock.wall_ms(), round(wall_s * 1000), clock.now_ms(), *sys.argv[1:], flush=True)
