"""Deletes files whose time is over: of the log, and what queues and indexes had of them.

They leave their rows first, under the locks, which takes no disk. To delete them takes a while, and
nobody waits for that. After a crash in between those that are still there are part of the store
again, until they expire once more: in each row the oldest go first, so no gap is left.

Which files of the log those are is counted by ``expired.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, DiskUse
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.consume_queues import ConsumeQueues
from rmqha.store.aio.dispatcher import Dispatcher
from rmqha.store.aio.expired import expired_count
from rmqha.store.aio.flush import Flusher
from rmqha.store.aio.index_files import IndexFiles
from rmqha.store.aio.mending import Mending
from rmqha.store.settings import StoreSettings


class Expiring:
    """Of one store.

    Args:
        mending: knows damaged records, also such as go.
        vouch: writes what the log's files are known to hold down into the checkpoint.
        on_prefix_cut, disk_use: see ``MessageStore``.

    Attributes:
        ratios: shares in use of the commit log's disk and of the queues', at the last look.
        is_served: whoever is told of the new ``min_offset`` has been built on the old one.
        is_disk_full: one of them exceeded diskSpaceWarningLevelRatio then: new messages are to be
            refused, while what is there is read, copied by slaves, and expires.
    """

    def __init__(
        self, clock: Clock, log: Logger, settings: StoreSettings, commit_log: CommitLog,
        queues: ConsumeQueues, indexes: IndexFiles, dispatcher: Dispatcher, flusher: Flusher,
        mending: Mending, *, vouch: Callable[[], Awaitable[None]],
        on_prefix_cut: Callable[[int], None] | None, disk_use: DiskUse | None,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._log = log
        self._settings = settings
        self._commit_log = commit_log
        self._queues = queues
        self._indexes = indexes
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._mending = mending
        self._vouch = vouch
        self._on_prefix_cut = on_prefix_cut
        self._disk_use = disk_use
        self.ratios = (0.0, 0.0)
        self.is_disk_full = self.is_served = False

    async def expire(self, *, is_asked: bool = False) -> int:
        """Delete commit-log files whose time is over, and what queues and epochs had of them.

        Args:
            is_asked: somebody has asked for it, whatever the hour.

        Returns:
            How many commit-log files went.

        Raises:
            DiskFailed: a file cannot be removed.
        """
        self._look_at_disk()
        count = await self._leave_log(is_asked=is_asked)
        if count:
            files = self._commit_log.files
            self._log.log("info", "files_expired", count=count, min_offset=files.first)
            # Where the checkpoint knows less of the log than where it begins, recovery would say that
            # files in between are missing.
            await self._vouch()
            await files.remove_left()
            await self.expire_queues()
            self._look_at_disk()
        return count

    def _look_at_disk(self) -> None:
        """See how full it is, and say so when it gets too full, or is no more."""
        if self._disk_use is None:
            return
        self.ratios = (self._disk_use(), self._disk_use.of_queues())
        is_full = max(self.ratios) * 100 > self._settings.disk_space_warning_level_ratio
        if is_full != self.is_disk_full:
            self.is_disk_full = is_full
            level, event = ("error", "disk_full") if is_full else ("info", "disk_has_space")
            self._log.log(level, event, commit_log=self.ratios[0], queues=self.ratios[1])

    async def make_room(self) -> None:
        """On a full disk, delete what may go before anything else is written; nobody serves it yet.

        Raises:
            DiskFailed: a file cannot be removed.
        """
        self._look_at_disk()
        if self.is_disk_full:
            await self.expire()

    async def expire_queues(self) -> None:
        """Delete files of queues and indexes of which the log has no record any more.

        Raises:
            DiskFailed: a file cannot be removed.
        """
        async with self._dispatcher.lock, self._queues.upkeep:
            log_min = self._commit_log.files.first
            queues = await self._queues.expire(log_min)
            indexes = self._indexes.expire(log_min)
        await self._queues.remove_left(queues)
        await self._indexes.remove(indexes)

    async def _leave_log(self, *, is_asked: bool) -> int:
        """Have the log begin later, and whoever serves it know that before the next turn of the loop.

        Returns:
            How many files it has given up.
        """
        if not self._count(is_asked=is_asked):
            return 0
        async with self._dispatcher.lock, self._queues.upkeep, self._flusher.lock:
            files = self._commit_log.files
            # The log may have been cut while this waited.
            count = self._count(is_asked=is_asked)
            if not count:
                return 0
            files.leave_before(files.first + count * files.size)
            self._mending.expired(files.first)
            if self._on_prefix_cut is not None and self.is_served:
                self._on_prefix_cut(files.first)
        return count

    def _count(self, *, is_asked: bool) -> int:
        """How many commit-log files may go now."""
        # What is not yet in a queue or not yet durable is never expired.
        safe = min(self._dispatcher.offset, self._flusher.flushed_offset)
        return expired_count(
            self._commit_log.segments(), self._settings, self._clock.wall_ms(), max(self.ratios), safe,
            is_asked=is_asked,
        )  # fmt: skip
