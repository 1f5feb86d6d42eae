"""The write-ahead log on a disk: group commit, segments, compaction.

Everything that waits while a write is under way goes out as one frame with one fdatasync.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from msgspec import Struct

from rmqha.base.errors import DiskFailed, DiskFull, StoreCorrupted, StoreMismatch
from rmqha.base.ids import Term
from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.events import HardState, Persist, SnapshotMeta, Standing
from rmqha.controller.raft.messages import Entry
from rmqha.controller.raft.standing import standing_found
from rmqha.controller.raft.wal_layout import SEGMENT_SUFFIX
from rmqha.runtime.ports import AppendFile, Disk


class WalContent(Struct, frozen=True):
    """What a node finds on disk when it starts."""

    hard_state: HardState
    base_index: int
    base_term: Term
    entries: list[Entry]
    torn_bytes_cut: bool


class Wal:
    """One node's log on disk; one write at a time.

    Args:
        disk: the Disk port.
        directory: the store.
        cluster, node: written into every segment and checked at each start.
        segment_bytes: a new segment is begun at this size.
        forgiving: a damaged last frame is cut as a torn one is; for operators who know more.
        on_durable: called with the seq of the newest durable ``Persist``.
        on_failed: called once with the error; nothing is written afterwards.
        on_full: called when there was no space for a write; it waits for ``retry``.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        cluster: str,
        node: str,
        segment_bytes: int,
        on_durable: Callable[[int], None],
        on_failed: Callable[[DiskFailed], None],
        on_full: Callable[[DiskFull], None] | None = None,
        forgiving: bool = False,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._cluster = cluster
        self._node = node
        self._segment_bytes = segment_bytes
        self._forgiving = forgiving
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._on_full = on_full
        self._hard_state = HardState()
        self._next_seq = 1
        self._segments: list[layout.Segment] = []
        self._file: AppendFile | None = None
        self._opening_bytes = 0
        self._queue: list[layout.Record] = []
        self._queued_seq = 0
        self._resets: list[asyncio.Future[None]] = []
        self._writing = False
        self._full = False
        self._compacting = False
        self._compact_to = 0
        self._may_block = False
        self._failed: DiskFailed | None = None
        self._closed: asyncio.Future[None] | None = None
        self._roller: asyncio.Task[None] | None = None
        self.frames_written = 0
        self.bytes_written = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for the disk."""
        return not self._writing and not self._queue

    def retry(self) -> None:
        """There may be space again: write what waits."""
        self._full = False
        self._pump()

    async def open(
        self,
        snapshot: SnapshotMeta,
        fresh: Standing = Standing(),  # noqa: B008 - an immutable tuple
        unknown: Standing = Standing(),  # noqa: B008 - an immutable tuple
    ) -> WalContent:
        """Read everything, cut a torn tail, and get ready to append.

        Args:
            snapshot: the newest one, which is durable.
            fresh: the standing of a store that is made here and now.
            unknown: the standing of a store of format 1 that was used (``standing_found``).

        Raises:
            StoreCorrupted, StoreMismatch, DiskFailed: the store cannot be used; it is unchanged.
        """
        await self._disk.make_dirs(self._directory)
        names = [n for n in await self._disk.list_dir(self._directory) if is_segment(n)]
        recovery = layout.Recovery(self._cluster, self._node, forgiving=self._forgiving)
        for name in names:
            data = await read_durable(self._disk, self._path(name))
            recovery.read_segment(name, data, is_last=name == names[-1])
        found = recovery.result
        if snapshot.last_index > 0 and not found.segments:
            raise StoreCorrupted(f"there is a snapshot at {snapshot.last_index}, but no log")
        base_index, base_term, entries, restart = layout.join_snapshot(found, snapshot)
        if names and not entries and not base_index and not is_first(names[0]):
            # Its opening record alone says nothing of what was before it.
            raise StoreCorrupted(
                f"the log begins with {names[0]}, and what was before it is missing"
            )
        if found.end is not None:
            # Also where nothing is to be cut: it counts from here on. A process that was killed may have
            # written its last frame and not synced it, and of one that ended by a failed sync no other
            # sync brings what it had written to the disk.
            name, size = found.end
            whole = await read_durable(self._disk, self._path(name))
            await self._disk.write_again(self._path(name), whole[:size])
        if found.empty_last is not None:
            await self._disk.remove(self._path(found.empty_last))
        standing = standing_found(found, snapshot.last_index, fresh, unknown)
        found.hard_state = found.hard_state._replace(standing=standing)
        self._hard_state = found.hard_state
        self._next_seq = found.next_seq
        self._segments = found.segments
        if self._segments and not found.old_last:
            path = self._path(self._segments[-1].name)
            self._file = await self._disk.open_append(path, self._segment_bytes)
        else:
            await self._new_segment()
        if restart:
            await self.reset(base_index, base_term)
        return WalContent(found.hard_state, base_index, base_term, entries, found.torn)

    async def readable(self) -> list[Entry]:
        """What a damaged log still says, which proves nothing; it is not changed.

        Raises:
            DiskFailed: it cannot be read at all.
        """
        recovery = layout.Recovery(self._cluster, self._node, forgiving=True)
        names = [n for n in await self._disk.list_dir(self._directory) if is_segment(n)]
        try:
            for name in names:
                data = await read_durable(self._disk, self._path(name))
                recovery.read_segment(name, data, is_last=name == names[-1])
        except (StoreCorrupted, StoreMismatch):
            pass  # behind the damage nothing is believed
        return recovery.result.entries

    async def start_anew(self, hard_state: HardState) -> None:
        """Begin an empty log, where all that was there has been set aside.

        Raises:
            DiskFailed: it cannot be written.
        """
        self._hard_state = hard_state
        await self._new_segment()

    def append(self, persist: Persist, *, may_block: bool = False) -> None:
        """Queue one persist; ``on_durable`` tells when it is safe.

        With ``may_block`` this node has nothing better to do than wait for a quick disk.
        """
        self._may_block = may_block
        if persist.hard_state is not None:
            self._queue.append(layout.hard_record(persist.hard_state))
        self._queue.extend(
            (layout.ENTRY, one.log_index, one.term, one.data) for one in persist.entries
        )
        self._queued_seq = persist.seq
        self._pump()

    async def reset(self, index: int, term: Term) -> None:
        """Restart the log behind a snapshot that is durable already.

        Raises:
            DiskFailed: the write failed.
        """
        done = asyncio.get_running_loop().create_future()
        self._queue.append((layout.RESET, index, term))
        self._resets.append(done)
        self._pump()
        await done

    async def compact(self, up_to_index: int) -> int:
        """Delete segments in which nothing after ``up_to_index`` is needed.

        Returns:
            How many were deleted; 0 when another call is at it, which then goes on to here.
        """
        self._compact_to = max(self._compact_to, up_to_index)
        if self._compacting:
            return 0
        self._compacting = True
        removed = 0
        try:
            while len(self._segments) > 1 and self._segments[0].last_index <= self._compact_to:
                await self._disk.remove(self._path(self._segments[0].name))
                del self._segments[0]
                removed += 1
        finally:
            self._compacting = False
        return removed

    async def close(self) -> None:
        """Write what is queued, then stop."""
        self._closed = asyncio.get_running_loop().create_future()
        self._pump()
        await self._closed
        if self._file is not None:
            await self._file.close()
            self._file = None

    # -- writing ---------------------------------------------------------------------------

    def _pump(self) -> None:
        """Write what is queued, unless a write is under way: its end comes back here."""
        stuck = self._failed is not None or self._full
        if self._writing or not self._queue or stuck or self._file is None:
            self._idle()
            return
        self._writing = True
        # One that holds its opening frame alone stays: a new one would be as full, and so on for ever.
        if self._file.size >= max(self._segment_bytes, self._opening_bytes + 1):
            self._roller = asyncio.get_running_loop().create_task(self._roll(), name="new segment")
            return
        records, self._queue = self._queue, []
        seq = self._queued_seq
        resets, self._resets = self._resets, []
        self._note(records)
        frame = self._frame(records)

        def done(error: DiskFailed | None) -> None:
            self._writing = False
            if isinstance(error, DiskFull):
                self._queue[:0] = records
                self._resets[:0] = resets
                self._next_seq -= 1
                self._wait_for_space(error)
                return
            if error is not None:
                self._fail(error, resets)
                return
            for waiting in resets:
                if not waiting.done():
                    waiting.set_result(None)
            # What this sets free is handed on before the next write takes the processor.
            self._on_durable(seq)
            self._pump()

        self._file.append(frame, done, may_block=self._may_block)

    def _note(self, records: list[layout.Record]) -> None:
        """Keep what a new segment's opening record and compaction need to know."""
        segment = self._segments[-1]
        for record in records:
            if record[0] == layout.ENTRY:
                segment.last_index = max(segment.last_index, record[1])  # type: ignore[call-overload]  # an entry's index
            elif record[0] == layout.HARD:
                self._hard_state = HardState(*record[1:])  # type: ignore[arg-type]  # as queued

    def _frame(self, records: list[layout.Record]) -> bytes:
        frame = layout.encode_frame(
            layout.WAL_MAGIC, self._next_seq, layout.encode_records(records)
        )
        self._next_seq += 1
        self.frames_written += 1
        self.bytes_written += len(frame)
        return frame

    async def _roll(self) -> None:
        """Begin a new segment, then go on writing."""
        try:
            await self._new_segment()
        except DiskFull as error:
            self._writing = False
            self._wait_for_space(error)
            return
        except DiskFailed as error:
            self._writing = False
            self._fail(error, [])
            return
        self._writing = False
        self._pump()

    async def _new_segment(self) -> None:
        name = f"{self._next_seq:020d}{SEGMENT_SUFFIX}"
        file = await self._disk.open_append(self._path(name), self._segment_bytes)
        opening = layout.open_record(self._cluster, self._node, self._hard_state)
        try:
            await file.append_sync(self._frame([opening]))
        except DiskFull:
            self._next_seq -= 1
            await file.close()
            raise
        before, self._file, self._opening_bytes = self._file, file, file.size
        if before is not None:
            await before.close()
        # Not before it is durable: compaction may delete all segments but the last, and only this
        # record repeats term and vote.
        self._segments.append(layout.Segment(name, 0))

    def _wait_for_space(self, error: DiskFull) -> None:
        self._full = True
        self._idle()
        if self._on_full is not None:
            self._on_full(error)

    def _fail(self, error: DiskFailed, resets: list[asyncio.Future[None]]) -> None:
        self._failed = error
        for waiting in [*resets, *self._resets]:
            if not waiting.done():
                waiting.set_exception(error)
        self._resets = []
        self._idle()
        self._on_failed(error)

    def _idle(self) -> None:
        if not self._writing and self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)


async def read_durable(disk: Disk, path: str) -> bytes:
    """A file that was durable once.

    Raises:
        StoreCorrupted: the disk cannot read it any more.
    """
    try:
        return await disk.read(path)
    except DiskFailed as error:
        raise StoreCorrupted(f"{os.path.basename(path)} cannot be read: {error}") from error


def is_segment(name: str) -> bool:
    """Whether a file of a store is a segment of its log."""
    return name.endswith(SEGMENT_SUFFIX) and name.removesuffix(SEGMENT_SUFFIX).isdigit()


def is_first(name: str) -> bool:
    """Whether a segment is the first that a log ever had."""
    return int(name.removesuffix(SEGMENT_SUFFIX)) == 1
