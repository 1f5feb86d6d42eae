"""What a broker says of itself when it is asked (28)."""

from __future__ import annotations

import re
from collections.abc import Mapping

_DURATION = re.compile(r"\[ (\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds \]")
_UNIT_MS = (86_400_000, 3_600_000, 60_000, 1_000)


def broker_clock_ms(runtime: Mapping[str, str]) -> int | None:
    """A broker's wall clock when it answered 28, to the second: its start and how long it runs."""
    begun, runs = runtime.get("bootTimestamp", ""), _DURATION.search(runtime.get("runtime", ""))
    if not begun.isdigit() or runs is None:
        return None
    counts = map(int, runs.groups())
    ran_ms = sum(n * unit for n, unit in zip(counts, _UNIT_MS, strict=True))
    return int(begun) + ran_ms
