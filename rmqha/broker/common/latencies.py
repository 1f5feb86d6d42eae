"""How long puts and reads took: the slowest, the spread of a minute, and what 28 prints of them.

Most puts are answered in the turn of the event loop that read them; they count as 0 ms without a
look at the clock. What waited for a disk or for replicas is timed.

Source: StoreStatsService of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

WINDOW_MS = 60_000
"""The percentiles and the spread are of the last whole minute, as Java's."""

_EDGES_MS = (
    *range(20), *range(20, 50, 2), *range(50, 100, 5), *range(100, 200, 10),
    *range(200, 500, 50), *range(500, 1_000, 100), *range(1_000, 10_001, 1_000),
)  # fmt: skip
"""Upper edges of the buckets, inclusive; one more is for all above."""

_SPREAD = (
    (0, "[<=0ms]"), (10, "[0~10ms]"), (50, "[10~50ms]"), (100, "[50~100ms]"),
    (200, "[100~200ms]"), (500, "[200~500ms]"), (1_000, "[500ms~1s]"), (2_000, "[1~2s]"),
    (3_000, "[2~3s]"), (4_000, "[3~4s]"), (5_000, "[4~5s]"), (10_000, "[5~10s]"),
)  # fmt: skip
_SLOWEST = "[10s~]"
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class Latencies:
    """Of one kind of work.

    Attributes:
        slowest_ms: since the start.
    """

    def __init__(self) -> None:
        self.slowest_ms = 0
        self._counts = [0] * (len(_EDGES_MS) + 1)
        self._last: Sequence[int] = ()
        self._since_ms: int | None = None
        self._counted = 0

    def took(self, ms: int) -> None:
        """Something has waited for so long; negative, after a step of the clock, is none."""
        if ms > self.slowest_ms:
            self.slowest_ms = ms
        self._counts[bisect_left(_EDGES_MS, max(0, ms))] += 1

    def sample(self, now_ms: int, total: int) -> None:
        """To be called every few seconds; ends the window when it is over.

        Args:
            total: all that was done since the start; what was not timed took no time.
        """
        if self._since_ms is None:
            self._since_ms, self._counted = now_ms, total
            return
        if now_ms - self._since_ms < WINDOW_MS:
            return
        counts = self._counts
        counts[0] += max(0, total - self._counted - sum(counts))
        self._last, self._counts = counts, [0] * (len(_EDGES_MS) + 1)
        self._since_ms, self._counted = now_ms, total

    def percentile_ms(self, share: float) -> float:
        """The edge of the bucket where so much of the last window is done; 0 without one."""
        wanted = sum(self._last) * share
        done = 0
        for edge_ms, count in zip((*_EDGES_MS, self.slowest_ms), self._last, strict=False):
            done += count
            if done >= wanted:
                return float(edge_ms)
        return 0.0

    def spread(self) -> str:
        """The last window in Java's text; ``null`` before there is one, as Java writes it."""
        if not self._last:
            return "null"
        parts = []
        at = 0
        for edge_ms, name in _SPREAD:
            end = bisect_left(_EDGES_MS, edge_ms) + 1
            parts.append(f"{name}:{sum(self._last[at:end])} ")
            at = end
        return "".join(parts) + f"{_SLOWEST}:{sum(self._last[at:])} "


def readable_bytes(count: int) -> str:
    """A size as Java's tools write it: ``0 B``, ``1.5 KiB``."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(_UNITS))
    return f"{count / (1 << 10 * power):.1f} {_UNITS[power - 1]}"
