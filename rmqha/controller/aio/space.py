"""A full disk: what is small goes into the room of a reserve until there is space again.

Terms and votes must be written also when nothing else can be: a node that cannot write its vote
elects nobody, and three nodes often share one kind of trouble. What a node without space does is
decided in ``raft/append.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from rmqha.base.errors import DiskFailed, DiskFull
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Disk

RESERVE_NAME = "reserve"
RESERVE_BYTES = 256 * 1024
SPACE_AGAIN_BYTES = 8 * RESERVE_BYTES
"""There is space again when there is so much: the room of the reserve alone is none."""

SPACE_CHECK_MS = 1000


class Space:
    """Whether a node's disk has space.

    Args:
        disk, directory: where the reserve is kept.
        clock, log, tasks: of the node.
        on_changed: told when space has run out (False) or is there again (True).
        retry: called when what had no space may be tried again.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        clock: Clock,
        log: Logger,
        tasks: Tasks,
        *,
        on_changed: Callable[[bool], None],
        retry: Callable[[], None],
    ) -> None:
        self._disk = disk
        self._path = os.path.join(directory, RESERVE_NAME)
        self._clock = clock
        self._log = log
        self._tasks = tasks
        self._on_changed = on_changed
        self._retry = retry
        self.is_low = False

    async def open(self) -> None:
        """Make the reserve, or find that there is no space for it."""
        if not await self._make_reserve():
            self.is_full(DiskFull(f"no space for {self._path}"))

    def is_full(self, error: DiskFull) -> None:
        """A write had no space."""
        if not self.is_low:
            self.is_low = True
            self._log.log("error", "no_space", error=str(error))
            self._tasks.start(self._wait(), name="wait for space")
        self._on_changed(False)

    async def _wait(self) -> None:
        await self._disk.remove(self._path)
        self._retry()
        while not (await self._make_reserve(SPACE_AGAIN_BYTES) and await self._make_reserve()):
            await self._clock.sleep(SPACE_CHECK_MS)
            self._retry()
        self.is_low = False
        self._log.log("info", "space_again")
        self._on_changed(True)
        self._retry()

    async def _make_reserve(self, size: int = RESERVE_BYTES) -> bool:
        try:
            await self._disk.write_atomic(self._path, bytes(size))
        except DiskFull:
            return False
        except DiskFailed as error:
            # What matters is the log; if that cannot be written either, it says so itself.
            self._log.log("warning", "reserve_failed", error=str(error))
        return True
