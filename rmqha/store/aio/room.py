"""Room at the log's end in which writes do not wait for the disk (ADR 0048).

Where more is written than the disk takes, the kernel lets whoever makes a page dirty wait: the event
loop, and all that it serves. Nothing of it is felt, and nothing done here, until a write has waited;
then whoever can makes room before it writes, which a thread waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from rmqha.base.errors import DiskFailed
from rmqha.runtime.aio.earliest import EarliestTimer
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, MappedFile
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.writes import Writes

T = TypeVar("T")
SLOW_MS = 100
"""A write of microseconds that took so long has waited for a disk: Linux lets it wait for 200 ms at a
time. Who only waits for a core or the GIL seldom does for so long; room is then made in vain a few
times."""
TRIED, MADE_SLOWLY_MS = 32, 5
"""So often room is made in the log until it is judged, and what that takes on the average where the disk
is behind: of some 20 makings one waits for 200 ms then. Else a thread's turn is all it takes, and what
had seemed to wait had only lost its core."""
EASED_MS = 10_000
"""How long nobody must have waited until writes are trusted again."""


class Stretch:
    """What one writer may write at the log's end before others have their turn.

    Args:
        length: in bytes.
        records: how many; a turn of the loop is as long as it takes to write them.

    Attributes:
        refused: the size of what did not fit, 1 at least; 0 while all did.
    """

    def __init__(self, room: Room, length: int, records: int = sys.maxsize) -> None:
        self._room = room
        self._waited = room.waited
        self._left = length
        self._records_left = records
        self._is_first = length > 0
        self.refused = 0

    def takes(self, size: int, records: int = 1) -> bool:
        """Whether ``records`` of about ``size`` bytes in all may be written now, which is then to be done.

        The first may in any case: one that does not fit where the file ends begins the next one. None
        may once a write has waited: the disk has taken the pages before they were written to.
        """
        is_over = self._left < size or self._records_left < records
        if not self._is_first and (is_over or self._room.waited != self._waited):
            self.refused = max(size, 1)
            return False
        self._is_first = False
        self._left -= size
        self._records_left -= records
        return True


class Room:
    """Of one store.

    Args:
        writes: told of what waits, so that a disk that stands still is noticed.

    Attributes:
        is_short: writes may wait.
        waited: how many writes and makings of room have.
        on_changed: told when ``is_short`` has changed.
    """

    def __init__(self, clock: Clock, log: CommitLog, writes: Writes, logger: Logger) -> None:
        self._clock = clock
        self._log = log
        self._writes = writes
        self._logger = logger
        self._waited_ms = 0
        self._tried = self._tried_ms = 0
        self._is_behind = False
        self._timer = EarliestTimer(clock, self._ease)
        self._turn = asyncio.Lock()
        self.is_short = False
        self.waited = 0
        self.on_changed: Callable[[], object] = int

    def now_ms(self) -> int:
        """The moment at which a write begins."""
        return self._clock.now_ms()

    def wrote(self, begun_ms: int) -> None:
        """Something was written in the loop, which began at ``begun_ms``."""
        took_ms = self._clock.now_ms() - begun_ms
        if took_ms < SLOW_MS:
            return
        self._waited(begun_ms + took_ms)
        if not self.is_short:
            self.is_short, self._is_behind = True, False
            self._tried = self._tried_ms = 0
            self._logger.log("warning", "writes_wait_for_disk", waited_ms=took_ms)
            self.on_changed()

    @contextlib.asynccontextmanager
    async def stretch(self, length: int, records: int = sys.maxsize) -> AsyncIterator[Stretch]:
        """Room that others who ask for it do not write into: one of them at a time has any.

        Where the disk has failed it is there all the same: whoever writes learns why.
        """
        async with self._turn:
            with contextlib.suppress(DiskFailed):
                length = await self.make(length)
            yield Stretch(self, max(length, 1), records)

    async def make(self, length: int, *, ahead: int = 0) -> int:
        """Have the next ``length`` bytes of the log take writes without waiting, for a moment.

        Args:
            length: in bytes.
            ahead: of the log's end, for a body of which a part has come.

        Returns:
            How many there are: the next file is not there yet.

        Raises:
            DiskFailed: the file was closed meanwhile.
        """
        made, took_ms = await self._made(self._log.make_writable(length, ahead))
        self._tried += 1
        self._tried_ms += took_ms
        if self._tried >= TRIED:
            self._judge()
        return made

    def _judge(self) -> None:
        mean_ms, self._tried, self._tried_ms = self._tried_ms / self._tried, 0, 0
        if mean_ms >= MADE_SLOWLY_MS:
            self._is_behind = True
            self._hold(self._clock.now_ms())
        elif self.is_short and not self._is_behind:
            self._trust()

    async def make_in(self, file: MappedFile, ranges: Sequence[tuple[int, int]]) -> None:
        """The same for bytes of another file.

        Raises:
            DiskFailed: the file was closed meanwhile.
        """
        await self._made(file.make_writable(*ranges))

    async def _made(self, work: Awaitable[T]) -> tuple[T, int]:
        begun_ms = self._clock.now_ms()
        with self._writes.under_way():
            made = await work
        now_ms = self._clock.now_ms()
        if now_ms - begun_ms >= SLOW_MS:
            self._waited(now_ms)
        return made, now_ms - begun_ms

    def close(self) -> None:
        """Look at no clock any more."""
        self._timer.cancel()

    def _waited(self, now_ms: int) -> None:
        self.waited += 1
        self._hold(now_ms)

    def _hold(self, now_ms: int) -> None:
        self._waited_ms = now_ms
        self._timer.arm(now_ms + EASED_MS)

    def _ease(self) -> None:
        due_ms = self._waited_ms + EASED_MS
        if self._clock.now_ms() < due_ms:
            self._timer.arm(due_ms)
        elif self.is_short:
            self._trust()

    def _trust(self) -> None:
        self.is_short = False
        self._logger.log("info", "writes_wait_no_more")
        self.on_changed()
