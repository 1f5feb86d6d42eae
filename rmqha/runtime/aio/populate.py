"""Pages of a mapping are made dirty before they are written to, by whoever can wait for it.

Linux lets whoever makes a page dirty wait when too many are (``balance_dirty_pages``), in a page fault
as in a system call; a write to a page that is dirty already waits for nobody. ``MADV_POPULATE_WRITE``
(Linux 5.14) makes pages dirty without changing them, and ctypes lets go of the GIL meanwhile.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import mmap
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

MADV_POPULATE_WRITE = 23
THREADS = 2
"""The log's and an index's."""


async def populated(
    buffer: memoryview,
    ranges: Sequence[tuple[int, int]],
    first: Callable[[], object] | None = None,
) -> None:
    """Make pages dirty in a thread for that; the mapping lives until it is done.

    Args:
        buffer: a whole shared mapping.
        ranges: of bytes, each [low, high).
        first: done there before; must not raise.
    """
    held = buffer[:]

    def work() -> None:
        with held:
            if first is not None:
                first()
            for low, high in ranges:
                populate(held, low, high)

    await asyncio.get_running_loop().run_in_executor(_waiters(), work)


@functools.cache
def _waiters() -> ThreadPoolExecutor:
    """Threads for those who wait for it. On a slow disk all others wait in syncs, for seconds."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="room")


@functools.cache
def _madvise() -> Callable[[int, int, int], int] | None:
    """The C library's; None where pages cannot be made dirty like this."""
    if sys.platform != "linux":
        return None
    found = ctypes.CDLL(None).madvise
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    found.restype = ctypes.c_int
    return found


def populate(buffer: memoryview, low: int, high: int) -> bool:
    """Make the pages of bytes [low, high) dirty, and wait as long as that takes.

    Args:
        buffer: a whole shared mapping, which it keeps mapped.

    Returns:
        False where the kernel does not know how, or the mapping has no blocks there.
    """
    madvise = _madvise()
    if madvise is None or low >= high:
        return False
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    begin = (address + low) // mmap.PAGESIZE * mmap.PAGESIZE
    return madvise(begin, address + high - begin, MADV_POPULATE_WRITE) == 0
