"""The properties file that request 25 may change."""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.runtime.aio.properties_file import PropertiesFile
from rmqha.runtime.ports import Disk


class ConfigText:
    """The properties file that a broker was started with.

    Args:
        path: empty without one; then changes last for as long as the process.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._file = PropertiesFile(disk, path, is_edited=True) if path else None

    async def change(self, changed: Mapping[str, str]) -> None:
        """Write other values; raises DiskFailed, and then the file is as it was."""
        if self._file is not None:
            await self._file.change(changed)
