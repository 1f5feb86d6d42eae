"""Files that expire: nobody waits for their deletion, and a crash in the middle of it leaves a store."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from rmqha.sim.loop import SimLoop
from rmqha.store import checkpoint as cp
from rmqha.store import recovery
from rmqha.store.aio import queue_files
from rmqha.store.aio.mapped_files import MappedFiles
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.consume_queue import UNIT
from tests.store.harness import (
    ROOT,
    TOPIC,
    bodies,
    message,
    new_disk,
    put,
    real_store,
    sim_store,
    simulate,
)

COUNT, GONE = 400, 3
INDEX = {"message_index_enable": True, "max_hash_slot_num": 10, "max_index_num": 40}
SETTINGS = {"file_reserved_time": 0, "expire_interval_ms": 1 << 30}


async def filled(store: MessageStore) -> MessageStore:
    """An open store of four files, durable and dispatched."""
    await store.open()
    for number in range(COUNT):
        store.append(message(number, body=b"%032d" % number))
    await store.wait_dispatched(store.max_offset)
    await store.flush_all()
    await store.flush_queues()
    return store


def hold_removals(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let no file go from the disk until the event is set."""
    gate, remove = asyncio.Event(), store._disk.remove

    async def slow(path: str) -> None:
        await gate.wait()
        await remove(path)

    monkeypatch.setattr(store._disk, "remove", slow)
    return gate


async def test_flush_when_files_are_being_deleted_then_it_waits_for_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a thousand queues a put of SYNC_FLUSH waited nearly two seconds."""
    store = await filled(real_store(tmp_path, flush_disk_type="SYNC_FLUSH", **SETTINGS))
    gate = hold_removals(store, monkeypatch)
    expiring = asyncio.create_task(store.expiring.expire(is_asked=True))
    try:
        async with asyncio.timeout(5):
            while not store.min_offset:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)
            await put(store, message(COUNT))
            await store.wait_dispatched(store.max_offset)
            await store.flush_queues()
            await store._write_checkpoint()
    finally:
        gate.set()
        assert await expiring == GONE
    assert len(os.listdir(tmp_path / "commitlog")) == 1
    await store.close()


async def test_minimum_when_files_expire_then_it_is_told_before_the_first_of_them_goes(
    tmp_path: Path,
) -> None:
    """Between the two the master sent slaves what was gone."""
    store = await filled(real_store(tmp_path, **SETTINGS))
    told: list[tuple[int, int]] = []
    store.expiring._on_prefix_cut = lambda offset: told.append(
        (offset, len(os.listdir(tmp_path / "commitlog")))
    )
    assert await store.expiring.expire(is_asked=True) == GONE
    assert told == [(store.min_offset, 1 + GONE)]
    await store.close()


async def test_files_when_two_rounds_overlap_then_the_older_ones_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash after the younger would leave a gap, and a log with one is refused."""
    store = await filled(real_store(tmp_path, **SETTINGS))
    gone: list[str] = []
    remove = store._disk.remove

    async def slow(path: str) -> None:
        await asyncio.sleep(0.002)
        if "commitlog" in path:
            gone.append(path)
        await remove(path)

    monkeypatch.setattr(store._disk, "remove", slow)
    expiring = asyncio.create_task(store.expiring.expire(is_asked=True))
    while not store.min_offset:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    for number in range(COUNT):
        store.append(message(number))
    await store.wait_dispatched(store.max_offset)
    await store.flush_all()
    assert await store.expiring.expire(is_asked=True) > 0
    assert await expiring == GONE
    assert gone == sorted(gone)
    assert len(gone) > GONE
    await store.close()


