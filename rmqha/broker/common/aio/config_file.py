"""One ``config/*.json`` that is written after changes, at most so often, and at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rmqha.base.errors import DiskFailed, RemoteProtocolError, StoreCorrupted
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Disk
from rmqha.store.aio.small_files import read_config, write_config
from rmqha.store.config_files import encode_config

RETRY_MS = 1_000
PAUSES = 10
PAUSE_MS_MAX = 1_000
APPLIED_OFFSET = "rmqhaAppliedOffset"
"""Member of the files of topics, mappings and groups, and of the answers 21 and 201 to slaves of this kind:
records of the log that begin before it are in the table (ADR 0022)."""


def mark_of(value: Mapping[str, Any], name: str = APPLIED_OFFSET) -> int | None:
    """``APPLIED_OFFSET`` of a table, or what it is called, None where there is none.

    Raises:
        RemoteProtocolError: it is no offset.
    """
    mark = value.get(name)
    if mark is not None and (not isinstance(mark, int) or isinstance(mark, bool) or mark < 0):
        raise RemoteProtocolError(f"{name}={mark!r} is no offset")
    return mark


def pause_after(took_ms: int) -> int:
    """How long to wait before a table is made into bytes again, after the last time took so long.

    Whoever changes a large table again and again would otherwise keep the loop busy with its bytes.
    """
    return min(PAUSES * took_ms, PAUSE_MS_MAX)


class FileTroubles:
    """Which files cannot be written now; people are told when that begins and ends.

    A broker goes on without them: the log has the changes of topics and groups, and a group that
    loses offsets gets messages once more. But when it ends before they can be written again, what
    the log does not have, or has no more, is as it was; so changes that people ask for are refused
    meanwhile. A log that cannot be written is another matter.

    Attributes:
        reasons: by path.
    """

    def __init__(self, log: Logger) -> None:
        self.reasons: dict[str, str] = {}
        self._log = log

    def failed(self, path: str, error: DiskFailed) -> None:
        """A write failed."""
        if path not in self.reasons:
            self._log.log("error", "config_not_written", path=path, reason=str(error))
        self.reasons[path] = str(error)

    def wrote(self, path: str) -> None:
        """A write succeeded."""
        if self.reasons.pop(path, None) is not None:
            self._log.log("info", "config_written_again", path=path)


def content_of(members: Callable[[], dict[str, Any]]) -> Callable[[], Awaitable[bytes]]:
    """The content of a small table's file, made in one go."""

    async def content() -> bytes:
        return encode_config(members())

    return content


class ConfigFile:
    """A table and its file.

    Args:
        path: of the file.
        content: the table's present content as bytes (``content_of`` for a small one); it may let
            others have turns, and what changes meanwhile is written once more.
        troubles: is told when it cannot be written.
        period_ms: shortest pause between two writes; 0 writes after every change.
        after: what is to be on the disk before the content is. What tells how far records were
            delivered comes after the log: a power cut that took a delivery, and not the word that
            it was made, would take the message for good.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        path: str,
        content: Callable[[], Awaitable[bytes]],
        troubles: FileTroubles,
        *,
        period_ms: int = 0,
        after: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._after = after
        self._disk = disk
        self._clock = clock
        self._path = path
        self._content = content
        self._troubles = troubles
        self._period_ms = period_ms
        self._dirty = asyncio.Event()
        self._writing = asyncio.Lock()
        self._pause_ms = 0
        self._is_good = False  # the file, known to be whole

    async def read(self, take: Callable[[dict[str, Any]], None]) -> bool:
        """Give the file's content to ``take``; False when there is no file yet.

        Raises:
            StoreCorrupted: neither the file nor its backup can be read, or ``take`` refused it.
            DiskFailed: the disk cannot be read.
        """
        found = await read_config(self._disk, self._path)
        if found is None:
            return False
        self._is_good = not found.is_copy
        try:
            take(found.value)
        except RemoteProtocolError as error:
            raise StoreCorrupted(f"{self._path}: {error}") from error
        return True

    def changed(self) -> None:
        """Write the table soon."""
        self._dirty.set()

    async def run(self) -> None:
        """Write after changes, for ever; what cannot be written is tried again."""
        while True:
            await self._dirty.wait()
            if self._period_ms:
                await self._clock.sleep(self._period_ms)
            try:
                await self.save()
                if self._pause_ms:
                    await self._clock.sleep(self._pause_ms)
            except DiskFailed:
                await self._clock.sleep(RETRY_MS)

    async def save(self) -> None:
        """Write now what has changed; raises DiskFailed, and then it is still to be written."""
        async with self._writing:
            if not self._dirty.is_set():
                return
            self._dirty.clear()
            is_written = False
            try:
                begun_ms = self._clock.now_ms()
                data = await self._content()
                self._pause_ms = pause_after(self._clock.now_ms() - begun_ms)
                if self._after is not None:
                    await self._after()
                await write_config(self._disk, self._path, data, is_good=self._is_good)
                is_written = self._is_good = True
            except DiskFailed as error:
                self._troubles.failed(self._path, error)
                raise
            finally:
                # Also of a task that is cancelled: the broker writes once more when it ends.
                if not is_written:
                    self._dirty.set()
            self._troubles.wrote(self._path)
