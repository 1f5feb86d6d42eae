"""What has left the memory is read in a thread, so that nobody else waits for the disk.

Whoever looks at a page that is in no memory waits for it in a page fault, and the event loop and all
threads with him. So a look into an old part of the log is tried first (:meth:`ColdReads.now`): it
ends with ``NotInMemory`` where it would have to wait, and is made again once a thread has read that.
Near the log's end nobody asks whether anything is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from rmqha.runtime.ports import MappedFile
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.mending import Mending
from rmqha.store.record import Head

T = TypeVar("T")
Run = Sequence[int]

COLD_BYTES = 64 << 20
"""So near to the log's end nothing has left the memory yet."""

READS_MAX = 2
"""At a time: others need the threads for their syncs."""

GAP_BYTES = 65_536
"""Two reads with no more than that between them are one."""

RECORD_BYTES = 16_384
"""Read for a record of which not even the length is known, and on both sides of a place in a file."""

AHEAD_BYTES = 8 << 20
"""Read for who goes through the log."""

LOOKS_MAX = 200
"""A look that misses something as often as this is made without asking: memory is too short to keep
for a moment what was read."""


class NotInMemory(Exception):
    """A look into the log would have to wait.

    Attributes:
        runs: where what is missing begins and ends.
        file: in which file; None for the log.
        damaged: where records begin that are there and not whole: to be mended first.
    """

    def __init__(
        self, runs: Sequence[Run], file: MappedFile | None = None, damaged: Sequence[int] = ()
    ) -> None:
        super().__init__("not in memory")
        self.runs = runs
        self.file = file
        self.damaged = damaged


