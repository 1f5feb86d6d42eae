"""Files read through their pages in memory, and pages given back: a worker stays small."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from rmqha.pipeline.commitlog import elsewhere


@contextmanager
def mapped(
    path: str, *, scattered: bool = False, bytes_max: int | None = None
) -> Iterator[memoryview]:
    """A whole file.

    Args:
        path: of the file; nothing is written to it. What is elsewhere or packed is copied, and the
            copy kept until another is made: tasks read range by range.
        scattered: few places of it are wanted, so reading ahead is in vain.
        bytes_max: of a copy no more is wanted.

    Raises:
        OSError: it cannot be read.
    """
    if elsewhere.is_elsewhere(path):
        yield _copied(path, elsewhere.stamp(path), bytes_max)
        return
    with open(path, "rb") as file:
        yield _pages(file.fileno(), scattered)


@lru_cache(maxsize=1)
def _copied(path: str, _stamp: tuple[int | None, int | None], bytes_max: int | None) -> memoryview:
    with elsewhere.copy_of(path, bytes_max) as file:
        return _pages(file.fileno(), scattered=False)


def _pages(descriptor: int, scattered: bool) -> memoryview:
    if os.fstat(descriptor).st_size == 0:
        return memoryview(b"")
    pages = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    pages.madvise(mmap.MADV_RANDOM if scattered else mmap.MADV_SEQUENTIAL)
    # Arrow arrays and views may live longer than the caller's block: the pages go with them.
    return memoryview(pages)


def has_data(path: str, position: int) -> bool:
    """False when the file was never written from ``position`` on; reads nothing.

    What is elsewhere does not tell.

    Raises:
        OSError: it cannot be opened.
    """
    if elsewhere.is_elsewhere(path):
        return True
    with open(path, "rb") as file:
        try:
            os.lseek(file.fileno(), position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return False
            if error.errno != errno.EINVAL:
                raise
    return True


def is_written(path: str) -> bool:
    """Whether a file of this machine has anything but zeros; of one elsewhere that is believed.

    Raises:
        OSError: it cannot be read.
    """
    if elsewhere.is_elsewhere(path):
        return True
    if not has_data(path, 0):
        return False
    with open(path, "rb") as file:
        # Most files say so with their first bytes; the pages of a warmed-up one are all there.
        chunks = iter(lambda: file.read(elsewhere.CHUNK_BYTES), b"")
        return any(chunk.count(0) < len(chunk) for chunk in chunks)


def forget(buffer: memoryview, start: int, stop: int) -> None:
    """Take a mapped file's pages that lie wholly in ``[start, stop)`` out of this process' memory.

    They stay in the system's cache, and come back when they are read again.
    """
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    size = min(stop, len(buffer)) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if size > 0 and isinstance(buffer.obj, mmap.mmap):
        buffer.obj.madvise(mmap.MADV_DONTNEED, first, size)
