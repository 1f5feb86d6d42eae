"""The write-ahead log on a disk: group commit, segments, compaction.

Everything that waits while a write is under way goes out as one frame with one fdatasync.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass

from rmqha.base.errors import DiskFailed
from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.events import HardState, Persist, SnapshotMeta
from rmqha.controller.raft.messages import Entry
from rmqha.runtime.ports import AppendFile, Disk

SEGMENT_SUFFIX = ".wal"


@dataclass(frozen=True, slots=True)
class WalContent:
    """What a node finds on disk when it starts."""

    hard_state: HardState
    base_index: int
    base_term: int
    entries: list[Entry]
    torn_bytes_cut: bool


class Wal:
    """One node's log on disk; one task writes.

    Args:
        disk: the Disk port.
        directory: the store.
        cluster, node: written into every segment and checked at each start.
        segment_bytes: a new segment is begun at this size.
        on_durable: called with the seq of the newest durable ``Persist``.
        on_failed: called once with the error; nothing is written afterwards.
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
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._cluster = cluster
        self._node = node
        self._segment_bytes = segment_bytes
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._hard_state = HardState()
        self._next_seq = 1
        self._segments: list[layout.Segment] = []
        self._file: AppendFile | None = None
        self._queue: list[layout.Record] = []
        self._queued_seq = 0
        self._resets: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._closing = False
        self._writer: asyncio.Task[None] | None = None
        self.frames_written = 0
        self.bytes_written = 0

    async def open(self, snapshot: SnapshotMeta) -> WalContent:
        """Read everything, mend a torn tail, and get ready to append.

        Raises:
            StoreCorrupted, StoreMismatch, DiskFailed: the store cannot be used; it is unchanged.
        """
        await self._disk.make_dirs(self._directory)
        names = [n for n in await self._disk.list_dir(self._directory) if _is_segment(n)]
        recovery = layout.Recovery(self._cluster, self._node)
        for name in names:
            data = await self._disk.read(self._path(name))
            recovery.read_segment(name, data, is_last=name == names[-1])
        found = recovery.result
        base_index, base_term, entries, restart = layout.join_snapshot(found, snapshot)
        if found.cut is not None:
            name, size = found.cut
            await self._disk.truncate(self._path(name), size)
        if found.empty_last is not None:
            await self._disk.remove(self._path(found.empty_last))
        self._hard_state = found.hard_state
        self._next_seq = found.next_seq
        self._segments = found.segments
        if self._segments:
            self._file = await self._disk.open_append(self._path(self._segments[-1].name))
        self._writer = asyncio.create_task(self._write_loop(), name="wal")
        if restart:
            await self.reset(base_index, base_term)
        return WalContent(found.hard_state, base_index, base_term, entries, found.cut is not None)

    def append(self, persist: Persist) -> None:
        """Queue one persist; ``on_durable`` tells when it is safe."""
        if persist.hard_state is not None:
            self._queue.append((layout.HARD, *persist.hard_state))
        self._queue.extend((layout.ENTRY, *entry) for entry in persist.entries)
        self._queued_seq = persist.seq
        self._wake.set()

    async def reset(self, index: int, term: int) -> None:
        """Restart the log behind a snapshot that is durable already.

        Raises:
            DiskFailed: the write failed.
        """
        done = asyncio.get_running_loop().create_future()
        self._queue.append((layout.RESET, index, term))
        self._resets.append(done)
        self._wake.set()
        await done

    async def compact(self, up_to_index: int) -> int:
        """Delete segments in which nothing after ``up_to_index`` is needed.

        Returns:
            How many were deleted.
        """
        removed = 0
        while len(self._segments) > 1 and self._segments[0].last_index <= up_to_index:
            await self._disk.remove(self._path(self._segments[0].name))
            del self._segments[0]
            removed += 1
        return removed

    async def close(self) -> None:
        """Write what is queued, then stop."""
        self._closing = True
        self._wake.set()
        if self._writer is not None:
            await self._writer
        if self._file is not None:
            await self._file.close()
            self._file = None

    # -- writing ---------------------------------------------------------------------------

    async def _write_loop(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue:
                    await self._write_queued()
                if self._closing:
                    return
        except DiskFailed as error:
            for waiting in self._resets:
                waiting.set_exception(error)
            self._on_failed(error)

    async def _write_queued(self) -> None:
        records, self._queue = self._queue, []
        seq = self._queued_seq
        resets, self._resets = self._resets, []
        if self._file is None or self._file.size >= self._segment_bytes:
            await self._new_segment()
        last_index = 0
        for record in records:
            if record[0] == layout.HARD:
                self._hard_state = HardState(*record[1:])  # type: ignore[arg-type]  # as queued
            elif record[0] == layout.ENTRY:
                last_index = max(last_index, int(record[1]))  # type: ignore[call-overload]
        self._segments[-1].last_index = max(self._segments[-1].last_index, last_index)
        try:
            await self._write_frame(records)
        except DiskFailed as error:
            for waiting in resets:
                waiting.set_exception(error)
            raise
        for waiting in resets:
            waiting.set_result(None)
        self._on_durable(seq)

    async def _write_frame(self, records: list[layout.Record]) -> None:
        frame = layout.encode_frame(
            layout.WAL_MAGIC, self._next_seq, layout.encode_records(records)
        )
        self._next_seq += 1
        assert self._file is not None
        await self._file.append_sync(frame)
        self.frames_written += 1
        self.bytes_written += len(frame)

    async def _new_segment(self) -> None:
        if self._file is not None:
            await self._file.close()
        name = f"{self._next_seq:020d}{SEGMENT_SUFFIX}"
        self._file = await self._disk.open_append(self._path(name))
        self._segments.append(layout.Segment(name, 0))
        await self._write_frame([layout.open_record(self._cluster, self._node, self._hard_state)])

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)


def _is_segment(name: str) -> bool:
    return name.endswith(SEGMENT_SUFFIX) and name.removesuffix(SEGMENT_SUFFIX).isdigit()
