"""The checkpoint's file of an open store: what is known to be durable, and when it is written down.

``store/checkpoint.py`` has the layout and what Java makes of it.
"""

from __future__ import annotations

from rmqha.base.errors import DiskFull
from rmqha.runtime.ports import Disk, MappedFile
from rmqha.store import checkpoint as cp
from rmqha.store.aio.writes import Writes
from rmqha.store.settings import StoreSettings

CHECKPOINT = "checkpoint"


class CheckpointFile:
    """What one store vouches for.

    Attributes:
        content: as it is to be written next; whoever makes something durable notes it there.
        durable_end: whole records before it are durable: a record that is half there may be cut
            at recovery.
        indexed_end: units of records before it are durable.
        start_unsaved: the log begins somewhere else than the file on disk knows.
        damage_unsaved: what is durable is damaged where the file on disk does not vouch for it.
    """

    def __init__(self, disk: Disk, settings: StoreSettings, writes: Writes) -> None:
        self._disk = disk
        self._settings = settings
        self._writes = writes
        self._file: MappedFile | None = None
        self.content = cp.Checkpoint()
        self.durable_end = 0
        self.indexed_end = 0
        self.start_unsaved = self.damage_unsaved = False
        self._starts = 0

    async def open(self) -> MappedFile:
        """Map the file, one that is too short filled up with zeros; an empty one when there is none.

        Raises:
            DiskFailed: it cannot be used.
        """
        path = self._settings.path(CHECKPOINT)
        names = await self._disk.list_dir(self._settings.store_path_root_dir)
        size = await self._disk.file_size(path) if CHECKPOINT in names else cp.SIZE
        if not size:
            # A power cut took its content before the first sync.
            await self._disk.remove(path)
        elif size < cp.SIZE:
            found = await self._disk.read(path)
            await self._disk.write_atomic(path, found.ljust(cp.SIZE, b"\0"))
        self._file = self._disk.map_file(path, cp.SIZE, create=True)
        return self._file

    async def mark_in_use(self, process_id: int, *, clean: bool) -> None:
        """Write the mark that a stop in order removes; ``clean`` says that there is none yet.

        Only an open store deletes what has expired, so a full disk does not keep it shut: the mark of
        before says the same, and an empty one takes no block.

        Raises:
            DiskFailed: it cannot be written.
        """
        path = self._settings.path(cp.ABORT)
        try:
            await self._disk.write_atomic(path, str(process_id).encode())
        except DiskFull:
            if clean:
                await self._disk.write_atomic(path, b"")

    def flushed(self, whole_end: int, timestamp: int, *, is_damaged: bool) -> None:
        """Whole records before ``whole_end`` are durable, the newest stored at ``timestamp``.

        Args:
            is_damaged: what stands there is durable as well, and no record. It is vouched for all the
                same: recovery would take it for a torn tail, and cut what is durable behind it.
        """
        durable_end = whole_end + is_damaged
        self.damage_unsaved |= is_damaged and durable_end > self.durable_end
        self.durable_end = durable_end
        self.content.physic_msg_timestamp = timestamp

    def started_at(self, offset: int) -> None:
        """The empty log begins at ``offset``: recovery must be able to tell its first file from
        what a power cut left."""
        self.durable_end = self.indexed_end = offset
        self.start_unsaved = True
        self._starts += 1
        # Only a note, which a kill leaves in memory: no page of it says that anything is durable.
        self.content.begin_offset = offset
        if self._file is not None:
            cp.write_into(self._file.buffer, self.content)

    def cut(self, start: int) -> None:
        """Vouch for nothing from ``start`` on."""
        self.durable_end = min(self.durable_end, start)
        self.damage_unsaved = False
        if self.content.begin_offset is not None and start <= self.content.begin_offset:
            self.content.begin_offset = None
        self.indexed_end = min(self.indexed_end, start)

    def queues_flushed(self, end: int, timestamp: int) -> None:
        """Units of records before ``end`` are durable, the newest stored at ``timestamp``."""
        self.indexed_end = end
        self.content.logics_msg_timestamp = timestamp

    def indexed(self, timestamp: int) -> None:
        """Index files hold all that was stored before ``timestamp``."""
        self.content.index_msg_timestamp = timestamp

    async def sync(self, confirm_offset: int) -> None:
        """Write the file if it says something new; the caller holds the queues' upkeep lock.

        Args:
            confirm_offset: of the durable log; beyond it this would be a promise that a crash can
                break.

        Raises:
            DiskFailed: it cannot be written.
        """
        starts, durable_end = self._starts, self.durable_end
        await self._write(confirm_offset, durable_end, self.indexed_end)
        if starts == self._starts:
            self.start_unsaved = False
        if durable_end == self.durable_end:
            self.damage_unsaved = False

    async def vouch_for_nothing(self) -> None:
        """Write that nothing is known to be durable, while the log changes where it begins.

        Of files of before and files behind them recovery would say that some between are missing.

        Raises:
            DiskFailed: it cannot be written.
        """
        await self._write(0, 0, 0)

    async def _write(self, confirm_offset: int, durable_end: int, indexed_end: int) -> None:
        file, content = self._file, self.content
        if file is None:
            return
        content.confirm_offset = confirm_offset
        content.flushed_offset, content.indexed_offset = durable_end, indexed_end
        before = bytes(file.buffer[:128])
        cp.write_into(file.buffer, content)
        if before != file.buffer[:128]:
            with self._writes.under_way():
                await file.sync()

    def close(self) -> None:
        """Unmap the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
