"""The properties file that request 25 may change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from rmqha.broker.admin.config_changes import edited
from rmqha.runtime.ports import Disk


class ConfigText:
    """The properties file that a broker was started with.

    Args:
        path: empty without one; then changes last for as long as the process.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._writing = asyncio.Lock()

    async def change(self, changed: Mapping[str, str]) -> None:
        """Write other values; raises DiskFailed, and then the file is as it was."""
        if not self._path:
            return
        async with self._writing:
            try:
                before = (await self._disk.read(self._path)).decode("utf-8", "surrogateescape")
            except FileNotFoundError:
                before = ""
            text = edited(before, changed).encode("utf-8", "surrogateescape")
            await self._disk.write_atomic(self._path, text)
