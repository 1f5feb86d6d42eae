"""What goes to slaves is whole: old parts of the log are checked before they go.

A block whose sum is known is held against it; of others each record is checked. Batches begin and end
anywhere. So how far each stream was checked is remembered; only who begins to check records in the
middle of one has to look for its start. What this process has written itself, and memory still has,
goes as it is.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqha.store.aio.block_summing import BlockSumming
from rmqha.store.aio.cold_reads import ColdReads
from rmqha.store.aio.commit_log import CommitLog

STREAMS_MAX = 16
"""How many are remembered: slaves, and a few that are gone."""


class _Stream(NamedTuple):
    """What was checked for one reader, just now: [begin, end).

    Attributes:
        at_record: whether a record begins at ``end``.
        walked: from here on it was checked record by record.
    """

    begin: int
    end: int
    at_record: bool
    walked: int


class Proving:
    """Of one log.

    Attributes:
        summing: the sums of its blocks.
    """

    def __init__(self, log: CommitLog, cold: ColdReads, summing: BlockSumming) -> None:
        self._log = log
        self._cold = cold
        self.summing = summing
        self._streams: list[_Stream] = []

    async def cut(self, offset: int) -> None:
        """The log ends at ``offset`` now."""
        self._streams = [one for one in self._streams if one.end <= offset]
        await self.summing.cut(offset)

    def is_proven(self, offset: int, length: int) -> bool:
        """Whether a range may go to a slave at once; it is in memory."""
        if self._cold.is_own(offset):
            return True
        if not self.summing.is_loaded(offset):
            return False
        stream = self._stream(offset)
        return stream is not None and self._advanced(stream, offset, offset + length) is None

    async def prove(self, offset: int, length: int) -> bool:
        """Whether it may go, after it was tried to mend what is not whole; what is gone may not."""
        log, sums, end, mended = self._log, self.summing.sums, offset + length, -1
        while log.readable(offset, length) == length:
            await self.summing.load(offset)
            block_end = min(sums.bounds(end - 1)[1], log.max_offset)
            await self._cold.fetch([(sums.bounds(offset)[0], block_end)])
            if log.readable(offset, length) < length:
                break  # it expired, or was cut, meanwhile
            stream = self._stream(offset) or _Stream(offset, offset, False, offset)
            left = self._advanced(stream, offset, end)
            if left is not None and not left.at_record:
                start = await self._record_start(left.end)
                if log.readable(offset, length) < length:
                    break
                again = _Stream(start, start, True, start)
                left = self._advanced(again, offset, end, sums_from=left.end)
            if left is None:
                return True
            # It may lie within a record: behind a block that has its sum still.
            if left.at_record:
                if left.end == mended or not await self._cold.mending.mend(left.end):
                    return False
                mended = left.end
        return False

    async def _record_start(self, position: int) -> int:
        """The start of the record that ``position`` lies within, or ``position``."""
        log = self._log
        known = self.summing.sums.start_before(position)
        if known is None or log.check(known)[1].size < 0:
            known = max(0, log.min_offset)
        return await log.record_start(position, known)

    def _stream(self, offset: int) -> _Stream | None:
        """The stream that a place belongs to; None where nobody knows how to go on from there."""
        for one in self._streams:
            if one.begin <= offset <= one.end:
                return one
        if self._log.check(offset)[1].size >= 0:
            return _Stream(offset, offset, True, offset)
        return _Stream(offset, offset, False, offset) if self.summing.sums.find(offset) else None

    def _advanced(
        self, one: _Stream, offset: int, end: int, *, sums_from: int = 0
    ) -> _Stream | None:
        """Check from where a stream was checked up to ``end``.

        Args:
            one: the stream.
            offset, end: what lies between is in memory.
            sums_from: whatever lies before is checked record by record.

        Returns:
            None if all is well; else how far it was, which ends before a record that is not whole, or
            within a record whose start nobody knows.
        """
        log, position, at_record, walked = self._log, one.end, one.at_record, one.walked
        end = min(end, log.max_offset)
        while position < end:
            written_to = None
            if position >= sums_from:
                written_to = self.summing.as_written(position, offset, end)
            if written_to is not None:
                if at_record:
                    self.summing.proven(walked, position)
                position = walked = written_to
                at_record = self.summing.sums.is_start(position)
                continue
            if not at_record:
                break
            # Ordinary ones in one loop; the careful way judges what ends it, and the last one.
            run = log.scan(position, end, count_max=end - position, check_crc=True)
            if run is not None and run.records:
                position = run.end
                continue
            _, head = log.check(position, check_crc=True)
            if head.size < 0:
                self._cold.mending.met(position, head.reason)
                break
            position = position + head.size if head.size else log.file_end(position)
        if at_record:
            walked = self.summing.proven(walked, position)
        # What was checked long ago may be another by now: who comes for it again has it checked again.
        left = _Stream(min(offset, position), position, at_record, walked)
        self._streams = [left, *(it for it in self._streams if it is not one)][:STREAMS_MAX]
        return None if position >= end else left
