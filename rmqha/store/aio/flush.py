"""Making the commit log durable: one sync for all who wait.

A failed sync is final: the page cache may have dropped what it could not write, so the store
stops, and everybody who waits is told.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from rmqha.base.errors import DiskFailed
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.writes import Writes
from rmqha.store.record import (
    BLANK_SIZE,
    BORN_HOST_V6,
    HEADROOM,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_SIZE,
    STORE_HOST_V6,
    Head,
)

_PREFIX = struct.Struct(">iI")
_INT = struct.Struct(">i")
_SYS_FLAG_AT, _BODY_SIZE_AT, _V6_LONGER = 36, 84, 12
_FIXED_SIZE = _BODY_SIZE_AT + 2 * _V6_LONGER + _INT.size
"""Bytes of the longest head up to and with the size of the body."""


def damage_at(log: CommitLog, position: int) -> Head | None:
    """The head at ``position``, with why it can never become that of a record; else None.

    What may still grow into one is no damage: of a record that is on its way to a slave nobody knows
    more than its first bytes.
    """
    if log.max_offset - position < BLANK_SIZE:
        return None
    buffer, start = log.file_of(position)
    size, magic = _PREFIX.unpack_from(buffer, position - start)
    if magic == MAGIC_BLANK:
        return None
    if magic not in (MAGIC_V1, MAGIC_V2):
        return Head(-1, position, f"unknown magic {magic:#010x}")
    # A master may take longer messages than this broker does, but leaves room for a blank.
    left = log.file_end(position) - position - BLANK_SIZE
    written = min(log.max_offset - position, left)
    body_size = _body_size(buffer, position - start) if written >= _FIXED_SIZE else size
    if not MIN_SIZE <= size <= left or not 0 <= size - body_size <= 2 * HEADROOM:
        return Head(
            -1,
            position,
            f"record of {size} bytes with a body of {body_size}, {left} left in the file",
        )
    return None


def _body_size(buffer: memoryview, position: int) -> int:
    """What the head of a record at ``position`` says of its body."""
    (sys_flag,) = _INT.unpack_from(buffer, position + _SYS_FLAG_AT)
    longer = bool(sys_flag & BORN_HOST_V6) + bool(sys_flag & STORE_HOST_V6)
    (size,) = _INT.unpack_from(buffer, position + _BODY_SIZE_AT + longer * _V6_LONGER)
    return int(size)


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
