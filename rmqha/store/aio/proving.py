"""What goes to slaves is whole: old parts of the log are checked, record by record, before they go.

Batches begin and end anywhere. So where the records of each stream stand is remembered; only who
begins in the middle of one has to look for its start. What this process has written itself, and
memory still has, goes as it is.
"""

from __future__ import annotations

from rmqha.store.aio.cold_reads import ColdReads
from rmqha.store.aio.commit_log import CommitLog

STREAMS_MAX = 16
"""Whose places are remembered: slaves, and a few that are gone."""


class Proving:
    """Of one log."""

    def __init__(self, log: CommitLog, cold: ColdReads) -> None:
        self._log = log
        self._cold = cold
        self._streams: list[tuple[int, int]] = []

    def cut(self, offset: int) -> None:
        """The log ends at ``offset`` now."""
        self._streams = [one for one in self._streams if one[1] <= offset]

    def is_proven(self, offset: int, length: int) -> bool:
        """Whether a range may go to a slave at once; it is in memory."""
        if self._cold.is_own(offset):
            return True
        start = self._start(offset)
        return start is not None and self._damaged(start, offset, offset + length) is None

    async def prove(self, offset: int, length: int) -> bool:
        """Whether it may go, after it was tried to mend what is not whole."""
        log = self._log
        while log.readable(offset, length) == length:
            start = self._start(offset)
            if start is None:
                start = await log.record_start(offset, max(0, log.min_offset))
            damaged = self._damaged(start, offset, offset + length)
            if damaged is None:
                return True
            if not await self._cold.mending.mend(damaged):
                return False
        return False

    def _start(self, offset: int) -> int | None:
        """Where a record begins at or before a place from which on nothing was checked yet."""
        for begin, end in self._streams:
            if begin <= offset <= end:
                return end
        return offset if self._log.check(offset)[1].size >= 0 else None

    def _damaged(self, start: int, offset: int, end: int) -> int | None:
        """The first record from ``start`` on, up to ``end``, that is not whole."""
        log, position = self._log, start
        end = min(end, log.max_offset)
        while position < end:
            # Ordinary ones in one loop; the careful way judges what ends it, and the last one.
            run = log.scan(position, end, count_max=end - position, check_crc=True)
            if run is not None and run.records:
                position = run.end
                continue
            _, head = log.check(position, check_crc=True)
            if head.size < 0:
                self._cold.mending.met(position, head.reason)
                return position
            position = position + head.size if head.size else log.file_end(position)
        others = [one for one in self._streams if one[1] != start]
        self._streams = [(min(offset, position), position), *others[: STREAMS_MAX - 1]]
        return None
