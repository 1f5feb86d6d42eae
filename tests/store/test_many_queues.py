"""Many queues at once: making them durable holds up neither a cut nor whatever removes files."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path

import pytest

from rmqha.base.errors import DiskFailed
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.logs import Logger
from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import SimLoop
from rmqha.sim.pages import SimPages
from rmqha.store.aio.consume_queues import ConsumeQueues
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


@pytest.mark.costly
def test_queues_on_a_full_disk_wait_for_room_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A write to a page without a block ends the process with SIGBUS: no error, no flush, no log. And a
    store that stops at a full disk, or does not open on one, cannot delete what has expired."""
    honest, left = os.posix_fallocate, 100

    def full(fd: int, offset: int, length: int) -> None:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        left -= 1
        honest(fd, offset, length)

    async def until_full(store: MessageStore) -> None:
        async with asyncio.timeout(10):
            while not store.dispatcher.lacks_space:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)

    async def work() -> None:
        nonlocal left
        store = real_store(tmp_path)
        await store.open()
        monkeypatch.setattr(os, "posix_fallocate", full)
        for number in range(QUEUES):
            store.append(message(number, topic=_topic(number), body=b"%d" % number))
        await until_full(store)
        await store.flush_all()
        dispatched = store.dispatched_offset
        assert 0 < dispatched < store.max_offset
        assert store.failed is None
        await store.close()
        assert store.failed is None
        # The next start comes as far, and waits as well.
        again = real_store(tmp_path)
        found = await again.open()
        assert not found.clean
        await until_full(again)
        assert again.dispatched_offset < again.max_offset
        left = 10 * QUEUES
        await again.wait_dispatched(again.max_offset)
        for number in range(QUEUES):
            assert bodies(again, topic=_topic(number)) == [b"%d" % number]
        await again.close()
        printed = capsys.readouterr().out
        assert printed.count("dispatch_lacks_space") == 2
        assert printed.count("dispatch_has_space") == 1

    asyncio.run(work())


@pytest.mark.costly
@pytest.mark.parametrize("run", [False, True])
async def test_sync_when_few_queues_were_written_to_then_no_other_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, run: bool
) -> None:
    """Eighty thousand idle queues took a twelfth of a processor, and held up the loop each second."""
    store = real_store(tmp_path, flush_interval_consume_queue=PERIOD_MS)
    await store.open()
    await _put_all(store, b"first")
    await store.flush_queues()
    assert not store.queues.dirty
    synced: list[str] = []
    sync = QueueFiles.sync

    async def seen(self: QueueFiles) -> None:
        synced.append(self.files.directory.rsplit("/", 2)[1])
        await sync(self)

    monkeypatch.setattr(QueueFiles, "sync", seen)
    await store.flush_queues()
    assert synced == []
    written = [7, 3, 50]
    for number in written:
        for _ in range(3 if run else 1):
            store.append(message(number, topic=_topic(number)))
        if not run:
            await store.wait_dispatched(store.max_offset)
    await store.wait_dispatched(store.max_offset)
    await store.flush_queues()
    assert sorted(synced) == [_topic(number) for number in sorted(written)]
    assert all(queue.end == queue.dirty_from for queue in store.queues.queues.values())
    await store.close()


@pytest.mark.costly
async def test_sync_when_it_fails_or_is_given_up_then_nothing_counts_as_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was taken to be synced and was not has to be taken again."""
    store = real_store(tmp_path, flush_interval_consume_queue=PERIOD_MS)
    await store.open()
    await _put_all(store, b"first")
    written = set(store.queues.dirty)
    assert len(written) == QUEUES
    never = asyncio.Event()

    async def stuck(self: QueueFiles) -> None:
        await never.wait()

    with monkeypatch.context() as patched:
        patched.setattr(QueueFiles, "sync", stuck)
        given_up = asyncio.create_task(store.queues.sync())
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
    assert set(store.queues.dirty) == written

    async def broken(self: QueueFiles) -> None:
        raise DiskFailed("no")

    with monkeypatch.context() as patched:
        patched.setattr(QueueFiles, "sync", broken)
        with pytest.raises(DiskFailed):
            await store.queues.sync()
    assert set(store.queues.dirty) == written

    async def cut_meanwhile(self: QueueFiles) -> None:
        """As one does during which the queue was cut: it leaves open what is durable."""

    with monkeypatch.context() as patched:
        patched.setattr(QueueFiles, "sync", cut_meanwhile)
        await store.queues.sync()
    assert set(store.queues.dirty) == written
    await store.queues.sync()
    assert not store.queues.dirty
    await store.close()


@pytest.mark.slow
async def test_queues_when_the_store_was_not_closed_then_all_are_synced_before_it_is_open(
    tmp_path: Path,
) -> None:
    """What a killed process left in memory may not be on the disk."""
    store = real_store(tmp_path, flush_interval_consume_queue=PERIOD_MS)
    await store.open()
    await _put_all(store, b"first")
    await store.flush(store.max_offset)
    shutil.copytree(tmp_path, tmp_path / "again", ignore=shutil.ignore_patterns("again"))
    await store.close()
    (tmp_path / "again" / "abort").touch()
    store = real_store(tmp_path / "again", flush_interval_consume_queue=PERIOD_MS)
    await store.open()
    assert len(store.queues.queues) == QUEUES
    assert all(queue.end == queue.dirty_from for queue in store.queues.queues.values())
    await store.close()


@pytest.mark.parametrize("files", [1, 2, 3])
async def test_old_units_when_the_log_has_none_of_their_records_then_all_files_but_the_last_go(
    tmp_path: Path, files: int
) -> None:
    size = UNITS_A_FILE * UNIT.size
    store = real_store(tmp_path, mapped_file_size_consume_queue=size)
    await store.open()
    for number in range(files * UNITS_A_FILE):
        store.append(message(number))
    await store.wait_dispatched(store.max_offset)
    (queue,) = store.queues.queues.values()
    assert len(queue.files.files) == files
    await store.queues.expire(store.max_offset)
    assert len(queue.files.files) == 1
    await store.close()


@pytest.mark.costly
async def test_queues_when_read_after_a_crash_then_those_that_may_not_be_durable_are_known(
    tmp_path: Path,
) -> None:
    store = real_store(tmp_path)
    await store.open()
    await _put_all(store, b"first")
    await store.close()
    for clean in (True, False):
        queues = ConsumeQueues(SystemDisk(), store.settings, Logger(node="test"))
        await queues.load(clean=clean)
        open_ends = {key for key, one in queues.queues.items() if one.end > one.dirty_from}
        assert len(open_ends) == (0 if clean else QUEUES)
        assert open_ends <= queues.dirty.keys()
        await queues.sync()
        assert not queues.dirty
        assert all(queue.end == queue.dirty_from for queue in queues.queues.values())
        queues.close()


def test_cut_when_it_takes_the_last_record_of_a_queue_then_its_unit_goes() -> None:
    """Of hundreds of queues, those alone are looked at that have a unit to lose."""
    loop, disk = SimLoop(), new_disk()

    async def work() -> None:
        store, middle = await _dirty_store(loop, disk)
        lost = store.append(message(0, topic=_topic(5), body=b"last")).offset
        await store.wait_dispatched(store.max_offset)
        await store.truncate(lost)
        assert bodies(store, topic=_topic(5)) == [b"kept", b"cut"]
        assert store.queues.queues[_topic(5).encode(), 0].count_end == 2
        await store.truncate(middle)
        for number in range(QUEUES):
            assert bodies(store, topic=_topic(number)) == [b"kept"]
        await store.close()

    simulate(work(), loop)
    loop.close()
