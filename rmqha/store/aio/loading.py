"""Opening a store: the order of loading, recovery after a clean and an unclean stop, the cut.

Source: RocketMQ's protocol as observed; what may be cut is decided by ``store/recovery.py``.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from msgspec import Struct

from rmqha.base.errors import DiskFull, StoreDamaged
from rmqha.runtime.ports import Disk, MappedFile
from rmqha.store import checkpoint as cp
from rmqha.store import recovery
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.consume_queues import ConsumeQueues, Flush
from rmqha.store.aio.mapped_files import file_sizes
from rmqha.store.aio.queue_lists import QueueLists
from rmqha.store.index_file import IndexFile, file_size
from rmqha.store.record import Head, check_record
from rmqha.store.scan import Run
from rmqha.store.settings import StoreSettings


class Loaded(Struct, frozen=True):
    """What opening found.

    Attributes:
        clean: the last stop was a clean one.
        dispatched: records before it are in the queues.
        records: how many records were walked.
        cut_bytes: written bytes beyond the end that were erased, in chunks; 0 for none.
    """

    clean: bool
    dispatched: int
    last_timestamp: int
    records: int
    cut_bytes: int


class Opening(NamedTuple):
    """What a log is recovered from.

    Attributes:
        segments: the files of the log, without a gap.
        strays: those behind a gap.
        clean: the last stop was a clean one.
    """

    checkpoint: cp.Checkpoint
    segments: list[recovery.Segment]
    strays: list[recovery.Segment]
    clean: bool


class Loader:
    """Opens one store once."""

    def __init__(
        self,
        disk: Disk,
        settings: StoreSettings,
        log: CommitLog,
        queues: ConsumeQueues,
        lists: QueueLists,
    ) -> None:
        self._disk = disk
        self._settings = settings
        self._log = log
        self._queues = queues
        self._lists = lists

    async def load(
        self, checkpoint_file: MappedFile, *, clean: bool
    ) -> tuple[cp.Checkpoint, Loaded]:
        """Load and recover everything; afterwards the log can be written.

        Raises:
            StoreMismatch: files of another length; nothing was changed.
            StoreDamaged: durable records are not whole; neither the commit log nor a queue that lacks
                units was changed.
            DiskFailed: a file cannot be used.
        """
        checkpoint = cp.read(checkpoint_file.buffer)
        unused_from = None if clean else checkpoint.flushed_offset
        beyond = await self._log.files.load(unused_from=unused_from)
        await self._queues.load(clean=clean)
        # Its seal says whether anybody changed the store: with the mark of a crash beside it a stop or a
        # start died on its way, or a start was refused, and queues were to be as it says all the same.
        await self._lists.find_missing(checkpoint, self._log.min_offset)
        if not clean:
            await self._drop_late_indexes(checkpoint)
        segments = self._log.segments()
        if segments and self._never_flushed(segments[0], checkpoint, clean=clean):
            for start in reversed(beyond):
                await self._log.files.drop(start)
            await self._log.files.remove_after(-1)
            segments = []
        if not segments:
            self._refuse_if(checkpoint, 0)
            await self._queues.drop_beyond()
            await self._queues.clear()
            self._log.start_at(0)
            checkpoint.confirm_offset = min(checkpoint.confirm_offset, 0)
            checkpoint.begin_offset = None
            return checkpoint, Loaded(clean, 0, 0, 0, 0)
        files = self._log.files
        stray = [files.map(start) for start in beyond]
        strays = [
            recovery.Segment(start, file.buffer, file.path)
            for start, file in zip(beyond, stray, strict=True)
        ]
        try:
            opening = Opening(checkpoint, segments, strays, clean)
            await self._prepare_lost(checkpoint_file, opening)
            loaded = await self._recover(opening)
        finally:
            for file in stray:
                file.close()
        for start in reversed(beyond):
            await files.drop(start)
        return checkpoint, loaded

    async def _prepare_lost(self, file: MappedFile, opening: Opening) -> None:
        """Have the walk to come make anew what queues lack, where it can reach the log's end from there.

        Nothing goes before that is known: what a queue has of its units is all there is of them where
        the log is damaged behind their records, and a start after a stop in order would not see the damage.

        Raises:
            StoreDamaged, DiskFailed: as :meth:`load`.
        """
        lost = self._queues.lost_from
        if lost is None:
            return
        _, damage = await self._look(opening, self._first(opening, None))
        if damage is not None:
            raise damage
        while lost is not None:
            end, damage = await self._look(opening, self._first(opening, lost))
            if damage is None:
                break
            ends = (one.end for one in opening.segments if end < one.end)
            await self._queues.leave_lost(max(lost + 1, min(ends, default=end)), damage)
            lost = self._queues.lost_from
        else:
            return
        await self._note_lost(file, opening.checkpoint, lost)
        if opening.clean:
            # Units that this start writes may not be on the disk when the next one comes.
            await self._disk.write_atomic(self._settings.path(cp.ABORT), b"")
        await self._queues.drop_beyond()

    async def _look(self, opening: Opening, first: int) -> tuple[int, StoreDamaged | None]:
        """Where whole records end from a file on, and why the log cannot be opened so; nothing is changed."""
        walk = self._walk(opening, first, makes_units=False)
        for _ in walk:
            await asyncio.sleep(0)
        try:
            await self._check(opening, walk.stop)
        except StoreDamaged as damage:
            return walk.stop.offset, damage
        return walk.stop.offset, None

    async def _note_lost(self, file: MappedFile, checkpoint: cp.Checkpoint, lost: int) -> None:
        """Write down where units are missing, until they are there again: the next start must know."""
        known = checkpoint.indexed_offset
        checkpoint.indexed_offset = lost if known is None else min(known, lost)
        cp.write_into(file.buffer, checkpoint)
        await file.sync()

    def _never_flushed(
        self, first: recovery.Segment, checkpoint: cp.Checkpoint, *, clean: bool
    ) -> bool:
        """Whether the first file is only what a power cut left of a log that was never flushed."""
        flushed = checkpoint.flushed_offset
        if flushed is None or flushed >= first.start:
            return False
        if clean or flushed:
            raise StoreDamaged(
                f"{first.path}: the files before it are missing, "
                f"but the log was durable up to {flushed}"
            )
        # A slave was killed before the mark knew where its log begins: what is there counted already.
        head = check_record(first.buffer, 0, len(first.buffer), first.start, check_crc=True)
        return head.size <= 0 or first.start != checkpoint.begin_offset

    def _refuse_if(self, checkpoint: cp.Checkpoint, end: int) -> None:
        flushed = checkpoint.flushed_offset
        if flushed is not None and flushed > end:
            raise StoreDamaged(
                f"{self._settings.store_path_commit_log}: no file is there, "
                f"but the log was durable up to {flushed}"
            )

    def _limit(self, checkpoint: cp.Checkpoint) -> int:
        """Where records end that queues may have."""
        bounded = self._settings.confirm_bounded
        return max(checkpoint.confirm_offset, 0) if bounded else recovery.NO_LIMIT

    def _first(self, opening: Opening, lost: int | None) -> int:
        """The file from which the log is walked."""
        segments, checkpoint = opening.segments, opening.checkpoint
        limit = self._limit(checkpoint)
        begin = limit if lost is None else min(limit, lost)
        if opening.clean:
            return recovery.start_after_clean_stop(segments, self._queues.indexed_end, begin)
        return recovery.start_after_crash(segments, checkpoint, begin)

    async def _check(
        self, opening: Opening, stop: recovery.Stop, indexed: int | None = None
    ) -> None:
        """Raise StoreDamaged where durable records would be lost by a cut there."""
        found, later = [*opening.segments, *opening.strays], None
        if opening.checkpoint.flushed_offset is None:
            later = await _search_later(found, stop.offset)
        recovery.check_stop(
            found, stop, opening.checkpoint, later, clean=opening.clean,
            indexed=self._queues.indexed_end if indexed is None else indexed,
        )  # fmt: skip

    async def _recover(self, opening: Opening) -> Loaded:
        segments, checkpoint, clean = opening.segments, opening.checkpoint, opening.clean
        limit, indexed = self._limit(checkpoint), self._queues.indexed_end
        first = self._first(opening, self._queues.lost_from)
        if not clean:
            # What the queues lost with the power lies behind the file's start.
            await self._queues.forget(segments[first].start)
        walk = self._walk(opening, first, makes_units=True)
        # The file was chosen because all before it is durable.
        known = max(checkpoint.flushed_offset or 0, segments[first].start)
        records, dispatched = await self._dispatch(walk, limit, self._flush(known))
        stop = walk.stop
        # Up to here only queues were changed, and they only name whole records.
        await self._check(opening, stop, indexed)
        await self._queues.cut(stop.offset)
        self._log.start_at(stop.offset)
        if not clean or checkpoint.flushed_offset is None:
            # Units that Java leaves where it cut its log are there after a stop in order, too.
            await self._queues.drop_strangers(self._log, clean=clean)
        if dispatched >= stop.offset:
            await self._queues.end_as_listed()
        await self._queues.sync()
        self._correct_confirm(checkpoint, stop.offset)
        erased = await self._log.cut(stop.offset, stop.offset)
        if self._log.empty:
            await self._queues.clear()
        return Loaded(clean, dispatched, stop.last_timestamp, records, erased)

    def _flush(self, durable: int) -> Flush:
        """What makes the log durable up to an offset; of what is, nothing is written twice."""

        async def flush(offset: int) -> None:
            nonlocal durable
            if offset > durable:
                await self._log.sync_again(durable, offset)
                durable = offset

        return flush

    def _walk(self, opening: Opening, first: int, *, makes_units: bool) -> recovery.Walk:
        return recovery.Walk(
            opening.segments,
            first,
            check_crc=self._settings.check_crc_on_recover,
            property_crc=self._settings.force_verify_prop_crc,
            open_queue_run=self._queues.open_queue_run if makes_units else None,
            limit=self._limit(opening.checkpoint),
            vouched=recovery.vouched(opening.checkpoint, clean=opening.clean),
        )

    async def _dispatch(self, walk: recovery.Walk, limit: int, flush: Flush) -> tuple[int, int]:
        """Walk to the end; records below the limit go into the queues.

        On a full disk the dispatcher does that once there is room: a store that did not open could
        not delete what has expired, either.

        Returns:
            How many records there are, and the end of the last that was dispatched.
        """
        records, dispatched, is_full = 0, walk.stop.offset, False
        for found in walk:
            await asyncio.sleep(0)  # others get their turn
            if isinstance(found, Run):
                records += found.records
                end = found.end
            else:
                records += 1
                end = found.offset + found.size
            if is_full:
                continue
            try:
                if isinstance(found, Run):
                    self._queues.put_queue_runs(found.queue_runs)
                elif end <= limit:
                    await self._queues.take(found, walk.buffer, flush)
            except DiskFull:
                is_full = True
                continue
            if end <= limit:
                dispatched = end
        # Blanks behind the last record are passed, too.
        if walk.stop.offset <= limit and not is_full:
            dispatched = walk.stop.offset
        return records, dispatched

    def _correct_confirm(self, checkpoint: cp.Checkpoint, end: int) -> None:
        if not self._settings.confirm_bounded:
            checkpoint.confirm_offset = end
            return
        checkpoint.confirm_offset = recovery.corrected_confirm(
            checkpoint.confirm_offset, min_offset=self._log.min_offset, end=end
        )

    async def _drop_late_indexes(self, checkpoint: cp.Checkpoint) -> None:
        """After a crash an index file that ends later than the checkpoint is not trusted."""
        directory = self._settings.path("index")
        names = filter(str.isdigit, await self._disk.list_dir(directory))
        usual = file_size(self._settings.max_hash_slot_num, self._settings.max_index_num)
        for name, size in (await file_sizes(self._disk, directory, names, usual)).items():
            path = f"{directory}/{name}"
            end = -1
            if size >= 40:
                file = self._disk.map_file(path, size, create=False)
                end = IndexFile(file.buffer, self._settings.max_hash_slot_num).header.end_timestamp
                file.close()
            if end < 0 or end > checkpoint.index_msg_timestamp:
                await self._disk.remove(path)


async def _search_later(segments: list[recovery.Segment], offset: int) -> Head | None:
    for found in recovery.search_later(segments, offset):
        if found is not None:
            return found
        await asyncio.sleep(0)
    return None
