"""Mapped files of a simulated disk that are as large as users': they take memory for what is written.

The system keeps such a file's pages and says which there are; of those that are not zeros the platter
keeps copies.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator

from rmqha.runtime.aio.mapped_file import data_ranges
from rmqha.sim.pages import PAGE, Outcome, SimPages

HUGE_BYTES = 16 << 20
"""From here on."""

_ZEROS = bytes(PAGE)


def pages_of(size: int) -> SimPages:
    """A new file."""
    return HugePages(size) if size >= HUGE_BYTES else SimPages(size)


class HugePages(SimPages):
    """A file of a gigabyte or so, nearly all of it zeros."""

    def __init__(self, size: int) -> None:
        super().__init__(0)
        self.reserved = self._size = size
        self._kept: dict[int, bytes] = {}
        self._fd = -1
        self._renew({})

    def _renew(self, pages: dict[int, bytes]) -> None:
        """Other programs see these pages, and zeros between them; those of before keep theirs."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = os.memfd_create("pages")
        os.ftruncate(self._fd, self._size)
        for at, page in pages.items():
            os.pwrite(self._fd, page, at)
        self.cached = mmap.mmap(self._fd, self._size)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def ranges(self, low: int, high: int) -> Iterable[tuple[int, int]]:
        """What was ever looked at or written."""
        return list(data_ranges(self._fd, low, high))

    def _written(self) -> Iterator[tuple[int, bytes]]:
        for start, stop in data_ranges(self._fd, 0, self._size):
            for at in range(start, stop, PAGE):
                page = os.pread(self._fd, PAGE, at)
                if page != _ZEROS:
                    yield at, page

    def snapshot(self) -> Callable[[], None]:
        """Of pages that are not zeros."""
        copy = dict(self._written())

        def settle() -> None:
            found = dict(copy)
            for at in self._still_clean(lambda at: copy.get(at, _ZEROS)):
                found[at] = self._kept.get(at, _ZEROS)
            self._kept = found

        return settle

    def sync_failed(self) -> None:
        """Of pages that are not zeros."""
        for at, page in self._written():
            if page != self._kept.get(at, _ZEROS):
                self.clean[at] = page

    def power_cut(self, outcome: Outcome) -> bool:
        """As any file; what has no blocks in the end is an empty one."""
        rng = outcome.whole
        if not self.entry_durable and rng.random() < 0.5:
            return False
        seen, pages = dict(self._written()), dict(self._kept)
        for at in sorted(seen.keys() | pages.keys()):
            new, old = seen.get(at, _ZEROS), pages.get(at, _ZEROS)
            if new != old:
                pages[at] = old if self.clean.get(at) == new else outcome.page(old, new)
        if not self.entry_durable and rng.random() < 0.3:
            self.cached, self._kept = bytearray(), {}
        else:
            self._renew(pages)
            self._kept = pages
        self.entry_durable, self.clean = True, {}
        return True
