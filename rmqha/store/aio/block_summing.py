"""Sums of the log's blocks: made once a block is durable, kept in files, and held against the log again.

Nobody waits for them, and nothing depends on them: a file of sums that cannot be written or read means
that the records of its blocks are judged one by one.
"""

from __future__ import annotations

import asyncio

from rmqha.base.errors import DiskFailed
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Disk
from rmqha.store import segments
from rmqha.store.aio.cold_reads import ColdReads
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.block_sums import BlockSums, FileSums, Summed
from rmqha.store.crc import crc32

FOLDER = "blocksums"
SAVED_EVERY = 1_024
"""Blocks, 64 MiB: so much is judged record by record after a crash."""

FILES_MAX = 8
"""Whose sums are in memory, 192 KiB for each file of 1 GiB; others are read again."""

PAUSE_ROUNDS = 120
"""Rounds of ``sum_up``, a minute, before a full disk is tried again."""

BLOCKS_A_TURN = 16
"""Summed before others get their turn: a tenth of a millisecond."""

RECEIVED_A_ROUND = 128
"""Blocks of received bytes, 8 MiB, that are checked in one round: a slave that catches up has other work."""


class BlockSumming:
    """The sums of one store's log.

    Args:
        directory: where their files are.

    Attributes:
        sums: those in memory.
        differing: blocks whose sum is another one than it was, each counted once.
    """

    def __init__(
        self, disk: Disk, directory: str, log: CommitLog, cold: ColdReads, logger: Logger
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._log = log
        self._cold = cold
        self._logger = logger
        self.sums = BlockSums(log.file_size)
        self._saved: set[int] = set()
        self._next = self._pause = self._cuts = 0
        # Records of received bytes were checked up to here; the last damaged one ended there.
        self._checked = self._damaged_to = 0
        self._lock = asyncio.Lock()
        self.differing: set[int] = set()

    async def open(self, end: int) -> None:
        """Look what there is; the log ends at ``end``, and all before was read from the disk."""
        self._saved = set(segments.starts_of(await self._disk.list_dir(self._directory)))
        await self._expire()
        await self.cut(end)
        # A block of which a part came from the disk gets its sum only if that part is as it was.
        self._next, block_end = self.sums.bounds(end)
        await self.load(self._next)
        known = self.sums.find(end - 1) if end > self._next else None
        if end > self._next and (known is None or known.end != end or not self._fits(known)):
            self._next = block_end

    def is_loaded(self, offset: int) -> bool:
        """Whether the sums of the file that holds ``offset`` are in memory, or there are none."""
        start = self.sums.file_of(offset)
        return start in self.sums.files or start not in self._saved

    async def load(self, offset: int) -> None:
        """Have the sums of the file that holds ``offset`` in memory, if there are any."""
        if not self.is_loaded(offset):
            async with self._lock:  # what a cut takes away must not come back with this
                await self._load(offset)

    async def _load(self, offset: int) -> None:
        if self.is_loaded(offset):
            return
        start = self.sums.file_of(offset)
        try:
            found = self.sums.decode(start, await self._disk.read(self._path(start)))
        except (DiskFailed, FileNotFoundError):
            found = None
        if found is None:
            self._saved.discard(start)
        else:
            self._make_room()
            self.sums.files[start] = found

    def as_written(self, offset: int, known_from: int, known_to: int) -> int | None:
        """Where the block ends that holds ``offset``, if all of it is what it was.

        Args:
            known_from, known_to: what lies between is in memory.
        """
        summed = self.sums.find(offset)
        if summed is None or summed.end > self._log.max_offset:
            return None
        begin, end, _ = summed
        if (begin < known_from or end > known_to) and self._cold.is_cold(begin, end):
            return None
        if self._fits(summed):
            self.differing.discard(begin)
            return end
        if begin not in self.differing:
            self.differing.add(begin)
            self._logger.log("warning", "block_differs", offset=begin, length=end - begin)
        return None

    def proven(self, begin: int, end: int) -> int:
        """All records of a range were found whole, and one begins at its end: blocks of it without a sum
        get one.

        Returns:
            From where on such a range may go on, to have its last block summed, too.
        """
        at, block_end = self.sums.bounds(begin)
        if at < begin:
            at, block_end = self.sums.bounds(block_end)
        while block_end <= end:
            if self.sums.find(at) is None:
                self._sum(at, block_end)
            at, block_end = self.sums.bounds(block_end)
        self.sums.record_starts(end)
        return max(begin, at) if at <= end else begin

    async def sum_up(self, durable: int, record_start: int) -> None:
        """Sum what this process wrote and made durable since the last call.

        Args:
            durable: what lies before is.
            record_start: where a record begins.
        """
        await self._expire()
        count = received = 0
        while self._next < durable:
            begin, end = self.sums.bounds(max(self._next, self._log.min_offset))
            # A cut may have come while others had their turn.
            if end > min(durable, self._log.max_offset):
                break
            is_received = begin < self._log.received_to
            # What the memory has dropped already came from the disk, as others did.
            if not self._cold.is_cold(begin, end):
                if is_received:
                    received += 1
                    is_whole = await self._is_whole(begin, end)
                    if is_whole is None or received > RECEIVED_A_ROUND:
                        break
                if not is_received or is_whole:
                    self._sum(begin, end)
            self._next = end
            count += 1
            if is_received or count % BLOCKS_A_TURN == 0:
                await asyncio.sleep(0)
        self.sums.record_starts(record_start)
        self._pause = max(0, self._pause - 1)
        if not self._pause:
            await self._save(SAVED_EVERY)

    async def _is_whole(self, begin: int, end: int) -> bool | None:
        """Whether all records of a block are, of which another process wrote some: it may have sent damage.

        Returns:
            None while that cannot be said: the last record is on its way, or one has no length.
        """
        log, cuts = self._log, self._cuts
        if self._checked < begin:
            start = await log.record_start(begin, self._checked)
            if cuts != self._cuts:
                return None
            self._checked = start
        is_whole = begin >= self._damaged_to
        while (at := self._checked) < end:
            run = log.scan(at, end, count_max=end - at, check_crc=True)
            if run is not None and run.records:
                self._checked = run.end
                continue
            _, head = log.check(at, check_crc=True)
            size = head.size if head.size >= 0 else log.check(at)[1].size
            if size < 0:
                return None
            self._checked = at + size if size else log.file_end(at)
            if head.size < 0:
                self._cold.mending.met(at, head.reason)
                is_whole, self._damaged_to = False, self._checked
        return is_whole

    async def finish(self, end: int) -> None:
        """Sum what is left, a part of a block as well, and save all: the log is durable, and closed."""
        await self.sum_up(end, end)
        begin, block_end = self.sums.bounds(end)
        if (
            begin == self._next
            and begin < end < block_end
            and (begin >= self._log.received_to or await self._is_whole(begin, end))
        ):
            self._sum(begin, end)
            self.sums.record_starts(end)
        await self._save(1)

    def rewritten(self, begin: int, end: int) -> None:
        """A record was written anew: blocks that are what they were again differ no more."""
        for at in [one for one in self.differing if self.sums.bounds(begin)[0] <= one < end]:
            summed = self.sums.find(at)
            if summed is not None and self._fits(summed):
                self.differing.discard(at)

    async def cut(self, offset: int) -> None:
        """The log was cut, and ends at ``offset``: sums of what lay behind are gone for good.

        A crash before this is known is made good by :meth:`open`.
        """
        self._next = min(self._next, self.sums.bounds(offset)[0])
        self._cuts += 1
        if offset < max(self._checked, self._damaged_to):
            self._checked = self._damaged_to = 0
        async with self._lock:
            for start in sorted(self._saved):
                if start >= offset:
                    await self._remove(start)
            await self._load(offset)
            if self.sums.cut(offset):
                start = self.sums.file_of(offset)
                self.sums.files[start].unsaved += 1
                await self._save_file(start)
        self.differing = {one for one in self.differing if one < offset}

    def _fits(self, summed: Summed) -> bool:
        view = self._log.view(summed.begin, summed.end - summed.begin)
        return crc32(view) == summed.crc

    def _sum(self, begin: int, end: int) -> None:
        if self.sums.file_of(begin) not in self.sums.files:
            self._make_room()
        self.sums.put(Summed(begin, end, crc32(self._log.view(begin, end - begin))))

    def _make_room(self) -> None:
        """Forget the sums that were in memory for longest and are in a file."""
        files = self.sums.files
        for start in [*files][: max(0, len(files) + 1 - FILES_MAX)]:
            if not files[start].unsaved:
                del files[start]

    async def _save(self, unsaved_min: int) -> None:
        async with self._lock:
            for start, one in [*self.sums.files.items()]:
                is_full = start + self._log.file_size <= self._next
                if one.unsaved >= unsaved_min or (one.unsaved and is_full):
                    await self._save_file(start)

    async def _save_file(self, start: int) -> None:
        one: FileSums = self.sums.files[start]
        data, unsaved = self.sums.encode(start), one.unsaved
        try:
            if not self._saved:
                await self._disk.make_dirs(self._directory)
            await self._disk.write_atomic(self._path(start), data)
        except DiskFailed as error:
            self._pause = PAUSE_ROUNDS
            self._logger.log("warning", "block_sums_not_saved", file=start, error=str(error))
            return
        self._saved.add(start)
        one.unsaved -= unsaved

    async def _expire(self) -> None:
        """Remove sums of files that are gone."""
        first = self._log.min_offset
        for start in sorted(one for one in self._saved if one < first or first < 0):
            await self._remove(start)
        for start in [one for one in self.sums.files if one < first]:
            del self.sums.files[start]
        self.differing = {one for one in self.differing if one >= first}

    async def _remove(self, start: int) -> None:
        self._saved.discard(start)
        self.sums.files.pop(start, None)
        try:
            await self._disk.remove(self._path(start))
        except DiskFailed as error:
            self._logger.log("warning", "block_sums_not_removed", file=start, error=str(error))

    def _path(self, start: int) -> str:
        return f"{self._directory}/{segments.file_name(start)}"
