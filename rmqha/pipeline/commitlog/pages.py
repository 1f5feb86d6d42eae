"""Files read through their pages in memory, and pages given back: a worker stays small."""

from __future__ import annotations

import errno
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


def has_data(path: str, position: int) -> bool:
    """False when the file was never written from ``position`` on; reads nothing.

    Raises:
        OSError: it cannot be opened.
    """
    with open(path, "rb") as file:
        try:
            os.lseek(file.fileno(), position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return False
            if error.errno != errno.EINVAL:
                raise
    return True


def forget(buffer: memoryview, start: int, stop: int) -> None:
    """Take a mapped file's pages that lie wholly in ``[start, stop)`` out of this process' memory.

    They stay in the system's cache, and come back when they are read again.
    """
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    size = min(stop, len(buffer)) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if size > 0 and isinstance(buffer.obj, mmap.mmap):
        buffer.obj.madvise(mmap.MADV_DONTNEED, first, size)
