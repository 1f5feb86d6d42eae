"""Deletes files whose time is over: of the log, and what queues and indexes had of them.

Which files of the log those are is counted by ``expired.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.consume_queues import ConsumeQueues
from rmqha.store.aio.dispatcher import Dispatcher
from rmqha.store.aio.expired import expired_count
from rmqha.store.aio.flush import Flusher
from rmqha.store.aio.index_files import IndexFiles
from rmqha.store.settings import StoreSettings


class Expiring:
    """Of one store.

    Args:
        on_prefix_cut, used_ratio: see ``MessageStore``.
    """

    def __init__(
        self, clock: Clock, log: Logger, settings: StoreSettings, commit_log: CommitLog,
        queues: ConsumeQueues, indexes: IndexFiles, dispatcher: Dispatcher, flusher: Flusher,
        *, on_prefix_cut: Callable[[int], None] | None, used_ratio: Callable[[], float] | None,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._log = log
        self._settings = settings
        self._commit_log = commit_log
        self._queues = queues
        self._indexes = indexes
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._on_prefix_cut = on_prefix_cut
        self._used_ratio = used_ratio

    async def expire(self, *, is_asked: bool = False) -> int:
        """Delete commit-log files whose time is over, and what queues and epochs had of them.

        Args:
            is_asked: somebody has asked for it, whatever the hour.

        Returns:
            How many commit-log files went.

        Raises:
            DiskFailed: a file cannot be removed.
        """
        if not self._count(is_asked=is_asked):
            return 0
        async with self._dispatcher.lock, self._queues.upkeep, self._flusher.lock:
            files = self._commit_log.files
            # Another caller may have been here while this one waited.
            count = self._count(is_asked=is_asked)
            if not count:
                return 0
            await files.remove_before(files.first + count * files.size)
            await self._queues.expire(files.first)
            await self._indexes.expire(files.first)
        self._log.log("info", "files_expired", count=count, min_offset=files.first)
        if self._on_prefix_cut is not None:
            self._on_prefix_cut(files.first)
        return count

    async def expire_queues(self) -> None:
        """Delete files of queues of which the log has no record any more.

        Raises:
            DiskFailed: a file cannot be removed.
        """
        async with self._dispatcher.lock, self._queues.upkeep:
            await self._queues.expire(self._commit_log.files.first)

    def _count(self, *, is_asked: bool) -> int:
        """How many commit-log files may go now."""
        # What is not yet in a queue or not yet durable is never expired.
        safe = min(self._dispatcher.offset, self._flusher.flushed_offset)
        used_ratio = 0.0 if self._used_ratio is None else self._used_ratio()
        return expired_count(
            self._commit_log.segments(), self._settings, self._clock.wall_ms(), used_ratio, safe,
            is_asked=is_asked,
        )  # fmt: skip
