"""The name server's two files: an answer waits until what it tells is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rmqha.base.errors import DiskFailed
from rmqha.namesrv.messages import Stored
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger

OnDone = Callable[[DiskFailed | None], None]


class StoredFile:
    """One file; changes during a write share the next one.

    Args:
        tasks, log: as everywhere.
        path: absolute.
        write: makes one write of what the file is to hold now.
        waiting_max: requests that wait for a write.
    """

    def __init__(
        self,
        tasks: Tasks,
        log: Logger,
        path: str,
        write: Callable[[], Awaitable[None]],
        waiting_max: int,
    ) -> None:
        self.path = path
        self._tasks = tasks
        self._log = log
        self._write_once = write
        self._waiting_max = waiting_max
        self._waiting: list[OnDone] = []
        self._writing: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether nobody else may wait."""
        return len(self._waiting) >= self._waiting_max

    def store(self, what: Stored, on_done: OnDone) -> None:
        """Write the present content; ``on_done`` is told once it is durable, or why not."""
        self._waiting.append(on_done)
        if self._writing is None:
            self._writing = self._tasks.start(self._write(), name=f"store {what.value}")

    async def drain(self) -> None:
        """Wait until nobody waits any more."""
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                error: DiskFailed | None = DiskFailed(f"{self.path} was not written")
                try:
                    error = await self._try_write()
                finally:  # whatever happens: who is told nothing waits for ever
                    _tell(waiting, error)
        finally:
            self._writing = None
            left, self._waiting = self._waiting, []
            _tell(left, DiskFailed(f"{self.path} was not written"))

    async def _try_write(self) -> DiskFailed | None:
        try:
            await self._write_once()
        except DiskFailed as failed:
            self._log.log("error", "store_failed", path=self.path, error=str(failed))
            return failed
        return None


def _tell(waiting: list[OnDone], error: DiskFailed | None) -> None:
    for on_done in waiting:
        on_done(error)