@pytest.mark.parametrize("removals", [0, 1, 2, GONE, GONE + 1, GONE + 4, 99])
def test_store_when_the_power_goes_while_files_do_then_it_opens_with_all_that_stays(
    removals: int,
) -> None:
    """Some of the files are there again, of the log and of queues alike, and expire once more."""
    loop, disk = SimLoop(), new_disk()

    async def story() -> None:
        store = await filled(sim_store(loop, disk, **SETTINGS, **INDEX))
        while store.indexes.position < store.max_offset:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        low = await expire_some(store, removals)
        disk.power_cut()
        await store._tasks.close()
        again = sim_store(loop, disk, **SETTINGS, **INDEX)
        await again.open()
        assert again.min_offset == min(removals, GONE) * again.file_size
        found = bodies(again)
        assert found[found.index(b"%032d" % low) :] == [b"%032d" % n for n in range(low, COUNT)]
        assert again.append(message(COUNT, body=b"%032d" % COUNT)).queue_offset == COUNT
        await again.flush_all()
        await again.wait_dispatched(again.max_offset)
        assert await again.expiring.expire(is_asked=True) == max(0, GONE - removals)
        assert bodies(again) == [b"%032d" % n for n in range(low, COUNT + 1)]
        assert len(await disk.list_dir(f"{ROOT}/commitlog")) == 1
        await again.close()

    async def expire_some(store: MessageStore, count: int) -> int:
        """Expire until so many files have gone; the lowest offset of the queue then."""
        gone, remove = 0, disk.remove

        async def slow(path: str) -> None:
            nonlocal gone
            if gone >= count:
                await asyncio.Event().wait()
            gone += 1
            await remove(path)

        disk.remove = slow  # type: ignore[method-assign]
        expiring = asyncio.create_task(store.expiring.expire(is_asked=True))
        await asyncio.sleep(5)
        assert store.min_offset == GONE * store.file_size
        expiring.cancel()
        disk.remove = remove  # type: ignore[method-assign]
        return store.reader.min_offset(TOPIC, 0)

    simulate(story(), loop)
    loop.close()


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/FooBar/0"])
@pytest.mark.parametrize("clean", [True, False])
async def test_store_when_only_one_of_log_and_queue_has_lost_its_first_files_then_it_opens(
    tmp_path: Path, folder: str, *, clean: bool
) -> None:
    """Whichever a crash leaves behind, what both have is read, and what comes next is numbered on."""
    store = await filled(real_store(tmp_path, **SETTINGS))
    await store.close()
    names = sorted(os.listdir(tmp_path / folder))
    for name in names[:2]:
        (tmp_path / folder / name).unlink()
    if not clean:
        (tmp_path / "abort").write_text("1")
    again = real_store(tmp_path, **SETTINGS)
    assert (await again.open()).clean is clean
    low = again.reader.min_offset(TOPIC, 0)
    # What a queue lacks is made from the log once more: after a stop in order a list tells of it.
    assert (low > 0) is (folder == "commitlog")
    assert bodies(again) == [b"%032d" % n for n in range(low, COUNT)]
    assert again.append(message()).queue_offset == COUNT
    assert await again.expiring.expire(is_asked=True) == (1 if folder == "commitlog" else GONE)
    await again.close()


async def test_queue_when_it_begins_anew_while_its_old_files_go_then_its_new_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first file of the topic's next life has the name of one that is still to be deleted."""
    store = await filled(real_store(tmp_path, **SETTINGS))
    queue = store.queues.queues[TOPIC.encode(), 0]
    first = queue.files.files[0].path
    gate, remove = asyncio.Event(), store._disk.remove

    async def slow(path: str) -> None:
        if path == first:
            await gate.wait()
        await remove(path)

    monkeypatch.setattr(store._disk, "remove", slow)
    assert queue.expire(store.max_offset) > 1
    removing = asyncio.create_task(queue.files.remove_left())
    clearing = asyncio.create_task(queue.clear())
    done, _ = await asyncio.wait({clearing}, timeout=0.1)
    gate.set()
    await clearing
    assert not done
    assert queue.put(store.max_offset, 100, 0, 0)
    await removing
    assert queue.files.files[0].path == first
    assert os.path.exists(first)
    await store.close()


