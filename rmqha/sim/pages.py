"""Mapped files of a simulated disk: what programs see, and what is on the platter."""

from __future__ import annotations

import asyncio
import mmap
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rmqha.base.errors import DiskFailed, InvariantBroken
from rmqha.controller.raft.wal_layout import SECTOR
from rmqha.runtime.aio.mapped_file import ERASE_BYTES

if TYPE_CHECKING:
    from rmqha.sim.disk import SimDisk

PAGE = 4096
TORN = 0.4
"""Share of the pages under way that the power cut leaves with some of their sectors old."""
TORN_PAGES = "page torn by a power cut"


class Outcome:
    """What a power cut leaves of each page that was not safe.

    Args:
        whole: decides which pages are old and which are new.
        torn: decides which are neither. A stream of its own, so that more or less of it changes
            nothing else.

    Attributes:
        torn: pages that may be neither.
    """

    def __init__(self, whole: random.Random, torn: random.Random) -> None:
        self.whole = whole
        self.torn = 0
        self._torn = torn

    def page(self, old: bytes, new: bytes) -> bytes:
        """The page on the platter; a sector of it is old or new as a whole.

        Sectors of an appended page come from the front, as when the page was written back before
        its end was filled, or in any order, as a disk without power takes them.
        """
        kept, torn = new if self.whole.random() < 0.5 else old, self._torn
        if torn.random() >= TORN:
            return kept
        sectors = range(0, PAGE, SECTOR)
        front = torn.choice((None, *sectors))
        self.torn += 1
        pieces = [
            (new if (torn.random() < 0.5 if front is None else at < front) else old)[
                at : at + SECTOR
            ]
            for at in sectors
        ]
        return b"".join(pieces)


class SimPages:
    """A mapped file: what programs see, and what is on the platter, page by page.

    Attributes:
        clean: pages of which a sync has failed, as they were then: no later one writes them, unless
            somebody writes to them first.
    """

    def __init__(self, size: int) -> None:
        self.cached: bytearray | mmap.mmap = bytearray(size)
        self.durable = bytes(size)
        self.entry_durable = False
        self.reserved = size
        self.syncs_begun = 0
        self.sync_done = 0
        self.clean: dict[int, bytes] = {}

    @property
    def content(self) -> bytes:
        """What a reader sees while the power is on."""
        return bytes(self.cached)

    def ranges(self, low: int, high: int) -> Iterable[tuple[int, int]]:
        """The parts of a range outside of which there are zeros."""
        return [(low, high)]

    def snapshot(self) -> Callable[[], None]:
        """Take a copy; what is called then makes it what is on the platter."""
        copy = bytes(self.cached)

        def settle() -> None:
            found = bytearray(copy)
            for at in self._still_clean(lambda at: copy[at : at + PAGE]):
                found[at : at + PAGE] = self.durable[at : at + PAGE]
            self.durable = bytes(found)

        return settle

    def _still_clean(self, page: Callable[[int], bytes]) -> list[int]:
        """The places of clean pages that nobody has written to since; the others are no more."""
        self.clean = {at: was for at, was in self.clean.items() if page(at) == was}
        return list(self.clean)

    def sync_failed(self) -> None:
        """What was not on the platter is taken for written."""
        for at in range(0, len(self.durable), PAGE):
            page = bytes(self.cached[at : at + PAGE])
            if page != self.durable[at : at + PAGE]:
                self.clean[at] = page

    def written(self, low: int, high: int) -> None:
        """Somebody has written to these bytes, perhaps what stood there."""
        for at in range(low // PAGE * PAGE, high, PAGE) if self.clean else ():
            self.clean.pop(at, None)

    def power_cut(self, outcome: Outcome) -> bool:
        """Keep of each page what reached the platter; False when the file itself is gone.

        The old buffer stays with whoever still holds it: a dead process writes into nothing.
        """
        rng = outcome.whole
        if not self.entry_durable and rng.random() < 0.5:
            return False
        pages = bytearray(self.durable)
        cached = bytes(self.cached)
        for at in range(0, len(pages), PAGE):
            new, old = cached[at : at + PAGE], self.durable[at : at + PAGE]
            if new != old:
                lost = self.clean.get(at) == new
                pages[at : at + PAGE] = old if lost else outcome.page(old, new)
        if not self.entry_durable and rng.random() < 0.3:
            # The name reached the disk, the blocks did not.
            pages = bytearray()
        self.cached = pages
        self.durable = bytes(pages)
        self.entry_durable, self.clean = True, {}
        return True


class SimMappedFile:
    """The simulated MappedFile port."""

    def __init__(self, disk: SimDisk, path: str, pages: SimPages) -> None:
        self._disk = disk
        self._path = path
        self._pages = pages
        self._buffer = memoryview(pages.cached)

    @property
    def path(self) -> str:
        """The absolute path."""
        return self._path

    @property
    def size(self) -> int:
        """The file's length in bytes."""
        return len(self._buffer)

    @property
    def buffer(self) -> memoryview:
        """The whole file."""
        return self._buffer

    def write(self, position: int, data: memoryview) -> None:
        """As through ``buffer``."""
        self._buffer[position : position + len(data)] = data
        self._pages.written(position, position + len(data))

    def reserve(self, end: int) -> None:
        """Blocks for a sparse file, a page at a time."""
        pages = self._pages
        if end > pages.reserved:
            wanted = min(self.size, -(-end // PAGE) * PAGE)
            self._disk.take(self._path, wanted - pages.reserved)
            pages.reserved = wanted

    def is_cached(self, low: int, high: int) -> bool:
        """Always, unless the disk's mood is that reads take their time."""
        return not self._disk.mood.read_ms

    async def fetch(self, low: int, high: int) -> None:
        """Take that time."""
        await self._disk.read_slowly()

    async def make_writable(self, *ranges: tuple[int, int]) -> None:
        """Take as long as a write to the disk, and hang with it."""
        await self._disk.sync()
        for low, high in ranges:
            self._pages.written(low, high)

    def _check_blocks(self) -> None:
        """On a full disk such a write ends the process (SIGBUS)."""
        low = self._pages.reserved
        if low < self.size and self._buffer[low:] != bytes(self.size - low):
            raise InvariantBroken(f"{self._path} was written behind {low}, where it has no blocks")

    async def sync(self) -> None:
        """What was written before this call is durable once the time of a sync has passed."""
        pages = self._pages
        self._check_blocks()
        settle = pages.snapshot()
        life = self._disk.cuts
        pages.syncs_begun += 1
        number = pages.syncs_begun
        try:
            await self._disk.sync()
        except DiskFailed:
            if life == self._disk.cuts:
                pages.sync_failed()
            raise
        # An older sync that takes longer takes nothing back.
        if life == self._disk.cuts and number > pages.sync_done:
            pages.sync_done = number
            settle()
            pages.entry_durable = True

    async def erase(self, low: int, high: int) -> int:
        """Zeros, piece by piece; then a sync."""
        erased = 0
        for start, stop in self._pages.ranges(low, high):
            for at in range(start, stop, ERASE_BYTES):
                end = min(stop, at + ERASE_BYTES)
                if self._buffer[at:end] != bytes(end - at):
                    self._buffer[at:end] = bytes(end - at)
                    erased += end - at
                await asyncio.sleep(0)
        await self.sync()
        return erased

    def close(self) -> None:
        """Nothing to release: slices may live on."""