class ColdReads:
    """Reads of one commit log.

    Args:
        unchecked_tail_bytes: see ``StoreSettings``.

    Attributes:
        from_disk_to: what lies before was read from the disk when the store was opened.
    """

    def __init__(self, log: CommitLog, mending: Mending, unchecked_tail_bytes: int) -> None:
        self._log = log
        self.mending = mending
        self._reads = asyncio.Semaphore(READS_MAX)
        self._is_watched = False
        self._unchecked_tail_bytes = unchecked_tail_bytes
        self.from_disk_to = 0

    def is_own(self, offset: int) -> bool:
        """Whether this process wrote what lies from a place on, so recently that memory has it still.

        Then nobody has read it from a disk that could have changed it. A machine short of memory may
        have dropped such pages all the same; until the scrub comes by, those go unchecked.
        """
        tail_from = self._log.max_offset - self._unchecked_tail_bytes
        return offset >= self.from_disk_to and offset >= tail_from

    @property
    def far_to(self) -> int:
        """What lies before is so far behind the log's end that it may have left the memory."""
        return self._log.max_offset - COLD_BYTES

    def is_cold(self, begin: int, end: int) -> bool:
        """Whether who looks at bytes of one file would have to wait for the disk."""
        return self._log.max_offset - begin > COLD_BYTES and not self._log.is_cached(begin, end)

    async def fetch(self, runs: Sequence[Run]) -> bool:
        """Bring bytes into memory that are not there, each run of one file; whether any were not.

        Raises:
            DiskFailed: they cannot be read.
        """
        waited = False
        for begin, end in self._joined(runs):
            if not self._log.is_cached(begin, end):
                waited = True
                async with self._reads:
                    await self._log.fetch(begin, end)
        return waited

    def _joined(self, runs: Sequence[Run]) -> list[list[int]]:
        """Runs with what lies between neighbours: one read is sooner done than two."""
        joined: list[list[int]] = []
        for begin, end in sorted((run[0], run[1]) for run in runs):
            last = joined[-1] if joined else [0, -1 - GAP_BYTES]
            if begin - last[1] <= GAP_BYTES and self._log.file_end(last[0]) >= end:
                last[1] = max(last[1], end)
            else:
                joined.append([begin, end])
        return joined

    # -- looks that may be made again --------------------------------------------------------------

    def now(self, look: Callable[[], T]) -> T:
        """Look, if nobody has to wait for it.

        Args:
            look: changes nothing before it has seen all that it looks at.

        Raises:
            NotInMemory: it would have to wait.
        """
        before, self._is_watched = self._is_watched, True
        try:
            return look()
        finally:
            self._is_watched = before

    async def look(self, look: Callable[[], T], missing: NotInMemory | None = None) -> T:
        """Look, as :meth:`now`, and wait for what is not in memory.

        Args:
            look: as of :meth:`now`.
            missing: what an earlier try has missed.

        Raises:
            DiskFailed: it cannot be read.
        """
        fetched: set[tuple[MappedFile | None, Run]] = set()
        for _ in range(LOOKS_MAX):
            if missing is not None:
                await self._fetch_missing(missing)
                fetched.update((missing.file, run) for run in missing.runs)
            try:
                return self.now(look)
            except NotInMemory as error:
                missing = error
                if all((error.file, run) in fetched for run in error.runs):
                    break
        return look()

    async def _fetch_missing(self, missing: NotInMemory) -> None:
        file = missing.file
        if file is None:
            await self.fetch(missing.runs)
            for offset in missing.damaged:
                await self.mending.mend(offset)
            return
        async with self._reads:
            for low, high in missing.runs:
                # One that was closed meanwhile says that it is.
                if not file.is_cached(low, high):
                    await file.fetch(low, high)

    def need_whole(self, head: Head) -> None:
        """Whoever looks has met a record that is not whole; nobody is shown it.

        Raises:
            NotInMemory: he may wait until it was tried to mend it.
        """
        self.mending.met(head.offset, head.reason)
        if self._is_watched and self.mending.mender is not None:
            raise NotInMemory([(head.offset, head.offset + 1)], damaged=(head.offset,))

    def need_in(self, file: MappedFile, low: int, high: int) -> None:
        """Whoever looks needs some bytes of a file.

        Raises:
            NotInMemory: they are not there, and nobody is to wait for them.
        """
        if self._is_watched and not file.is_cached(low, high):
            low, high = max(0, low - RECORD_BYTES), min(file.size, high + RECORD_BYTES)
            raise NotInMemory([(low, high)], file)

    def need_record(self, offset: int) -> None:
        """Whoever looks needs the record at ``offset``; ``offset`` is in the log.

        Raises:
            NotInMemory: it is not there, and nobody is to wait for it.
        """
        if not self._is_watched or offset >= self.far_to:
            return
        log = self._log
        buffer, start = log.file_of(offset)
        end = min(offset + RECORD_BYTES, start + len(buffer))
        if not log.is_cached(offset, min(end, offset + 4)):
            raise NotInMemory([(offset, end)])
        size = int.from_bytes(buffer[offset - start : offset - start + 4])
        end = min(offset + size, start + len(buffer))
        # A length that no record has is none: nobody reads on then.
        if size <= log.record_max and not log.is_cached(offset, end):
            raise NotInMemory([(offset, end)])


class ReadAhead:
    """For who goes through the log record by record, and may be far behind its end."""

    def __init__(self, cold: ColdReads, log: CommitLog) -> None:
        self._cold = cold
        self._log = log
        self._at = self._end = 0

    async def reach(self, offset: int) -> None:
        """Have what comes next in memory.

        Both its ends are looked at only: what left the memory did so in the order of the log.

        Raises:
            DiskFailed: it cannot be read.
        """
        if offset >= self._cold.far_to:
            return
        # Who goes back, does so because the log was cut.
        before, self._at = self._at, offset
        if before <= offset and offset + AHEAD_BYTES // 2 <= self._end:
            return
        end = self._end = offset + AHEAD_BYTES
        if self._cold.is_cold(offset, offset + 1) or self._cold.is_cold(end - 1, end):
            file_end = self._log.file_end(offset)
            runs = [(offset, min(end, file_end)), (file_end, max(end, file_end))]
            await self._cold.fetch([run for run in runs if run[0] < run[1]])
