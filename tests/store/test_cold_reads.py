"""Messages that have left the memory are read in a thread; whoever reads recent ones waits for none."""

from __future__ import annotations

import asyncio
import os
import struct
from pathlib import Path

import pytest

from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.aio.mapped_file import SystemMappedFile
from rmqha.store.aio.pulling import READS_MAX, Pulled, Pulling
from rmqha.store.transfer import Transfer
from tests.store.harness import message, real_store

ALL = Transfer(0, 99, 9999, 99, 9999)

FILE_BYTES = 1 << 20
PAGE = 4096


async def evicted(path: Path) -> SystemMappedFile:
    """A file of random bytes of which nothing is in memory."""
    path.write_bytes(os.urandom(FILE_BYTES))
    with path.open("rb+") as file:
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if resident(file.fileno()):
            pytest.skip("this file system keeps its files in memory")
    found = SystemDisk().map_file(str(path), FILE_BYTES, create=False)
    assert isinstance(found, SystemMappedFile)
    return found


def resident(fd: int) -> bool:
    """Whether the system has the first byte at hand, by its own word."""
    try:
        return bool(os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT))
    except BlockingIOError:
        return False


def test_bytes_when_they_left_the_memory_then_they_are_there_after_a_fetch(tmp_path: Path) -> None:
    """A page fault in the loop would hold every other connection up."""

    async def play() -> None:
        file = await evicted(tmp_path / "0")
        low, high = 5 * PAGE + 7, 100 * PAGE + 9
        assert not file.is_cached(low, high)
        await file.fetch(low, high)
        assert file.is_cached(low, high)
        assert bytes(file.buffer[low:high]) == (tmp_path / "0").read_bytes()[low:high]
        file.close()

    asyncio.run(play())


def test_pulled_when_cold_then_a_few_are_read_at_a_time(tmp_path: Path) -> None:
    """Threads are few, and syncs of the log need them too."""

    async def play() -> None:
        store = real_store(tmp_path)
        await store.open()
        for number in range(20):
            store.append(message(number))
        await store.wait_dispatched(store.max_offset)
        pulling = Pulling(store.commit_log, store.queues, store.limit)
        running = most = 0

        async def fetch(begin: int, end: int) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

        log = store.commit_log
        log.is_cached = lambda begin, end: False  # type: ignore[method-assign]
        log.fetch = fetch  # type: ignore[method-assign]

        def read(offset: int) -> Pulled:
            return pulling.read(
                "FooBar", 0, offset, None, count_max=1, bytes_max=9999, scan_max=10, transfer=ALL
            )

        waited = await asyncio.gather(*(pulling.fetch(read(number)) for number in range(10)))
        assert all(waited)
        assert most == READS_MAX
        await store.close()

    asyncio.run(play())


def test_pulled_when_read_then_its_runs_are_where_its_records_lie(tmp_path: Path) -> None:
    """Else other bytes than the answer's would be brought into memory."""

    async def play() -> None:
        store = real_store(tmp_path)
        await store.open()
        for number in range(6):
            store.append(message(number, queue_id=number % 2))
        await store.wait_dispatched(store.max_offset)
        pulling = Pulling(store.commit_log, store.queues, store.limit)
        found = pulling.read(
            "FooBar", 1, 0, None, count_max=9, bytes_max=9999, scan_max=10, transfer=ALL
        )
        parts = [bytes(store.view(begin, end - begin)) for begin, end in found.runs]
        assert [bytes(part) for part in found.parts] == parts
        assert struct.unpack_from(">q", parts[0], 20) == (0,)
        assert len(parts) == 3
        await store.close()

    asyncio.run(play())
