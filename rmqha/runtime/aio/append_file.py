"""A growing file whose every write is synced, made for the shortest way from a write to its end.

One thread a file takes writes from a queue and tells the event loop directly: an executor's future
and the task that awaits it cost as much as the sync itself. Zeros are written ahead of the end:
a sync then has no new file length to put through the file system's journal, which is what three
nodes on one disk would wait for in turn.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from rmqha.base.errors import DiskFailed, DiskFull

RESERVE_STEP_BYTES = 1 << 20
SLOW_SYNC_S = 0.005
THREADED_FOR_S = 10.0
FULL = (errno.ENOSPC, errno.EDQUOT)
OnDone = Callable[[DiskFailed | None], object]


def write_at(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of ``data`` at ``offset``."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written


class SystemAppendFile:
    """AppendFile port: write and fdatasync in a thread of its own.

    Args:
        path, fd, size: the open file and where appending begins.
        reserve_bytes: zeros are kept ahead of the end, up to this length of the file; 0 for none.
    """

    def __init__(self, path: str, fd: int, size: int, reserve_bytes: int = 0) -> None:
        self._path = path
        self._fd = fd
        self._size = size
        self._reserve_bytes = reserve_bytes
        self._length = size
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[tuple[bytes, int, OnDone] | None] = SimpleQueue()
        self._closed = False
        self._pending = 0
        self._failed: DiskFailed | None = None
        self._full_at = -1  # where a write had no space; what is queued behind it is not tried
        self._syncing = False
        self._threaded_until = 0.0
        self._thread = threading.Thread(target=self._work, name=f"append {path}", daemon=True)
        self._thread.start()

    @property
    def size(self) -> int:
        """Bytes appended so far, without what is reserved."""
        return self._size

    def append(self, data: bytes, on_done: OnDone, *, may_block: bool = False) -> None:
        """Write at the end; ``on_done`` is called in the event loop, in the order of the calls.

        With ``may_block`` the loop itself waits for the disk while that is quick: waking a thread
        and being woken by it costs a third of a quick sync. One slow sync ends that for a while.
        """
        offset = self._size
        self._size += len(data)
        self._pending += 1
        if may_block and self._pending == 1 and time.monotonic() >= self._threaded_until:
            self._loop.call_soon(self._done, self._attempt(data, offset), on_done)
        else:
            self._queue.put((data, offset, on_done))

    async def append_sync(self, data: bytes) -> None:
        """Append and fdatasync.

        Raises:
            DiskFailed: on any error of the disk.
        """
        done: asyncio.Future[None] = self._loop.create_future()

        def finish(error: DiskFailed | None) -> None:
            if done.cancelled():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self.append(data, finish)
        await done

    async def close(self) -> None:
        """End the thread after what is under way, and give back what was reserved.

        Raises:
            DiskFailed: the file could not be cut; its end is zeros.
        """
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        await self._loop.run_in_executor(None, self._thread.join)
        try:
            if self._length > self._size:
                os.ftruncate(self._fd, self._size)
                os.fsync(self._fd)
        except OSError as error:
            raise DiskFailed(f"cannot cut {self._path}: {error}") from error
        finally:
            os.close(self._fd)

    async def abandon(self) -> None:
        """End the thread after what is under way and release the file as it is, zeros and all:
        what a killed process leaves."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        await self._loop.run_in_executor(None, self._thread.join)
        os.close(self._fd)

    def _work(self) -> None:
        """The thread: write, sync, tell."""
        while (item := self._queue.get()) is not None:
            data, offset, on_done = item
            failed = self._attempt(data, offset)
            try:
                self._loop.call_soon_threadsafe(self._done, failed, on_done)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

    def _done(self, failed: DiskFailed | None, on_done: OnDone) -> None:
        self._pending -= 1
        if isinstance(failed, DiskFull) and self._pending == 0:
            self._size = self._full_at
        on_done(failed)

    def _attempt(self, data: bytes, offset: int) -> DiskFailed | None:
        """Write and sync; the first error is the last write."""
        if self._failed is not None:
            return self._failed
        started = time.monotonic()
        if self._full_at >= 0 and offset > self._full_at:
            return DiskFull(f"cannot append to {self._path}: an earlier write had no space")
        try:
            self._write(data, offset)
        except OSError as error:
            return self._failure(error, offset)
        ended = time.monotonic()
        if ended - started > SLOW_SYNC_S:
            self._threaded_until = ended + THREADED_FOR_S
        return self._failed

    def _failure(self, error: OSError, offset: int) -> DiskFailed:
        """What to tell of an error: a write without space leaves the file as it was before."""
        reason = f"cannot append to {self._path}: {error}"
        if error.errno in FULL and not self._syncing:
            try:
                os.ftruncate(self._fd, offset)
                self._length = self._full_at = offset
                return DiskFull(reason)
            except OSError:
                pass  # then it is broken, not full
        self._failed = DiskFailed(reason)
        return self._failed

    def _write(self, data: bytes, offset: int) -> None:
        self._syncing = False
        write_at(self._fd, data, offset)
        self._full_at = -1
        self._syncing = True
        end = offset + len(data)
        if end > self._length:
            self._length = end
        if self._length < self._reserve_bytes and end + len(data) > self._length:
            self._reserve(min(RESERVE_STEP_BYTES, self._reserve_bytes - self._length))
        os.fdatasync(self._fd)

    def _reserve(self, step: int) -> None:
        """Write zeros ahead; what there is no room for is done without."""
        try:
            write_at(self._fd, bytes(step), self._length)
        except OSError:
            self._reserve_bytes = 0
        self._length = max(self._length, os.fstat(self._fd).st_size)