async def test_file_when_its_forerunner_is_still_to_be_deleted_then_it_is_not_made(
    tmp_path: Path,
) -> None:
    """It would be deleted in its place."""
    store = await filled(real_store(tmp_path, **SETTINGS))
    files: MappedFiles = store.queues.queues[TOPIC.encode(), 0].files
    assert files.leave_before(files.end) > 0
    with pytest.raises(ValueError, match="is being deleted"):
        files.make_for(UNIT.size)
    await files.remove_left()
    files.make_for(UNIT.size)
    assert os.path.exists(files.path(0))
    await store.close()


async def test_index_files_when_given_up_then_they_are_deleted(tmp_path: Path) -> None:
    """Nobody else would: until the next start they would fill the disk."""
    store = real_store(tmp_path, **SETTINGS, **INDEX)
    await store.open()
    for number in range(COUNT):
        store.append(message(number, properties=b"KEYS\x01k%d" % number))
    await store.flush(store.max_offset)
    await store.wait_dispatched(store.max_offset)
    await store.indexes.finish()
    files = sorted((tmp_path / "index").iterdir())
    assert len(files) > 2
    gone = store.indexes.expire(store.max_offset)
    assert gone == [str(one) for one in files[:-1]]
    await store.indexes.remove(gone)
    assert not [one for one in gone if Path(one).exists()]
    await store.close()


class Full:
    """A disk that is nearly full, whatever goes."""

    def __call__(self) -> float:
        return 0.99

    def of_queues(self) -> float:
        return 0.99


async def test_file_when_its_first_record_is_damaged_then_those_before_it_go_all_the_same(
    tmp_path: Path,
) -> None:
    """One rotten page kept every file, on a disk so full that the broker refused all writes."""
    store = await filled(real_store(tmp_path, **SETTINGS))
    size = store.file_size
    file, _ = store.commit_log.files.at(size)
    file.buffer[:4] = b"\0\0\0\1"
    store.expiring._disk_use = Full()
    assert await store.expiring.expire() == GONE
    assert store.min_offset == GONE * size
    await store.close()


async def test_record_that_expires_is_damaged_no_more(tmp_path: Path) -> None:
    """It was told for ever, and kept each pull from the quick way."""
    store = await filled(real_store(tmp_path, **SETTINGS))
    store.mending.met(0, "rot")
    store.mending.met(GONE * store.file_size, "rot")
    assert await store.expiring.expire(is_asked=True) == GONE
    assert list(store.mending.damaged) == [GONE * store.file_size]
    await store.close()


async def test_look_when_it_is_not_the_hour_then_no_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a cold store each was a page from the disk, in the loop, every ten seconds."""
    looked: list[int] = []
    real = recovery.first_timestamp

    def counted(segment: recovery.Segment) -> int:
        looked.append(segment.start)
        return real(segment)

    monkeypatch.setattr(recovery, "first_timestamp", counted)
    store = await filled(real_store(tmp_path, **SETTINGS | {"delete_when": ()}))
    looked.clear()
    assert await store.expiring.expire() == 0
    assert looked == []
    await store.close()
    settings = SETTINGS | {"delete_when": range(24), "file_reserved_time": 72}
    store = await filled(real_store(tmp_path / "kept", **settings))
    looked.clear()
    assert await store.expiring.expire() == 0
    assert looked == [store.file_size], "the first file that stays ends it"
    await store.close()


async def test_kill_after_files_went_that_the_checkpoint_never_heard_of_leaves_a_store(
    tmp_path: Path,
) -> None:
    """The rest began behind what was known to be durable, so files seemed to be missing."""
    store = real_store(tmp_path / "a", flush_checkpoint_interval_ms=1 << 30, **SETTINGS)
    await store.open()
    await put(store, message())
    await store._write_checkpoint()
    while store.max_offset < 2 * store.file_size:
        store.append(message(body=bytes(3_000)))
    await store.flush_all()
    await store.wait_dispatched(store.max_offset)
    assert await store.expiring.expire(is_asked=True)
    shutil.copytree(tmp_path / "a", tmp_path / "killed")
    end = store.max_offset
    await store.close()
    again = real_store(tmp_path / "killed")
    await again.open()
    assert (again.min_offset, again.max_offset) == (2 * again.file_size, end)
    await again.close()


async def test_queue_when_its_files_expire_then_each_is_asked_for_its_last_unit_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To search one read a dozen pages of it, under the dispatcher's lock, of each queue."""
    store = await filled(real_store(tmp_path, **SETTINGS))
    queue = next(iter(store.queues.queues.values()))
    before = len(queue.files.files)
    searched: list[int] = []
    monkeypatch.setattr(queue_files, "first_live", lambda *asked: searched.append(1) or 0)
    assert await store.expiring.expire(is_asked=True) == GONE
    assert 1 < len(queue.files.files) < before
    assert searched == []
    monkeypatch.undo()
    assert bodies(store)[-1] == b"%032d" % (COUNT - 1)
    await store.close()


