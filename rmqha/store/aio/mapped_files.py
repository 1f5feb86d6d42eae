"""A row of files of one length, mapped: the commit log is one, each consume queue is another.

Positions are bytes since the row's origin; a file's name is the position of its first byte. No
record format is known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from rmqha.base.errors import StoreMismatch
from rmqha.runtime.ports import Disk, MappedFile, Surveyed
from rmqha.store import segments


async def file_sizes(
    disk: Disk, directory: str, names: Iterable[str], usual: int
) -> dict[str, int]:
    """The length of each file with one of these names, bytes; folders are none, whatever they are called.

    Args:
        usual: the length that nearly all have; only where one has another, folders are looked for.

    Raises:
        DiskFailed: they cannot be looked at.
    """
    sizes = {name: await disk.file_size(f"{directory}/{name}") for name in names}
    if all(size == usual for size in sizes.values()):
        return sizes
    folders = await disk.survey(directory, 0)
    return {name: size for name, size in sizes.items() if name not in folders}


class MappedFiles:
    """The files of one directory, without gaps.

    Args:
        disk: the Disk port.
        directory: must exist before a file is made.
        size: length of every file, bytes.
        sparse: files get blocks where ``MappedFile.reserve`` asks for them.

    Attributes:
        files: the mapped files, oldest first.
        first: position of the first file's first byte; meaningless without files.
    """

    def __init__(self, disk: Disk, directory: str, size: int, *, sparse: bool = False) -> None:
        self._disk = disk
        self.directory = directory
        self.size = size
        self._sparse = sparse
        self.files: list[MappedFile] = []
        self.first = 0
        # Taken out of the row, and still on the disk; oldest first.
        self._leaving: list[str] = []
        self._removing: asyncio.Lock | None = None

    @property
    def end(self) -> int:
        """The position after the last file; 0 without files."""
        return self.first + len(self.files) * self.size if self.files else 0

    async def load(self, *, unused_from: int | None = None) -> list[int]:
        """Map what is there, up to the first gap.

        A file without bytes is removed: a power cut took its content, and it counts as missing. So is
        the last one if it is too short and was never vouched for: it was being made.

        Args:
            unused_from: nothing at or behind it is known to be durable.

        Returns:
            Starts of files beyond a gap, which are not mapped.

        Raises:
            StoreMismatch: a file has another length than configured; nothing was changed.
            DiskFailed: a file cannot be mapped.
        """
        named = segments.starts_of(await self._disk.list_dir(self.directory))
        names = [segments.file_name(start) for start in named]
        found = await file_sizes(self._disk, self.directory, names, self.size)
        sizes = {int(name): size for name, size in found.items()}
        starts = list(sizes)
        last = starts[-1] if starts else 0
        if unused_from is not None and 0 < last >= unused_from and sizes[last] < self.size:
            sizes[last] = 0
        for start, size in sizes.items():
            if size not in (0, self.size):
                raise StoreMismatch(
                    f"{self.path(start)} has {size} bytes, but the settings say {self.size}"
                )
        for start in starts:
            if not sizes[start]:
                await self._disk.remove(self.path(start))
        starts = [start for start in starts if sizes[start]]
        count = segments.joined(starts, self.size)
        self.first = starts[0] if starts else 0
        self.files = [self.map(start) for start in starts[:count]]
        return starts[count:]

    def adopt(self, start: int, found: Surveyed) -> None:
        """Take over the only file there is, which has the right length; it is not looked at."""
        self.first, self.files = start, [self._disk.map_surveyed(self.path(start), found)]

    def path(self, start: int) -> str:
        """The path of the file that begins at ``start``."""
        return f"{self.directory}/{segments.file_name(start)}"

    def map(self, start: int, *, create: bool = False) -> MappedFile:
        """Map one file."""
        return self._disk.map_file(self.path(start), self.size, create=create, sparse=self._sparse)

    def holds(self, position: int) -> bool:
        """Whether a file has this position."""
        return bool(self.files) and self.first <= position < self.end

    def at(self, position: int) -> tuple[MappedFile, int]:
        """The file that holds a position, and the position within it."""
        number, within = divmod(position - self.first, self.size)
        if number < 0:
            raise IndexError(position)
        return self.files[number], within

    def make_for(self, position: int) -> None:
        """Make sure that a file holds ``position``: the next one, or the very first.

        Raises:
            DiskFailed: the disk is full.
            ValueError: it would leave a gap, or the file's forerunner is being deleted.
        """
        if self.holds(position):
            return
        start = segments.floor(position, self.size)
        if self._leaving and self.path(start) in self._leaving:
            raise ValueError(f"{self.path(start)} is being deleted")
        if self.files and start != self.end:
            raise ValueError(
                f"{self.directory}: position {position} is not the next after {self.end}"
            )
        file = self.map(start, create=True)
        if not self.files:
            self.first = start
        self.files.append(file)

    async def remove_after(self, position: int) -> None:
        """Delete the files that begin after ``position``, newest first."""
        # Whoever begins a row anew makes files with the names of those.
        await self.remove_left()
        while self.files and self.first + (len(self.files) - 1) * self.size > position:
            file = self.files.pop()
            file.close()
            await self._disk.remove(file.path)

    def leave_before(self, position: int) -> int:
        """Take the files that end at or before ``position`` out of the row; how many.

        They stay on the disk until :meth:`remove_left`, and are back if a crash comes first.
        """
        count = 0
        while self.files and self.first + self.size <= position:
            file = self.files.pop(0)
            self.first += self.size
            file.close()
            self._leaving.append(file.path)
            count += 1
        return count

    def leave_all_but(self, start: int) -> None:
        """Have the row begin anew at ``start``: all files but the one there leave it."""
        kept = []
        for file in self.files:
            if file.path == self.path(start):
                kept.append(file)
                continue
            file.close()
            self._leaving.append(file.path)
        self.files, self.first = kept, start

    @property
    def is_leaving(self) -> bool:
        """Whether files that have left the row are still on the disk."""
        return bool(self._leaving)

    async def remove_left(self) -> None:
        """Delete the files that have left the row, oldest first: a crash must leave no gap.

        Raises:
            DiskFailed: one cannot be removed.
        """
        if not self._leaving:
            return
        if self._removing is None:
            self._removing = asyncio.Lock()
        async with self._removing:
            while self._leaving:
                await self._disk.remove(self._leaving[0])
                del self._leaving[0]

    async def join(self, start: int, content: bytes) -> None:
        """Take in a file that :meth:`load` found behind a gap, and before it what was missing.

        Args:
            content: of each file that is missing. It is durable before the file is there, so that
                whoever comes after a crash finds the gap, or no gap.

        Raises:
            DiskFailed: one cannot be made or mapped.
        """
        while self.end < start:
            await self._disk.write_atomic(self.path(self.end), content)
            self.files.append(self.map(self.end))
        self.files.append(self.map(start))

    async def drop(self, start: int) -> None:
        """Delete a file that :meth:`load` found behind a gap."""
        await self._disk.remove(self.path(start))

    async def erase(self, low: int, high: int) -> int:
        """Write zeros into [low, high), as far as the file of ``low`` goes, and sync that file.

        Returns:
            The bytes of the pieces that held anything else.
        """
        if not self.holds(low):
            return 0
        file, within = self.at(low)
        return await file.erase(within, min(file.size, within + max(0, high - low)))

    async def sync(self, low: int, high: int) -> None:
        """Sync the files that hold any of [low, high), oldest first; those that go meanwhile count
        as synced."""
        first = max(0, (low - self.first) // self.size)
        last = -(-(high - self.first) // self.size)
        for file in self.files[first:last]:
            if file in self.files:
                await file.sync()

    def close(self) -> None:
        """Unmap everything; syncs nothing."""
        for file in self.files:
            file.close()
        self.files = []
