"""The whole store: commit log, queues, checkpoint, and the tasks that keep them durable.

It satisfies ``ReplicatedLog`` (``rmqha/ha/ports.py``) by shape. Everything reaches the machine
through the Clock and Disk ports; who opens a real directory locks it first (``lock_first_byte``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rmqha.base.errors import DiskFailed, RmqhaError, StoreDamaged
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Disk, DiskUse
from rmqha.store import batches
from rmqha.store.aio.block_summing import FOLDER, BlockSumming
from rmqha.store.aio.checkpoint_file import CheckpointFile
from rmqha.store.aio.cold_reads import ColdReads
from rmqha.store.aio.commit_log import WALKED_MAX, AppendResult, CommitLog
from rmqha.store.aio.consume_queues import ConsumeQueues
from rmqha.store.aio.dispatcher import Dispatcher
from rmqha.store.aio.expiring import Expiring
from rmqha.store.aio.flush import Flusher, damage_at
from rmqha.store.aio.index_files import IndexFiles
from rmqha.store.aio.loading import Loaded, Loader
from rmqha.store.aio.mending import Mending
from rmqha.store.aio.metadata_reader import dispatched_since
from rmqha.store.aio.plain_appends import PlainAppends
from rmqha.store.aio.proving import Proving
from rmqha.store.aio.pulling import Pulling
from rmqha.store.aio.queue_lists import QueueLists
from rmqha.store.aio.reader import Reader
from rmqha.store.aio.room import Room
from rmqha.store.aio.writes import Writes
from rmqha.store.checkpoint import ABORT
from rmqha.store.consume_queue import topic_key
from rmqha.store.metadata_records import METADATA_TOPIC
from rmqha.store.record import INNER_BATCH, TRANSACTION_MASK, Head, Message
from rmqha.store.settings import StoreSettings


class MessageStore:
    """One broker's store. Call :meth:`open` first, :meth:`close` last.

    Args:
        clock, disk: the ports.
        log: where facts are written for people.
        process_id: goes into the ``abort`` file, as Java's does.
        on_failed: called once when the store cannot go on; every write is refused from then on.
        on_prefix_cut: called with the new ``min_offset`` after expired files were deleted.
        used_ratio: shares of the disks in use; None leaves them out of account.

    Attributes:
        commit_log, queues, flusher, dispatcher, plain, reader, pulling: the parts; ``reader`` is
            the way to read, ``pulling`` that of consumers, ``plain`` the quick way to write what
            most messages are.
        mending: records that are not whole.
        cold: the way to read what may have left the memory.
        writes: what waits for the disk, and for how long.
        room: at the log's end, for those who write many messages.
        expiring: deletes what has expired.
        loaded: what :meth:`open` found.
        failed: what stopped the store, or None.
        on_flushed: with SYNC_FLUSH, told how far the log is durable.
        on_truncated: told where the log ends after a cut, and where it ended before; the cut ends
            when it returns.
    """

    def __init__(
        self, clock: Clock, disk: Disk, settings: StoreSettings, log: Logger, *,
        process_id: int = 0,
        on_failed: Callable[[RmqhaError], None] | None = None,
        on_prefix_cut: Callable[[int], None] | None = None,
        used_ratio: DiskUse | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self._clock = clock
        self._disk = disk
        self._log = log
        self._process_id = process_id
        self._on_failed = on_failed
        self._bounded = settings.confirm_bounded
        self._confirm = self._cuts = 0
        self._tasks = Tasks(log, self._task_failed)
        self.failed: RmqhaError | None = None
        self.on_truncated: Callable[[int, int], Awaitable[None]] | None = None
        self.on_flushed: Callable[[int], None] | None = None
        self.loaded: Loaded | None = None
        self.writes = Writes(clock)
        self._checkpoint = CheckpointFile(disk, settings, self.writes)
        self.commit_log = CommitLog(disk, clock, settings)
        self.room = Room(clock, self.commit_log, self.writes, log)
        self.mending = Mending(clock, log)
        self.cold = ColdReads(self.commit_log, self.mending, settings.unchecked_tail_bytes)
        summing = BlockSumming(disk, settings.path(FOLDER), self.commit_log, self.cold, log)
        self.proving = Proving(self.commit_log, self.cold, summing)
        self.queues = ConsumeQueues(disk, settings, log)
        self._lists = QueueLists(disk, settings, self.queues, log)
        self.flusher = Flusher(
            self.commit_log, self.writes, on_flushed=self._flushed, on_failed=self._fail
        )
        self.dispatcher = Dispatcher(
            self.commit_log, self.queues, settings, self.cold, self.room, log,
            limit=self.limit, flush=self.flusher.flush, on_failed=self._fail,
        )  # fmt: skip
        self.indexes = IndexFiles(
            clock, disk, self.commit_log, settings, self.cold, self.room, log,
            limit=lambda: self.dispatcher.offset, on_full=self._checkpoint.indexed,
        )  # fmt: skip
        self.expiring = Expiring(
            clock, log, settings, self.commit_log, self.queues, self.indexes, self.dispatcher,
            self.flusher, self.mending, vouch=self._write_checkpoint,
            on_prefix_cut=on_prefix_cut, disk_use=used_ratio,
        )  # fmt: skip
        self.plain = PlainAppends(
            self.commit_log, self.queues, self.room, check_alive=self.check_alive,
            on_appended=None if self._bounded else self.dispatcher.wake,
        )  # fmt: skip
        self.reader = Reader(self.commit_log, self.queues, self.indexes, self.limit, self.cold)
        self.pulling = Pulling(self.commit_log, self.queues, self.limit, self.cold)

    # -- life

    async def open(self) -> Loaded:
        """Load, recover, mark the store as in use, and start the background work.

        Raises:
            StoreMismatch, StoreDamaged, DiskFailed: see ``Loader.load``.
        """
        root = self.settings.store_path_root_dir
        await self._disk.make_dirs(root)
        await self._disk.make_dirs(self.settings.store_path_commit_log)
        clean = ABORT not in await self._disk.list_dir(root)
        file = await self._checkpoint.open()
        loader = Loader(self._disk, self.settings, self.commit_log, self.queues, self._lists)
        known, found = await loader.load(file, clean=clean)
        self._checkpoint.content = known
        end = self.commit_log.max_offset
        self._confirm = max(0, known.confirm_offset)
        self.commit_log.last_timestamp = max(found.last_timestamp, known.physic_msg_timestamp)
        begin = max(0, self.commit_log.min_offset)
        if not clean and known.flushed_offset is not None:
            await self.commit_log.sync_again(max(begin, known.flushed_offset), end)
        await self.commit_log.sync(begin, end)
        self.flusher.flushed_offset = self._checkpoint.durable_end = end
        self.cold.from_disk_to = end
        await self.proving.summing.open(end)
        self.dispatcher.last_timestamp = known.logics_msg_timestamp
        self.dispatcher.restart_at(min(found.dispatched, end))
        self._checkpoint.indexed_end = self.dispatcher.offset
        await self.queues.rebuild_in_turns(self.commit_log, self.dispatcher.offset)
        await self.expiring.make_room()
        await self.indexes.load()
        await self._write_checkpoint()
        await self._checkpoint.mark_in_use(self._process_id, clean=clean)
        await self._lists.remove()
        self.loaded, self.expiring.is_served = found, True
        self._log.log(
            "info", "store_opened", clean=clean, min_offset=self.min_offset, max_offset=end,
            confirm_offset=self._confirm, records=found.records, cut_bytes=found.cut_bytes,
        )  # fmt: skip
        self._start_tasks()
        return found

    def _start_tasks(self) -> None:
        settings = self.settings
        self._tasks.start(self.dispatcher.run(), name="dispatch")
        if settings.message_index_enable:
            self.dispatcher.on_dispatched = self.indexes.wake
            self.indexes.wake()
            self._tasks.start(self.indexes.run(), name="index")
        for name, period_ms, work in (
            ("flush_commit_log", settings.flush_interval_commit_log, self._flush_and_sum),
            ("flush_queues", settings.flush_interval_consume_queue, self.flush_queues),
            ("prepare_file", settings.flush_interval_commit_log, self.commit_log.prepare),
            ("flush_checkpoint", settings.flush_checkpoint_interval_ms, self._write_checkpoint),
            ("expire", settings.expire_interval_ms, self.expiring.expire),
        ):
            self._tasks.start(self._repeat(period_ms, work), name=name)

    async def _repeat(self, period_ms: int, work: Callable[[], object]) -> None:
        while self.failed is None:
            await self._clock.sleep(period_ms)
            try:
                result = work()
                if asyncio.iscoroutine(result):
                    await result
            except DiskFailed as error:
                self._fail(error)

    async def close(self) -> None:
        """Flush everything and unmark the store; after a failure the mark stays."""
        await self._tasks.close()
        self.room.close()
        if self.loaded is not None:
            try:
                if self.failed is None:
                    await self._close_cleanly()
                elif isinstance(self.failed, StoreDamaged):
                    # The disk is well: what lies behind the damage may have been acknowledged.
                    await self.flush_all()
                    await self._write_checkpoint()
            except DiskFailed as error:
                self._fail(error)
        self.commit_log.close()
        self.queues.close()
        self.indexes.close()
        self._checkpoint.close()

    async def _close_cleanly(self) -> None:
        await self._flush_and_sum()
        await self.proving.summing.finish(self.flushed_offset)
        await self.dispatcher.finish()
        await self.flush_queues()
        if self.settings.message_index_enable:
            await self.indexes.finish()
            indexed = self._checkpoint.content.index_msg_timestamp
            self._checkpoint.indexed(max(indexed, await self.indexes.sync()))
        await self._write_checkpoint()
        if (
            self.commit_log.valid_end(self.dispatcher.offset, self.limit())
            <= self.dispatcher.offset
        ):
            await self._lists.write(self._checkpoint.content, self.commit_log.min_offset)
            await self._disk.remove(self.settings.path(ABORT))

    def _fail(self, error: RmqhaError) -> None:
        if self.failed is not None:
            return
        self.failed = error
        self.plain.has_stopped = True
        self._log.log("error", "store_failed", error=str(error))
        if self._on_failed is not None:
            self._on_failed(error)

    def _task_failed(self, error: BaseException) -> None:
        self._fail(error if isinstance(error, RmqhaError) else RmqhaError(repr(error)))

    def check_alive(self) -> None:
        """Raise DiskFailed once the store has stopped."""
        if self.failed is not None:
            raise DiskFailed(f"the store has stopped: {self.failed}") from self.failed

    # -- writing

    def append(self, message: Message, *, own: bool = False) -> AppendResult:
        """Write one message to the page cache; it counts as stored after ``flush(result.end)``.

        Args:
            own: see ``CommitLog.append``.

        Raises:
            MessageIllegal: the format or the settings cannot hold it; nothing was written.
            DiskFailed: the disk is full, or the store has stopped; nothing was written.
        """
        if self.failed is not None:
            self.check_alive()
        begun_ms = self._clock.now_ms()
        key = (topic_key(message.topic), message.queue_id)
        table = self.queues.next_offsets
        if message.sys_flag & TRANSACTION_MASK in (0x4, 0xC):
            result = self.commit_log.append(message, 0, own=own)
        else:
            base = table[key]
            count = 1
            if message.sys_flag & INNER_BATCH or b"INNER_NUM\x01" in message.properties:
                count = batches.inner_count(message)
                if message.sys_flag & INNER_BATCH:
                    message = batches.with_inner_base(message, base)
            result = self.commit_log.append(message, base, own=own)
            table[key] = base + count
            if message.topic == METADATA_TOPIC:
                self.queues.end_numbers(message.properties)
        self.room.wrote(begun_ms)
        if not self._bounded:
            self.dispatcher.wake()
        return result

    def append_batch(self, batch: Message) -> list[AppendResult]:
        """Write the messages of a client batch, all or none.

        Raises:
            MessageIllegal, DiskFailed: as :meth:`append`.
        """
        self.check_alive()
        begun_ms = self._clock.now_ms()
        messages = batches.split_client_batch(batch, messages_max=self.settings.client_batch_max)
        key = (topic_key(batch.topic), batch.queue_id)
        base = self.queues.next_offsets[key]
        results = self.commit_log.append_batch(messages, base)
        self.queues.next_offsets[key] = base + len(results)
        self.room.wrote(begun_ms)
        if not self._bounded:
            self.dispatcher.wake()
        return results

    # -- the ReplicatedLog port

    @property
    def file_size(self) -> int:
        """The setting ``mappedFileSizeCommitLog`` in bytes."""
        return self.commit_log.file_size

    @property
    def min_offset(self) -> int:
        """First byte of the first file; -1 without one."""
        return self.commit_log.min_offset

    @property
    def max_offset(self) -> int:
        """The next byte to be written."""
        return self.commit_log.max_offset

    @property
    def flushed_offset(self) -> int:
        """Everything before it is durable."""
        return self.flusher.flushed_offset

    @property
    def damaged_at(self) -> int | None:
        """See ``ReplicatedLog.damaged_at``."""
        damage = damage_at(self.commit_log, self.commit_log.whole_end())
        return None if damage is None else damage.offset

    @property
    def dispatched_offset(self) -> int:
        """Records before it are in the queues."""
        return self.dispatcher.offset

    @property
    def confirm_offset(self) -> int:
        """What consumers may see ends here.

        In controller mode it is what :meth:`set_confirm_offset` set; else everything that is
        stored: the flushed log with SYNC_FLUSH, the written one without.
        """
        return self.limit()

    def limit(self) -> int:
        """The confirm offset, never beyond the log's end."""
        if self._bounded:
            return min(self._confirm, self.commit_log.max_offset)
        if self.settings.sync_flush:
            return self.flusher.flushed_offset
        return self.commit_log.max_offset

    def set_confirm_offset(self, offset: int) -> None:
        """Move it, at most to ``max_offset``: bytes yet to come may be another master's."""
        self._confirm = max(0, min(offset, self.commit_log.max_offset))
        self.dispatcher.wake()

    def readable(self, offset: int, limit: int) -> int:
        """See ``ReplicatedLog.readable``."""
        return self.commit_log.readable(offset, limit)

    def view(self, offset: int, length: int) -> memoryview:
        """See ``ReplicatedLog.view``; raises ValueError for bytes that are not there."""
        return self.commit_log.view(offset, length)

    def is_cold(self, offset: int, length: int) -> bool:
        """See ``ReplicatedLog.is_cold``."""
        return self.cold.is_cold(offset, offset + length)

    async def fetch(self, offset: int, length: int) -> None:
        """See ``ReplicatedLog.fetch``; raises DiskFailed."""
        await self.cold.fetch([(offset, offset + length)])

    def is_proven(self, offset: int, length: int) -> bool:
        """See ``ReplicatedLog.is_proven``."""
        return self.proving.is_proven(offset, length)

    async def prove(self, offset: int, length: int) -> bool:
        """See ``ReplicatedLog.prove``; raises DiskFailed."""
        return await self.proving.prove(offset, length)

    def reserve(self, offset: int, length: int) -> memoryview:
        """See ``ReplicatedLog.reserve``.

        An empty log begins at a file's start only: recovery reads the first file from its first
        byte. Raises ValueError otherwise, and DiskFailed when the disk is full.
        """
        if self.failed is not None:
            self.check_alive()
        return self.commit_log.reserve(offset, length)

    def write(self, offset: int, data: memoryview) -> None:
        """See ``ReplicatedLog.write``; raises DiskFailed."""
        self.commit_log.write(offset, data)

    def received(self, offset: int, length: int) -> None:
        """See ``ReplicatedLog.received``."""
        if self.commit_log.empty and offset != self.commit_log.max_offset:
            # An empty log begins where its master's does.
            self.flusher.flushed_offset = offset
            self._checkpoint.started_at(offset)
            self.dispatcher.restart_at(offset)
        self.commit_log.received(offset, length)
        self.dispatcher.wake()

    async def flush_all(self) -> int:
        """Make all that is written durable, as :meth:`flush`."""
        return await self.flush(self.commit_log.max_offset)

    async def flush(self, offset: int) -> int:
        """See ``ReplicatedLog.flush``; raises DiskFailed."""
        while self._checkpoint.start_unsaved:
            await self._write_checkpoint()
        reached = await self.flusher.flush(offset)
        if self._checkpoint.damage_unsaved:
            # Whoever acknowledges what lies behind it has a store that does not cut it.
            await self._write_checkpoint()
        return reached

    def valid_end(self, start: int, end: int) -> int:
        """See ``ReplicatedLog.valid_end``; no further than some thousand records at a time."""
        return self.commit_log.valid_end(start, end, count_max=WALKED_MAX)

    async def rewrite(self, offset: int, record: bytes) -> None:
        """Put a whole record in the place of one that is damaged, durably.

        Raises:
            DiskFailed: the store has stopped.
        """
        self.check_alive()
        try:
            with self.writes.under_way():
                self.commit_log.write(offset, memoryview(record))
                await self.commit_log.sync(offset, offset + len(record))
                self.proving.summing.rewritten(offset, offset + len(record))
        except DiskFailed as error:
            self._fail(error)
            raise

    async def wait_dispatched(self, offset: int) -> None:
        """See ``ReplicatedLog.wait_dispatched``."""
        await self.dispatcher.wait(offset)

    async def rebuild_queue_offsets(self) -> None:
        """See ``ReplicatedLog.rebuild_queue_offsets``."""
        await self.queues.rebuild_in_turns(self.commit_log, self.dispatcher.offset)

    async def truncate(self, offset: int) -> None:
        """See ``ReplicatedLog.truncate``.

        The order makes it safe at any point of a crash: the checkpoint stops vouching for the
        cut bytes, the queues forget them, then the newest files go, then the rest is erased. A
        cut at the end still erases bytes that were reserved and never counted as received.

        Raises:
            DiskFailed: the store has stopped.
        """
        self.check_alive()
        log = self.commit_log
        if offset >= log.max_offset and not log.has_leftovers:
            return
        before = log.max_offset
        offset = min(offset, before)
        try:
            async with self.dispatcher.lock, self.queues.upkeep, self.flusher.lock:
                with self.writes.under_way():
                    await self._truncate(offset)
        except DiskFailed as error:
            self.flusher.fail(error)
            raise
        if self.on_truncated is not None:
            await self.on_truncated(offset, before)

    async def _truncate(self, offset: int) -> None:
        log, damaged_at = self.commit_log, self.damaged_at
        self.mending.cut(offset)
        self.cold.from_disk_to = min(self.cold.from_disk_to, offset)
        self._confirm = min(self._confirm, offset)
        self.flusher.flushed_offset = min(self.flusher.flushed_offset, offset)
        start = await log.record_start(offset, self.dispatcher.offset)
        # A topic's queues went with the record that ended it; without the record they come back.
        revived = any(one.ends for one in dispatched_since(log, self.queues, start))
        revived |= self.queues.cut_anew(start)
        restart = max(0, log.min_offset) if revived else start
        # In one turn: a sync of the queues that began before has nothing to say of them now.
        self._cuts += 1
        self._checkpoint.cut(start)
        self._checkpoint.indexed_end = min(self._checkpoint.indexed_end, restart)
        self.dispatcher.restart_at(min(self.dispatcher.offset, restart))
        await self._sync_checkpoint()
        await self.queues.cut(start)
        self.indexes.cut(start)
        await log.cut(offset, start)
        await self.proving.cut(offset)
        if log.empty:
            await self.queues.clear()
        await self.queues.rebuild_in_turns(log, self.dispatcher.offset)
        # What is cut with damage may be durable and acknowledged.
        level = "info" if damaged_at is None or damaged_at < offset else "warning"
        self._log.log(level, "log_truncated", offset=offset)

    # -- upkeep

    def _flushed(self, whole_end: int, timestamp: int, damage: Head | None) -> None:
        self._checkpoint.flushed(whole_end, timestamp, is_damaged=damage is not None)
        if damage is not None:
            self.mending.met(damage.offset, damage.reason)
        if self.settings.sync_flush:
            self.dispatcher.wake()
            if self.on_flushed is not None:
                self.on_flushed(self.flushed_offset)

    async def _flush_and_sum(self) -> None:
        await self.flush_all()
        await self.proving.summing.sum_up(self.flushed_offset, self.dispatcher.offset)

    async def flush_queues(self) -> None:
        """Make all queues durable; raises DiskFailed.

        A cut does not wait for it, and then it says nothing of what is durable.
        """
        end, timestamp = self.dispatcher.offset, self.dispatcher.last_timestamp
        cuts = self._cuts
        with self.writes.under_way():
            await self.queues.sync()
        if cuts == self._cuts:
            self._checkpoint.queues_flushed(end, timestamp)

    async def _write_checkpoint(self) -> None:
        async with self.queues.upkeep:
            whole = self.commit_log.whole_end()
            if whole <= self.flusher.flushed_offset:
                # The flush of a flood may have stopped short of it.
                self._checkpoint.durable_end = max(self._checkpoint.durable_end, whole)
            await self._sync_checkpoint()

    async def _sync_checkpoint(self) -> None:
        """Write the checkpoint if it changed; the caller holds the upkeep lock.

        Where the log begins anew its old files go before the new begin is vouched for, and nothing
        is before they go: a crash at any point leaves what opens.
        """
        while self._checkpoint.start_unsaved and self.commit_log.files.is_leaving:
            await self._checkpoint.vouch_for_nothing()
            await self.commit_log.files.remove_left()
        await self._checkpoint.sync(min(self.limit(), self.flusher.flushed_offset))