@pytest.mark.parametrize("lacking", ["durable", "dispatched", "nothing"])
async def test_files_when_they_are_not_durable_or_not_dispatched_then_they_stay(
    tmp_path: Path, lacking: str
) -> None:
    """What is in no queue yet would never be delivered, and what no disk has is in page cache only."""
    store = real_store(
        tmp_path, enable_controller_mode=True, flush_interval_commit_log=1 << 30, **SETTINGS
    )
    await store.open()
    ends = [store.append(message(number, body=bytes(500))).end for number in range(100)]
    half = next(end for end in ends if end > 2 * store.file_size)
    store.set_confirm_offset(half if lacking == "dispatched" else ends[-1])
    await store.wait_dispatched(store.limit())
    if lacking != "durable":
        await store.flush_all()
    whole_files = ends[-1] // store.file_size
    assert whole_files > 2
    expected = {"durable": 0, "dispatched": 2, "nothing": whole_files}[lacking]
    assert await store.expiring.expire(is_asked=True) == expected
    assert store.min_offset == expected * store.file_size
    await store.close()


async def test_minimum_when_the_log_was_cut_while_files_were_to_go_then_nobody_is_told_of_one(
    tmp_path: Path,
) -> None:
    """The epochs of what lies before it would be dropped once more, by a place that may be stale."""
    store = await filled(real_store(tmp_path, **SETTINGS))
    told: list[int] = []
    store.expiring._on_prefix_cut = told.append
    async with store.dispatcher.lock:
        expiring = asyncio.create_task(store.expiring.expire(is_asked=True))
        await asyncio.sleep(0)
        # As a cut leaves it: nothing behind it is durable.
        store.flusher.flushed_offset = 0
    assert await expiring == 0
    assert told == []
    await store.close()


async def test_queues_when_a_start_finds_nothing_whole_in_what_had_not_expired_then_they_begin_anew(
    tmp_path: Path,
) -> None:
    """As after a cut that leaves nothing: what expired is no beginning for the next message."""
    store = await filled(real_store(tmp_path, **SETTINGS))
    assert await store.expiring.expire(is_asked=True) == GONE
    begin = store.min_offset
    await store.close()
    (tmp_path / "commitlog" / f"{begin:020}").write_bytes(bytes(store.file_size))
    (tmp_path / cp.ABORT).touch()
    content = bytearray((tmp_path / "checkpoint").read_bytes())
    known = cp.read(content)
    known.flushed_offset = begin
    cp.write_into(content, known)
    (tmp_path / "checkpoint").write_bytes(content)
    again = real_store(tmp_path, **SETTINGS)
    await again.open()
    assert again.reader.max_offset(TOPIC, 0) == 0
    assert again.append(message(body=b"new")).queue_offset == 0
    await again.wait_dispatched(again.max_offset)
    assert bodies(again) == [b"new"]
    await again.close()
