"""A table of the broker with its file under ``config/``: what topics, groups, mappings and users have
in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from rmqha.broker.common.aio.config_file import ConfigFile, FileTroubles, content_of, mark_of
from rmqha.runtime.ports import Clock, Disk


class Table(Protocol):
    """What can be kept in a file."""

    def members(self) -> dict[str, Any]:
        """What the file holds of it."""


TableT = TypeVar("TableT", bound=Table)


class TableFile(Generic[TableT]):
    """A table and its file.

    Args:
        path: of the file.
        empty: the table while there is no file.
        read: makes a table of what a file holds; raises as ``ConfigFile.read`` has it.
        period_ms: shortest pause between two writes; 0 writes after every change.

    Attributes:
        table: whoever changes it calls :meth:`changed`.
        file: of the table.
        members: what the file holds.
        mark: records of the log that begin before are in the table that was read; None for a
            table of which nobody knows that.
        found: whether there was a file; a store of an older release may have none.
    """

    def __init__(
        self, disk: Disk, clock: Clock, path: str, troubles: FileTroubles,
        empty: TableT, read: Callable[[dict[str, Any]], TableT], *, period_ms: int = 0,
    ) -> None:  # fmt: skip
        self.table = empty
        self.mark: int | None = None
        self.found = False
        self.members: Callable[[], dict[str, Any]] = lambda: self.table.members()
        content = content_of(lambda: self.members())
        self.file = ConfigFile(disk, clock, path, content, troubles, period_ms=period_ms)
        self._clock = clock
        self._read = read

    async def load(self) -> None:
        """Read the file; raises as ``ConfigFile.read``."""
        self.found = await self.file.read(self._take)

    def _take(self, value: dict[str, Any]) -> None:
        self.table = self._read(value)
        self.mark = mark_of(value)

    def changed(self) -> None:
        """Write the table soon."""
        self.file.changed()
