"""Pages that are made dirty before anybody writes to them, on the kernel of this machine."""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import re
import threading
from pathlib import Path

import pytest

from rmqha.base.errors import DiskFailed, DiskFull
from rmqha.runtime.aio import populate as module
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.aio.populate import populate
from rmqha.runtime.aio.sparse_file import MappedPool, open_sparse

SIZE = 1 << 20
LINUX = pytest.mark.skipif(os.uname().sysname != "Linux", reason="a way of Linux")


def dirty_bytes(path: Path) -> int:
    """Of this process's mapping of a file, as the kernel counts them."""
    text = Path("/proc/self/smaps").read_text()
    (part,) = re.findall(rf"{re.escape(str(path))}\n(.*?)VmFlags", text, re.DOTALL)
    return 1024 * sum(int(one) for one in re.findall(r"(?:Shared|Private)_Dirty: +(\d+) kB", part))


@LINUX
async def test_pages_when_made_writable_then_they_are_dirty_and_not_changed(
    tmp_path: Path,
) -> None:
    """A later write to them finds nothing to do for the kernel, so it cannot wait."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * (SIZE // 256))
    file = SystemDisk().map_file(str(path), SIZE, create=False)
    await file.sync()
    assert dirty_bytes(path) == 0
    await file.make_writable((10_000, 50_000))
    low, high = 10_000 // mmap.PAGESIZE, -(-50_000 // mmap.PAGESIZE)
    # Where the kernel keeps a file in larger pieces than pages, all of a piece is.
    assert (high - low) * mmap.PAGESIZE <= dirty_bytes(path)
    assert bytes(file.buffer) == bytes(range(256)) * (SIZE // 256)
    file.close()


@LINUX
async def test_pages_when_the_file_is_closed_meanwhile_then_the_mapping_outlives_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the thread would work on whatever is mapped there next."""
    path = tmp_path / "file"
    file = SystemDisk().map_file(str(path), SIZE, create=True)
    begun, may_go, found = asyncio.Event(), asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def slow(buffer: memoryview, low: int, high: int) -> bool:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(may_go.wait(), loop).result(5)
        found.append(str(path) in Path("/proc/self/maps").read_text())
        return populate(buffer, low, high)

    monkeypatch.setattr(module, "populate", slow)
    work = asyncio.create_task(file.make_writable((0, SIZE)))
    await begun.wait()
    file.close()
    may_go.set()
    await work
    assert found == [True]
    assert str(path) not in Path("/proc/self/maps").read_text()
    with pytest.raises(DiskFailed, match="closed"):
        await file.make_writable((0, SIZE))


@LINUX
async def test_pages_of_a_queue_when_made_writable_then_they_are_dirty_while_it_is_mapped(
    tmp_path: Path,
) -> None:
    """One that is not mapped is not mapped for that: few can be."""
    path = tmp_path / "file"
    file = open_sparse(MappedPool(), str(path), SIZE, create=True)
    file.reserve(100)
    file.buffer[:3] = b"one"
    await file.sync()
    assert dirty_bytes(path) == 0
    await file.make_writable((20, 40))
    assert dirty_bytes(path) >= mmap.PAGESIZE
    assert bytes(file.buffer[:6]) == b"one\0\0\0"
    file.unmap()
    await file.make_writable((20, 40))
    assert not file.is_mapped
    file.close()


async def test_pages_of_a_queue_when_made_writable_then_their_blocks_were_got_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that was behind let the loop wait for its journal: 2 s in each queue that grew."""
    file = open_sparse(MappedPool(), str(tmp_path / "file"), SIZE, create=True)
    file.buffer[:0]
    got: list[str] = []
    fallocate = os.posix_fallocate

    def noted(fd: int, offset: int, length: int) -> None:
        got.append(threading.current_thread().name)
        fallocate(fd, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", noted)
    await file.make_writable((100, 200), (300, 20_000))
    file.reserve(20_000)
    assert [one.startswith("room") for one in got] == [True]
    monkeypatch.setattr(os, "posix_fallocate", _full)
    await file.make_writable((100_000, 200_000))
    with pytest.raises(DiskFull):
        file.reserve(200_000)
    file.close()


def _full(fd: int, offset: int, length: int) -> None:
    raise OSError(errno.ENOSPC, "no space left")


async def test_pages_when_all_threads_wait_for_syncs_then_they_are_made_writable_all_the_same(
    tmp_path: Path,
) -> None:
    """On a slow disk a dozen syncs stood before each, and sends were refused after two seconds."""
    file = SystemDisk().map_file(str(tmp_path / "file"), SIZE, create=True)
    loop, may_go = asyncio.get_running_loop(), threading.Event()
    syncs = [loop.run_in_executor(None, may_go.wait) for _ in range(100)]
    try:
        await asyncio.wait_for(file.make_writable((0, SIZE)), 5)
    finally:
        may_go.set()
        await asyncio.gather(*syncs)
    file.close()


def test_pages_when_the_system_knows_no_way_then_nothing_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before Linux 5.14, and elsewhere: writes wait as they did."""
    mapped = memoryview(mmap.mmap(-1, SIZE))
    monkeypatch.setattr(module, "MADV_POPULATE_WRITE", 9_999)
    assert not populate(mapped, 0, SIZE)
    monkeypatch.setattr(module, "_madvise", lambda: None)
    assert not populate(mapped, 0, SIZE)
    assert not populate(mapped, 5, 5)
