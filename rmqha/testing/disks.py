"""A disk that can be slow, and that a killed node leaves as it is."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rmqha.base.errors import DiskFailed
from rmqha.runtime.aio.append_file import SystemAppendFile
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.ports import MappedFile, Surveyed
from rmqha.testing.life import Life, outside

T = TypeVar("T")
OnDone = Callable[[DiskFailed | None], object]


class SlowDisk:
    """How much longer everything takes that must reach the disk."""

    def __init__(self) -> None:
        self.delay_ms = 0.0

    async def pause(self) -> None:
        """Wait that long."""
        if self.delay_ms > 0:
            await asyncio.sleep(self.delay_ms / 1000)


class NodeDisk:
    """Disk port of one node.

    Args:
        slow: how slow.
        life: of the node; None in a process of its own, whose kernel does all this.
    """

    def __init__(self, slow: SlowDisk, life: Life | None = None) -> None:
        self._inner = SystemDisk()
        self._slow = slow
        self._life = life
        self._under_way: dict[int, asyncio.Task[Any]] = {}
        self._count = 0
        self._append_files: list[NodeAppendFile] = []
        self._mapped_files: list[NodeMappedFile] = []
        self._prepared: set[str] = set()

    async def read_through(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out what does not change the disk."""
        if self._life is None:
            return await work
        try:
            self._life.check()
        except asyncio.CancelledError:
            work.close()
            raise
        # The kernel ends a call that a killed process began: whoever waits here may be cancelled,
        # the call is not.
        self._count += 1
        number = self._count
        task = asyncio.get_running_loop().create_task(work, context=outside())
        self._under_way[number] = task
        task.add_done_callback(lambda done: self._ended(number, done))
        try:
            return await asyncio.shield(task)
        finally:
            if not self._life.is_dead:
                await self._life.pass_on()

    def _ended(self, number: int, task: asyncio.Task[Any]) -> None:
        self._under_way.pop(number, None)
        if not task.cancelled():
            task.exception()  # whoever asked has it, or is dead

    async def write_through(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out what must reach the disk."""
        try:
            await self._slow.pause()
        except asyncio.CancelledError:
            work.close()
            raise
        return await self.read_through(work)

    async def abandon(self) -> None:
        """Release everything as a killed process leaves it: nothing is cut, flushed or renamed."""
        while self._under_way:
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        for mapped in self._mapped_files:
            mapped.close()
        for appended in self._append_files:
            await appended.abandon()
        for directory in sorted(self._prepared):
            self._inner.drop_prepared(directory)

    # -- the port ------------------------------------------------------------------------------

    async def make_dirs(self, path: str, *, later: bool = False) -> None:
        """Create a directory and its parents."""
        await self.write_through(self._inner.make_dirs(path, later=later))

    async def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        return await self.read_through(self._inner.list_dir(path))

    async def survey(self, path: str, head_bytes: int) -> dict[str, list[Surveyed]]:
        """What is there."""
        return await self.read_through(self._inner.survey(path, head_bytes))

    async def read(self, path: str) -> bytes:
        """The whole file."""
        return await self.read_through(self._inner.read(path))

    async def open_append(self, path: str, reserve_bytes: int = 0) -> NodeAppendFile:
        """Open for appending."""
        inner = await self.write_through(self._inner.open_append(path, reserve_bytes))
        file = NodeAppendFile(inner, self._slow, self._life)
        self._append_files.append(file)
        return file

    async def write_again(self, path: str, data: bytes) -> None:
        """Write a file's first bytes anew."""
        await self.write_through(self._inner.write_again(path, data))

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a whole file."""
        await self.write_through(self._inner.write_atomic(path, data))

    async def remove(self, path: str) -> None:
        """Delete a file."""
        await self.write_through(self._inner.remove(path))

    async def rename(self, path: str, new_path: str) -> None:
        """Give a file another name."""
        await self.write_through(self._inner.rename(path, new_path))

    def map_file(
        self, path: str, size: int, *, create: bool, sparse: bool = False
    ) -> NodeMappedFile:
        """Map a file."""
        if self._life is not None:
            self._life.check()
        return self._watched(self._inner.map_file(path, size, create=create, sparse=sparse))

    def map_surveyed(self, path: str, found: Surveyed) -> NodeMappedFile:
        """Map a file that was found."""
        if self._life is not None:
            self._life.check()
        return self._watched(self._inner.map_surveyed(path, found))

    def _watched(self, inner: MappedFile) -> NodeMappedFile:
        file = NodeMappedFile(inner, self)
        self._mapped_files = [one for one in self._mapped_files if not one.is_closed]
        self._mapped_files.append(file)
        return file

    async def prepare_file(self, directory: str, size: int) -> None:
        """Get blocks ready."""
        self._prepared.add(directory)
        await self.read_through(self._inner.prepare_file(directory, size))

    def drop_prepared(self, directory: str) -> None:
        """Give back what was prepared."""
        self._prepared.discard(directory)
        self._inner.drop_prepared(directory)

    async def file_size(self, path: str) -> int:
        """Length in bytes."""
        return await self.read_through(self._inner.file_size(path))


class NodeAppendFile:
    """AppendFile port; writes of a slow disk wait their turn."""

    def __init__(self, inner: SystemAppendFile, slow: SlowDisk, life: Life | None) -> None:
        self._inner = inner
        self._slow = slow
        self._life = life
        self._waiting: deque[tuple[bytes, OnDone]] = deque()
        self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None
        self._is_closed = False

    @property
    def size(self) -> int:
        """Bytes appended so far, those that still wait included."""
        return self._inner.size + self._waiting_bytes

    def append(self, data: bytes, on_done: OnDone, *, may_block: bool = False) -> None:
        """Write at the end; ``on_done`` is called in the order of the calls."""
        if self._waiting or self._slow.delay_ms > 0:
            self._waiting.append((data, on_done))
            self._waiting_bytes += len(data)
            self._arm()
        else:
            self._inner.append(data, self._told(on_done), may_block=may_block)

    def _told(self, on_done: OnDone) -> OnDone:
        life = self._life
        return on_done if life is None else lambda error: life.deliver(on_done, error)

    def _arm(self) -> None:
        if self._timer is None:
            delay_s = self._slow.delay_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._write_next)

    def _write_next(self) -> None:
        self._timer = None
        if self._is_closed:
            return
        data, on_done = self._waiting.popleft()
        self._waiting_bytes -= len(data)
        self._inner.append(data, self._told(on_done))
        if self._waiting:
            self._arm()
        elif self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    async def append_sync(self, data: bytes) -> None:
        """Append and sync.

        Raises:
            DiskFailed: on any error of the disk.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finish(error: DiskFailed | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self.append(data, finish)
        await done

    async def close(self) -> None:
        """End in order, after what waits."""
        if self._waiting:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained
        self._is_closed = True
        await self._inner.close()

    async def abandon(self) -> None:
        """Release the file as a killed process leaves it; what waited was never written."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
        if not self._is_closed:
            self._is_closed = True
            await self._inner.abandon()


class NodeMappedFile:
    """A MappedFile port that a test can break."""

    def __init__(self, inner: MappedFile, disk: NodeDisk) -> None:
        self._inner = inner
        self._disk = disk
        self.is_closed = False

    @property
    def path(self) -> str:
        """The absolute path."""
        return self._inner.path

    @property
    def size(self) -> int:
        """The file's length in bytes."""
        return self._inner.size

    @property
    def buffer(self) -> memoryview:
        """The whole file."""
        return self._inner.buffer

    def write(self, position: int, data: memoryview) -> None:
        """Copy bytes into the page cache."""
        self._inner.write(position, data)

    def reserve(self, end: int) -> None:
        """Get the file's blocks from the disk."""
        self._inner.reserve(end)

    def is_cached(self, low: int, high: int) -> bool:
        """Whether bytes are in memory."""
        return self._inner.is_cached(low, high)

    async def fetch(self, low: int, high: int) -> None:
        """Bring bytes into memory."""
        await self._disk.read_through(self._inner.fetch(low, high))

    async def make_writable(self, *ranges: tuple[int, int]) -> None:
        """Have bytes take writes without waiting."""
        await self._disk.write_through(self._inner.make_writable(*ranges))

    async def sync(self) -> None:
        """Make durable what was written before."""
        await self._disk.write_through(self._inner.sync())

    async def erase(self, low: int, high: int) -> int:
        """Write zeros and make them durable."""
        return await self._disk.write_through(self._inner.erase(low, high))

    def close(self) -> None:
        """Release the mapping."""
        self.is_closed = True
        self._inner.close()
