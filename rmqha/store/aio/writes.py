"""Which writes have begun and not ended: a disk that stalls shows here first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rmqha.runtime.ports import Clock


class Writes:
    """Writes of one store that wait for the disk."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._begun_ms: dict[int, int] = {}

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Count what is done inside as one write."""
        self._count += 1
        number = self._count
        self._begun_ms[number] = self._clock.now_ms()
        try:
            yield
        finally:
            del self._begun_ms[number]

    @property
    def oldest_ms(self) -> int:
        """For how long the oldest of them has been under way, ms; 0 without one."""
        begun_ms = self.oldest_begun_ms
        return 0 if begun_ms is None else self._clock.now_ms() - begun_ms

    @property
    def oldest_begun_ms(self) -> int | None:
        """When the oldest of them began, by the clock; None without one."""
        return next(iter(self._begun_ms.values()), None)
