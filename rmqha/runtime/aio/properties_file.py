"""A properties file that requests change while its process runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping

from rmqha.runtime.ports import Disk
from rmqha.runtime.properties import edited, format_properties

Whole = Callable[[], Mapping[str, str]]


class PropertiesFile:
    """One file, and whose turn it is to write it.

    A file that has other readers or writers than who changes it here is edited: remarks, and what
    somebody has written into it meanwhile, stay. Any other is a copy of a configuration, and is
    written whole.

    Args:
        path: absolute. A link is followed at each write: one that is written over is a link no more,
            and one may be switched to another file while the process runs.
        is_edited: only lines of changed keys change.
    """

    def __init__(self, disk: Disk, path: str, *, is_edited: bool) -> None:
        self.path = path
        self.is_edited = is_edited
        self._disk = disk
        self._unwritten: dict[str, str] = {}
        self._writing = asyncio.Lock()

    def take(self, changed: Mapping[str, str]) -> None:
        """These count already, and are written with the next `write`, or the one that succeeds."""
        self._unwritten |= changed

    def forget(self, keys: Iterable[str]) -> None:
        """The file has been read, and has other values of these, which count now."""
        for key in keys:
            self._unwritten.pop(key, None)

    async def write(self, whole: Whole) -> None:
        """Write what was taken.

        Args:
            whole: everything, for a file that is not edited or not there.

        Raises:
            DiskFailed: the file is as it was; what was taken is tried again at the next write.
        """
        async with self._writing:
            taken = dict(self._unwritten)
            await self._replace(taken, whole)
            for key, value in taken.items():
                if self._unwritten.get(key) == value:
                    del self._unwritten[key]

    async def change(self, changed: Mapping[str, str]) -> None:
        """Write other values, which do not count yet; raises DiskFailed, and then the file is as it
        was, and nobody tries again."""
        async with self._writing:
            await self._replace(changed, dict)

    async def _replace(self, changed: Mapping[str, str], whole: Whole) -> None:
        text, path = None, os.path.realpath(self.path)
        if self.is_edited:
            try:
                before = (await self._disk.read(path)).decode("utf-8", "surrogateescape")
            except FileNotFoundError:
                before = format_properties(whole())
            text = edited(before, changed)
        await self._disk.make_dirs(os.path.dirname(path))
        content = format_properties(whole()) if text is None else text
        await self._disk.write_atomic(path, content.encode("utf-8", "surrogateescape"))
