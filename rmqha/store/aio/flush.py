"""Making the commit log durable: one sync for all who wait.

A failed sync is final: the page cache may have dropped what it could not write, so the store
stops, and everybody who waits is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rmqha.base.errors import DiskFailed
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.writes import Writes
from rmqha.store.damaged_head import head_damage
from rmqha.store.record import Head


def damage_at(log: CommitLog, position: int) -> Head | None:
    """The head at ``position``, with why it can never become that of a record; else None."""
    written = log.max_offset - position
    if written <= 0:
        return None
    buffer, start = log.file_of(position)
    left = log.file_end(position) - position
    reason = head_damage(buffer, position - start, written, left)
    return Head(-1, position, reason) if reason else None


class Flusher:
    """Group commit over one commit log.

    Args:
        writes: told of each sync.
        on_flushed: called with the end of the last whole durable record, with the newest durable store
            timestamp, and with the damaged head, if one keeps that end where it is.
        on_failed: called once.

    Attributes:
        flushed_offset: everything before it is durable.
        lock: held while a sync or a cut runs.
        rounds: syncs that were made.
    """

    def __init__(
        self,
        log: CommitLog,
        writes: Writes,
        *,
        on_flushed: Callable[[int, int, Head | None], None],
        on_failed: Callable[[DiskFailed], None],
    ) -> None:
        self._log = log
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._writes = writes
        self._round: asyncio.Task[None] | None = None
        self._error: DiskFailed | None = None
        self.flushed_offset = 0
        self.lock = asyncio.Lock()
        self.rounds = 0

    async def flush(self, offset: int) -> int:
        """Make everything before ``offset`` durable; returns ``flushed_offset``.

        A cut may take away what was waited for: the answer is then below ``offset``.

        Raises:
            DiskFailed: now or at any time before.
        """
        while True:
            if self._error is not None:
                raise DiskFailed(str(self._error)) from self._error
            if self.flushed_offset >= min(offset, self._log.max_offset):
                return self.flushed_offset
            if self._round is None:
                self._round = asyncio.create_task(self._sync(), name="flush")
            # Whoever gives up waiting must not take the others' sync along.
            await asyncio.shield(self._round)

    async def _sync(self) -> None:
        try:
            async with self.lock:
                target, timestamp = self._log.max_offset, self._log.last_timestamp
                whole = self._log.whole_end()
                damage = damage_at(self._log, whole)
                with self._writes.under_way():
                    await self._log.sync(self.flushed_offset, target)
                self.flushed_offset = target
                self.rounds += 1
                self._on_flushed(whole, timestamp, damage)
        except DiskFailed as error:
            self.fail(error)
        finally:
            self._round = None

    def fail(self, error: DiskFailed) -> None:
        """Refuse everything from now on."""
        if self._error is None:
            self._error = error
            self._on_failed(error)

    @property
    def failed(self) -> DiskFailed | None:
        """What stopped it."""
        return self._error
