"""Messages that have left the memory are read in a thread; whoever reads recent ones waits for none."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import mmap
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.aio.mapped_file import SystemMappedFile
from rmqha.store.aio import cold_reads
from rmqha.store.aio.cold_reads import READS_MAX, NotInMemory
from rmqha.store.aio.pulling import Pulled, Pulling
from rmqha.store.transfer import Transfer
from tests.store.harness import message, real_store

ALL = Transfer(0, 99, 9999, 99, 9999)

FILE_BYTES = 1 << 20
PAGE = 4096
EVICTED_S = 10.0
T = TypeVar("T")


async def evicted(path: Path) -> SystemMappedFile:
    """A file of random bytes of which nothing is in memory."""
    path.write_bytes(os.urandom(FILE_BYTES))
    evict(path)
    found = SystemDisk().map_file(str(path), FILE_BYTES, create=False)
    assert isinstance(found, SystemMappedFile)
    return found


def evict(path: Path) -> None:
    """Have a file leave the memory; at first another core may still hold a page in its lists."""
    until_s = time.monotonic() + EVICTED_S
    with path.open("rb+") as file:
        while resident(file.fileno()):
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if time.monotonic() > until_s:
                pytest.skip("this file system keeps its files in memory")


def cold(path: Path, look: Callable[[], T]) -> T:
    """What a look says that finds the disk slower than itself: to look is to ask the disk."""
    until_s = time.monotonic() + EVICTED_S
    found = look()
    while not found:
        assert time.monotonic() < until_s, "the disk is always as quick"
        evict(path)
        found = look()
    return found


def resident(fd: int) -> bool:
    """Whether the system has any page of a file at hand; to read it without waiting would fetch it."""
    size = os.fstat(fd).st_size
    pages = (ctypes.c_ubyte * -(-size // PAGE))()
    with mmap.mmap(fd, size) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        wrong = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), pages
        )
        del first
    if wrong:
        raise OSError(ctypes.get_errno(), "mincore")
    return any(page & 1 for page in pages)


@pytest.fixture(autouse=True)
def nothing_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything may have left the memory."""
    monkeypatch.setattr(cold_reads, "COLD_BYTES", -1)


def test_bytes_when_they_left_the_memory_then_they_are_there_after_a_fetch(tmp_path: Path) -> None:
    """A page fault in the loop would hold every other connection up."""

    async def play() -> None:
        file = await evicted(tmp_path / "0")
        low, high = 5 * PAGE + 7, 100 * PAGE + 9
        cold(tmp_path / "0", lambda: not file.is_cached(low, high))
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
        pulling = Pulling(store.commit_log, store.queues, store.limit, store.cold)
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
        pulling = Pulling(store.commit_log, store.queues, store.limit, store.cold)
        found = pulling.read(
            "FooBar", 1, 0, None, count_max=9, bytes_max=9999, scan_max=10, transfer=ALL
        )
        parts = [bytes(store.view(begin, end - begin)) for begin, end in found.runs]
        assert [bytes(part) for part in found.parts] == parts
        assert struct.unpack_from(">q", parts[0], 20) == (0,)
        assert len(parts) == 3
        await store.close()

    asyncio.run(play())


def test_look_when_something_is_missing_then_it_is_made_again_once_that_was_read(
    tmp_path: Path,
) -> None:
    """A search by time looks at one record after another; a query by key at all that are hinted."""

    async def play() -> None:
        store = real_store(tmp_path, message_index_enable=True, max_hash_slot_num=8)
        await store.open()
        for number in range(40):
            store.append(message(number, properties=b"KEYS\x01same\x02"))
        await store.wait_dispatched(store.max_offset)
        await store.indexes.finish()
        memory: set[tuple[int, int]] = set()
        log, fetched = store.commit_log, []

        def is_cached(begin: int, end: int) -> bool:
            return any(low <= begin and end <= high for low, high in memory)

        async def fetch(begin: int, end: int) -> None:
            fetched.append((begin, end))
            memory.add((begin, end))

        log.is_cached = is_cached  # type: ignore[method-assign]
        log.fetch = fetch  # type: ignore[method-assign]
        reader = store.reader
        expected = reader.offset_by_time("FooBar", 0, reader.store_timestamp("FooBar", 0, 17))
        assert not fetched
        stamp = reader.store_timestamp("FooBar", 0, expected)
        with pytest.raises(NotInMemory):
            store.cold.now(lambda: reader.offset_by_time("FooBar", 0, stamp))
        found = await store.cold.look(lambda: reader.offset_by_time("FooBar", 0, stamp))
        assert found == expected
        assert fetched
        memory.clear()
        fetched.clear()

        def query() -> list[int]:
            records = reader.query("FooBar", "same", begin_ms=0, end_ms=1 << 60, limit=9)
            return [record.queue_offset for record in records]

        assert await store.cold.look(query) == query() == list(range(39, 30, -1))
        assert len(fetched) == 1
        await store.close()

    asyncio.run(play())


