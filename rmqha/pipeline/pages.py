"""Files read through their pages in memory, and pages given back: a worker stays small."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def mapped(path: str, *, scattered: bool = False) -> Iterator[memoryview]:
    """A whole file.

    Args:
        path: of the file; nothing is written to it.
        scattered: few places of it are wanted, so reading ahead is in vain.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            yield memoryview(b"")
            return
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        pages.madvise(mmap.MADV_RANDOM if scattered else mmap.MADV_SEQUENTIAL)
        # Arrow arrays and views may live longer than the caller's block: the pages go with them.
        yield memoryview(pages)


def forget(buffer: memoryview, start: int, stop: int) -> None:
    """Take pages that lie wholly within ``[start, stop)`` out of this process' memory.

    They stay in the system's cache, and come back when they are read again.
    """
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    size = stop // mmap.PAGESIZE * mmap.PAGESIZE - first
    if size > 0 and isinstance(buffer.obj, mmap.mmap):
        buffer.obj.madvise(mmap.MADV_DONTNEED, first, size)
