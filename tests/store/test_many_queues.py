"""Many queues at once: making them durable holds up neither a cut nor whatever removes files."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from rmqha.base.errors import DiskFailed, DiskFull
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import SimLoop
from rmqha.sim.pages import SimPages
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.aio.queue_files import QueueFiles
from rmqha.store.consume_queue import UNIT
from tests.store.harness import bodies, message, new_disk, real_store, sim_store, simulate

QUEUES = 400
SYNC_MS = 2.0
PERIOD_MS = 3_600_000
UNITS_A_FILE = 4
SIZE = 10


def _topic(number: int) -> str:
    return f"topic{number:04d}"


async def _put_all(store: MessageStore, body: bytes) -> None:
    for number in range(QUEUES):
        store.append(message(number, topic=_topic(number), body=body))
    await store.wait_dispatched(store.max_offset)


def _even(disk: SimDisk) -> None:
    disk.mood.sync_min_ms = disk.mood.sync_max_ms = SYNC_MS


async def _dirty_store(loop: SimLoop, disk: SimDisk) -> tuple[MessageStore, int]:
    """A store whose queues are dirty and have units behind the place where it shall be cut."""
    _even(disk)
    store = sim_store(loop, disk, flush_interval_consume_queue=PERIOD_MS)
    await store.open()
    await _put_all(store, b"kept")
    middle = store.max_offset
    await _put_all(store, b"cut")
    await store.flush(store.max_offset)
    return store, middle


def test_cut_while_hundreds_of_queues_are_being_synced_does_not_wait_for_each() -> None:
    """An election that waits for a thousand syncs, one after another, leaves a set without a master."""
    loop, disk = SimLoop(), new_disk()

    async def work() -> None:
        store, middle = await _dirty_store(loop, disk)
        syncing = asyncio.create_task(store.flush_queues())
        await asyncio.sleep(0)
        began = loop.time()
        await store.truncate(middle)
        took_ms = (loop.time() - began) * 1000
        await syncing
        assert bodies(store, topic=_topic(7)) == [b"kept"]
        await store.close()
        assert took_ms < QUEUES * SYNC_MS / 2

    simulate(work(), loop)
    loop.close()


@pytest.mark.parametrize("seed", range(10))
def test_unit_that_takes_the_place_of_a_cut_one_while_a_sync_is_under_way_is_durable_after_the_next(
    seed: int,
) -> None:
    """A sync that began before the cut says nothing of what was written after it."""
    loop, disk = SimLoop(), new_disk(seed)
    disk.mood.sync_max_ms = 50.0

    async def work() -> None:
        queue = QueueFiles(disk, "/queue", UNITS_A_FILE * UNIT.size, batch=False)
        queue.put(0, SIZE, 0, 0)
        queue.put(SIZE, SIZE, 0, 1)
        syncing = asyncio.create_task(queue.sync())
        await asyncio.sleep(0)
        await queue.cut(SIZE)
        queue.put(SIZE, SIZE, 7, 1)
        await syncing
        await queue.sync()
        pages = disk.files[queue.files.files[0].path]
        assert isinstance(pages, SimPages)
        assert pages.durable == pages.content

    simulate(work(), loop)
    loop.close()


def test_queue_that_goes_while_it_is_being_synced_stops_nothing(tmp_path: Path) -> None:
    """A queue that is made anew, or a topic that is deleted, must not look like a bad disk."""

    async def work() -> None:
        queue = QueueFiles(SystemDisk(), str(tmp_path), UNITS_A_FILE * UNIT.size, batch=False)
        for number in range(3 * UNITS_A_FILE):
            queue.put(number * SIZE, SIZE, 0, number)
        syncing = asyncio.create_task(queue.sync())
        await asyncio.sleep(0)
        await queue.clear()
        await syncing
        assert not queue.files.files
        assert not any(tmp_path.iterdir())
        queue.put(0, SIZE, 0, 0)
        assert queue.dirty_from < queue.end

    asyncio.run(work())


def test_store_whose_queues_fail_to_sync_says_so() -> None:
    """Several queues are synced at a time: the first failure must come out as what it is."""
    loop, disk = SimLoop(), new_disk()

    async def work() -> None:
        store, _ = await _dirty_store(loop, disk)
        disk.mood.failing = True
        with pytest.raises(DiskFailed):
            await store.flush_queues()
        await store.close()

    simulate(work(), loop)
    loop.close()


@pytest.mark.slow
def test_thousand_queues_with_two_messages_take_little_disk(tmp_path: Path) -> None:
    """With all their blocks they took 5.7 GB, where Java's take 4 MB."""

    async def work() -> None:
        store = real_store(tmp_path, mapped_file_size_consume_queue=300_000 * UNIT.size)
        await store.open()
        for number in range(2_000):
            store.append(message(number, topic=_topic(number % 1_000)))
        await store.wait_dispatched(store.max_offset)
        await store.close()
        queues = list((tmp_path / "consumequeue").rglob("0*0"))
        files = [path for path in queues if path.is_file()]
        assert len(files) == 1_000
        assert sum(path.stat().st_blocks * 512 for path in files) <= 1_000 * 8_192
        assert all(path.stat().st_size == 300_000 * UNIT.size for path in files)

    asyncio.run(work())


def test_queues_on_a_full_disk_stop_the_store_with_an_error_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write to a page without a block ends the process with SIGBUS: no error, no flush, no log."""
    honest, left = os.posix_fallocate, 100

    def full(fd: int, offset: int, length: int) -> None:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        left -= 1
        honest(fd, offset, length)

    async def work() -> None:
        nonlocal left
        store = real_store(tmp_path)
        await store.open()
        monkeypatch.setattr(os, "posix_fallocate", full)
        for number in range(QUEUES):
            store.append(message(number, topic=_topic(number), body=b"%d" % number))
        with pytest.raises(DiskFull, match="No space left"):
            await store.wait_dispatched(store.max_offset)
        with pytest.raises(DiskFailed):
            store.append(message(0))
        await store.close()
        left = 10 * QUEUES
        again = real_store(tmp_path)
        await again.open()
        for number in range(QUEUES):
            assert bodies(again, topic=_topic(number)) == [b"%d" % number]
        await again.close()

    asyncio.run(work())