def test_look_when_memory_is_too_short_then_it_waits_for_the_disk_in_the_end(
    tmp_path: Path,
) -> None:
    """Nobody reads the same for ever."""

    async def play() -> None:
        store = real_store(tmp_path)
        await store.open()
        place = store.append(message()).offset
        await store.wait_dispatched(store.max_offset)
        store.commit_log.is_cached = lambda begin, end: False  # type: ignore[method-assign]
        found = await store.cold.look(lambda: store.reader.look(place))
        assert found is not None
        await store.close()

    asyncio.run(play())


def test_index_when_it_is_searched_then_its_pages_are_fetched_as_well(tmp_path: Path) -> None:
    """Slots lie anywhere in a file of 420 MB."""

    async def play() -> None:
        await evicted(tmp_path / "0")
        store = real_store(tmp_path / "store", message_index_enable=True, max_hash_slot_num=8)
        await store.open()
        store.append(message(properties=b"KEYS\x01one\x02"))
        await store.wait_dispatched(store.max_offset)
        await store.indexes.finish()
        path = next((tmp_path / "store" / "index").iterdir())
        await store.close()
        evict(path)
        file_size = path.stat().st_size
        file = SystemDisk().map_file(str(path), file_size, create=False)

        def missing() -> NotInMemory | None:
            try:
                store.cold.now(lambda: store.cold.need_in(file, 0, 40))
            except NotInMemory as error:
                return error
            return None

        error = cold(path, missing)
        assert error is not None
        assert error.runs == [(0, min(file_size, 40 + cold_reads.RECORD_BYTES))]
        store.cold.need_in(file, 0, 40)  # nobody watches
        found = await store.cold.look(lambda: store.cold.need_in(file, 0, 40))
        assert found is None
        assert file.is_cached(0, 40)
        file.close()

    asyncio.run(play())


def test_walk_when_it_is_far_behind_then_what_comes_next_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatcher and the index of a slave that was flooded, or of a log that is indexed anew."""
    monkeypatch.setattr(cold_reads, "AHEAD_BYTES", 4096)

    async def play() -> None:
        store = real_store(tmp_path, dispatch_batch_max=9)
        await store.open()
        for number in range(200):
            store.append(message(number))
        await store.wait_dispatched(store.max_offset)
        log, fetched = store.commit_log, []

        async def fetch(begin: int, end: int) -> None:
            fetched.append((begin, end))

        log.is_cached = lambda begin, end: False  # type: ignore[method-assign]
        log.fetch = fetch  # type: ignore[method-assign]
        async with store.dispatcher.lock:
            store.dispatcher.restart_at(0)
        await store.dispatcher.wait(store.max_offset)
        # One behind the other, and nothing of what is near.
        assert [begin for begin, _ in fetched] == sorted({begin for begin, _ in fetched})
        assert fetched[0][0] == 0
        assert all(later[0] <= one[1] for one, later in itertools.pairwise(fetched))
        assert store.max_offset - fetched[-1][1] <= cold_reads.COLD_BYTES
        await store.close()

    monkeypatch.setattr(cold_reads, "COLD_BYTES", 4096)
    asyncio.run(play())


async def test_own_when_asked_then_it_is_what_this_process_wrote_within_the_tail(
    tmp_path: Path,
) -> None:
    """What came from a disk may have changed there; what was just written has been on none."""
    store = real_store(tmp_path)
    await store.open()
    for number in range(3):
        store.append(message(number))
    assert store.cold.is_own(0)
    await store.wait_dispatched(store.max_offset)
    await store.close()
    again = real_store(tmp_path, unchecked_tail_bytes=400)
    await again.open()
    end = again.max_offset
    assert not again.cold.is_own(end - 1)
    for number in range(3):
        again.append(message(number))
    assert again.max_offset - end > 400
    assert not again.cold.is_own(end)
    assert again.cold.is_own(again.max_offset - 400)
    await again.truncate(end - 158)
    for number in range(3):
        again.append(message(number))
    assert again.cold.is_own(again.max_offset - 400)
    assert not again.cold.is_own(end - 159)
    await again.close()
