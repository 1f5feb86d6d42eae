"""Records of the log that are not what was written: which are known, and who is asked to mend them.
Those that nobody can be sent are told here as well.

Readers tell what they meet here, and may wait until it was tried to mend it. Who knows whole copies
registers as ``mender`` (``broker/sync/aio/scrub.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock

DAMAGED_MAX = 10_000
"""Places that are remembered. What is met beyond is served to nobody either, and mended once there is
room for it."""

AGAIN_MS = 1_000
"""So long after a try that found no whole copy nobody tries that record again."""


class Mending:
    """Of one store.

    Attributes:
        damaged: why, by the offset of the record.
        found, mended: how many there were since the start.
        mender: mends the record at an offset, and says whether it did.
        cut_to: the lowest place at which the log was cut since :meth:`take_cut`; None for none.
    """

    def __init__(self, clock: Clock, log: Logger) -> None:
        self._clock = clock
        self._log = log
        self._lock: asyncio.Lock | None = None
        self._tried: dict[int, int] = {}
        self._behind: set[int] = set()
        self._oversized: dict[int, None] = {}
        self.damaged: dict[int, str] = {}
        self.found = self.mended = 0
        self.cut_to: int | None = None
        self.mender: Callable[[int], Awaitable[bool]] | None = None

    def met(self, offset: int, reason: str) -> None:
        """Somebody has met a damaged record; it is told once."""
        if offset in self.damaged or self.is_full:
            return
        self.damaged[offset] = reason
        self.found += 1
        self._log.log("error", "record_damaged", offset=offset, reason=reason)

    def oversized(self, offset: int, size: int) -> bool:
        """Somebody passes over a record that fits into no answer; it is told once.

        It is whole, and stays in the log: a broker that took longer messages has written it. Nobody
        can be sent it, and what stands behind it in its queue must not wait for it for ever.
        """
        if offset in self._oversized:
            return False
        if len(self._oversized) >= DAMAGED_MAX:
            del self._oversized[next(iter(self._oversized))]
        self._oversized[offset] = None
        self._log.log("error", "record_oversized", offset=offset, size=size)
        return False

    @property
    def is_full(self) -> bool:
        """Whether no further place is remembered."""
        return len(self.damaged) >= DAMAGED_MAX

    def whole(self, offset: int, source: str) -> None:
        """A record was written anew from a whole copy."""
        if self.damaged.pop(offset, None) is None:
            return
        self._tried.pop(offset, None)
        self.mended += 1
        self._log.log("warning", "record_mended", offset=offset, source=source)

    def cut(self, offset: int) -> None:
        """The log ends at ``offset`` now."""
        self.cut_to = offset if self.cut_to is None else min(self.cut_to, offset)
        self._drop(lambda at: at >= offset)

    def take_cut(self) -> int | None:
        """Where the log was cut since the last call: who goes through it may stand in no record's start."""
        offset, self.cut_to = self.cut_to, None
        return offset

    def expired(self, offset: int) -> None:
        """The log begins at ``offset`` now."""
        self._drop(lambda at: at < offset)

    def _drop(self, gone: Callable[[int], bool]) -> None:
        for at in [at for at in self.damaged if gone(at)]:
            del self.damaged[at]
            self._tried.pop(at, None)

    async def mend(self, offset: int) -> bool:
        """Try to mend a record that somebody met; others who wait for it wait for the same try.

        Returns:
            Whether it is whole now, as far as is known: of what nobody could remember, nothing is.
        """
        if self.mender is None:
            return False
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if offset not in self.damaged:
                return not self.is_full
            now_ms = self._clock.now_ms()
            if now_ms < self._tried.get(offset, 0):
                return False
            is_whole = await self.mender(offset)
            if not is_whole and offset in self.damaged:
                self._tried[offset] = self._clock.now_ms() + AGAIN_MS
            return is_whole

    def behind(self, offset: int, on_whole: Callable[[], None]) -> Coroutine[Any, Any, None] | None:
        """What mends a record while who met it goes on; None where that is on its way already.

        Nobody can mend it before there is a mender, either. ``on_whole`` is told if it succeeds.
        """
        if self.mender is None or offset in self._behind:
            return None
        self._behind.add(offset)
        return self._mend_behind(offset, on_whole)

    async def _mend_behind(self, offset: int, on_whole: Callable[[], None]) -> None:
        try:
            if await self.mend(offset):
                on_whole()
        finally:
            self._behind.discard(offset)
