"""The file in which the mark of the timers is kept: a slave has that of its master."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rmqha.broker.common.aio.config_file import ConfigFile, FileTroubles, content_of
from rmqha.broker.deferred.timers import TimerMark
from rmqha.runtime.ports import Clock, Disk


class TimerMarkFile:
    """``config/rmqhaTimers.json``.

    Attributes:
        file: of the mark.
    """

    def __init__(
        self, disk: Disk, clock: Clock, path: str, troubles: FileTroubles, *,
        after: Callable[[], Awaitable[object]],
    ) -> None:  # fmt: skip
        self._mark = TimerMark()
        self.file = ConfigFile(
            disk, clock, path, content_of(lambda: self._mark.members()), troubles, after=after
        )

    @property
    def mark(self) -> TimerMark:
        """What the file says, now or soon; a slave's is that of its master."""
        return self._mark

    @mark.setter
    def mark(self, mark: TimerMark) -> None:
        if mark != self._mark:
            self._mark = mark
            self.file.changed()

    async def load(self) -> None:
        """Read the file; raises as ``ConfigFile.read``."""
        await self.file.read(self._take)

    def _take(self, value: dict[str, Any]) -> None:
        self._mark = TimerMark.of(value)
