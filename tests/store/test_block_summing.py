"""Sums of a log's blocks beside a store: made, kept, read again, thrown away, and missed by nobody."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqha.base.errors import DiskFull
from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import HOST, SimLoop
from rmqha.store.aio import block_summing
from rmqha.store.aio.block_summing import FOLDER
from rmqha.store.aio.message_store import MessageStore
from tests.store.harness import message, new_disk, real_store, sim_store, simulate
from tests.store.test_proving import BLOCK, small_blocks

COUNT = 300
SETTINGS: dict[str, Any] = {"unchecked_tail_bytes": 0}


async def opened(root: Path, **changes: Any) -> MessageStore:
    store = small_blocks(real_store(root, **SETTINGS, **changes))
    await store.open()
    return store


async def filled(root: Path, *, first: int = 0) -> MessageStore:
    """A store with some files, all of it durable and summed."""
    store = await opened(root)
    fill(store, first)
    await store.flush(store.max_offset)
    await store.proving.summing.sum_up(store.flushed_offset, store.max_offset)
    return store


def fill(store: MessageStore, first: int, count: int = COUNT) -> None:
    sizes = random.Random(first)
    for number in range(first, first + count):
        store.append(message(number, body=b"b" * sizes.randint(1, 600)))


async def read_all(store: MessageStore) -> tuple[int, int]:
    """As a slave does: how many batches could go at once, and how many were waited for."""
    offset = max(0, store.min_offset)
    counts = [0, 0]
    while offset < store.max_offset:
        length = store.readable(offset, 1_700)
        now = store.is_proven(offset, length)
        assert now or await store.prove(offset, length)
        counts[not now] += 1
        offset += length
    return counts[0], counts[1]


def records(store: MessageStore) -> list[int]:
    """Where the records of a log begin."""
    found, at = [], 0
    while at < store.max_offset:
        size = store.commit_log.check(at)[1].size
        if size:
            found.append(at)
        at = at + size if size else store.commit_log.file_end(at)
    return found


async def cut_somewhere(store: MessageStore, rng: random.Random, low: int) -> None:
    """Between two records."""
    at = rng.randrange(low, store.max_offset)
    await store.truncate(await store.commit_log.record_start(at, 0))


def names(root: Path) -> list[str]:
    folder = root / FOLDER
    return sorted(one.name for one in folder.iterdir()) if folder.exists() else []


async def test_bit_outside_of_a_record_s_crc_when_it_flips_then_it_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The body's CRC says nothing of a topic, nor of when a message was stored."""
    store = await filled(tmp_path)
    await store.close()
    store = await opened(tmp_path)
    await store.proving.summing.load(0)
    buffer, head = store.commit_log.check(0)
    buffer[head.body_at - 30] ^= 1
    for _ in range(2):
        assert await store.prove(0, store.readable(0, 5_000)), "its records are whole"
    assert store.proving.summing.differing == {0}
    assert capsys.readouterr().out.count("block_differs") == 1
    buffer[head.body_at - 30] ^= 1
    store.proving._streams.clear()  # who comes anew
    assert await store.prove(0, store.readable(0, 5_000))
    assert not store.proving.summing.differing, "as it was"
    await store.close()


async def test_store_when_it_was_not_closed_then_only_what_had_no_sum_is_judged_by_its_records(
    tmp_path: Path,
) -> None:
    """A crash leaves sums of full files, and of no other: records lie across that border."""
    store = await filled(tmp_path)
    files = len(store.commit_log.segments())
    assert files > 3
    assert len(names(tmp_path)) == files - 1, "full ones"
    again = tmp_path / "again"
    shutil.copytree(tmp_path, again, ignore=shutil.ignore_patterns("again", "lock"))
    (again / "abort").touch()
    await store.close()
    assert len(names(tmp_path)) == files
    store = await opened(again)
    at_once, waited = await read_all(store)
    assert waited <= files + 1, "the sums of each file, and the border"
    assert at_once > 5 * waited
    at_once, waited = await read_all(store)
    assert waited <= 1
    await store.close()


@pytest.mark.costly
async def test_log_when_it_is_cut_and_goes_on_otherwise_then_no_sum_speaks_of_what_was_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = await filled(tmp_path)
    await store.proving.summing.finish(store.max_offset)
    before, rng = names(tmp_path), random.Random(5)
    for turn in range(5):
        await cut_somewhere(store, rng, store.max_offset // 2)
        assert len(names(tmp_path)) <= len(store.commit_log.segments())
        fill(store, 1_000 * (turn + 1), 60)
        await store.flush(store.max_offset)
        await store.proving.summing.sum_up(store.flushed_offset, store.max_offset)
        sums, at = store.proving.summing.sums, 0
        while (end := sums.bounds(at)[1]) <= store.max_offset:
            await store.proving.summing.load(at)
            assert sums.find(at) is not None, "behind the cut as well"
            at = end
        await store.proving.summing.finish(store.max_offset)
        # Everything is looked at, as if it came from the disk.
        store.cold.from_disk_to = store.max_offset
        await read_all(store)
    assert names(tmp_path) != before or len(before) > 1
    await store.close()
    store = await opened(tmp_path)
    await read_all(store)
    assert "block_differs" not in capsys.readouterr().out
    await store.close()


async def test_range_when_it_was_sent_before_and_a_bit_flips_then_it_is_not_sent_again(
    tmp_path: Path,
) -> None:
    """One slave after another was served what had been proven for the first."""
    store = await filled(tmp_path)
    await store.close()
    store = await opened(tmp_path)
    await read_all(store)
    buffer, head = store.commit_log.check(0)
    buffer[head.body_at] ^= 1
    assert not store.is_proven(0, 1_700)
    assert not await store.prove(0, 1_700)
    assert store.proving.summing.differing == {0}
    record = bytearray(buffer[: head.size])
    await store.rewrite(0, bytes(record))
    assert store.proving.summing.differing == {0}, "no better"
    record[head.body_at] ^= 1
    await store.rewrite(0, bytes(record))
    assert not store.proving.summing.differing
    await store.close()


async def test_end_of_the_log_when_it_changes_while_nobody_looks_then_no_sum_says_that_it_is_well(
    tmp_path: Path,
) -> None:
    """The last block is half from the disk when it is full."""
    store = await filled(tmp_path)
    await store.close()
    store = await opened(tmp_path)
    end = store.max_offset
    summed = store.proving.summing.sums.find(end - 1)
    assert summed is not None
    assert summed.begin < summed.end == end
    at = await store.commit_log.record_start(end - 1, 0)
    await store.close()
    path = tmp_path / "commitlog" / f"{store.proving.summing.sums.file_of(at):020}"
    raw = bytearray(path.read_bytes())
    raw[at % store.file_size + 47] ^= 1  # of the time of its birth: no CRC covers it
    path.write_bytes(raw)
    store = await opened(tmp_path)
    fill(store, 7_000)
    await store.flush(store.max_offset)
    await store.proving.summing.sum_up(store.flushed_offset, store.max_offset)
    sums = store.proving.summing.sums
    assert sums.find(summed.begin) == summed, (
        "nothing else is vouched for: it was not what it had been"
    )
    assert await store.prove(at, 200), "by its record"
    assert store.proving.summing.differing == {summed.begin}
    assert sums.find(sums.bounds(end)[1]) is not None, "the next one is our own"
    await store.close()


@pytest.mark.costly
async def test_sums_when_they_are_of_a_longer_log_then_they_count_as_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another broker has had the store meanwhile, one of Java's perhaps, and has cut it."""
    store = await filled(tmp_path)
    await store.proving.summing.finish(store.max_offset)
    shutil.copytree(tmp_path / FOLDER, tmp_path / "kept")
    await cut_somewhere(store, random.Random(3), store.max_offset // 2)
    await store.close()
    shutil.copytree(tmp_path / "kept", tmp_path / FOLDER, dirs_exist_ok=True)
    store = await opened(tmp_path)
    assert len(names(tmp_path)) == len(store.commit_log.segments())
    fill(store, 9_000)
    await store.close()
    store = await opened(tmp_path)
    await read_all(store)
    assert "block_differs" not in capsys.readouterr().out
    await store.close()


@pytest.mark.costly
@pytest.mark.parametrize("when", ["before", "within", "beside", "behind"])
async def test_sums_when_they_are_taken_while_the_log_is_cut_then_none_is_of_what_is_gone(
    tmp_path: Path, when: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave is served, and the rounds of each half second go on, while an election cuts the log."""
    store = await opened(tmp_path)
    fill(store, 0)
    await store.flush(store.max_offset)
    store.cold.from_disk_to = store.max_offset
    summing, end = store.proving.summing, store.max_offset
    cut = store.commit_log.cut

    async def others() -> None:
        await read_all(store)
        await summing.sum_up(end, 0)
        await summing.finish(store.max_offset)

    async def meanwhile(offset: int, record_start: int) -> int:
        if when == "within":
            await others()
        erased = await cut(offset, record_start)
        if when == "behind":  # a round that began when the log was longer
            await summing.sum_up(end, 0)
        return erased

    monkeypatch.setattr(store.commit_log, "cut", meanwhile)
    at = await store.commit_log.record_start(end // 3, 0)
    beside = asyncio.create_task(summing.sum_up(0 if when == "behind" else end, 0))
    if when != "before":
        await asyncio.sleep(0)
    if when == "before":
        await beside
        await others()
    await store.truncate(at)
    await beside
    assert max(start for start in summing.sums.files) <= at
    assert len(names(tmp_path)) <= len(store.commit_log.segments())
    assert summing.sums.find(at + BLOCK) is None
    fill(store, 5_000)
    store.cold.from_disk_to = store.max_offset
    await read_all(store)
    assert "block_differs" not in capsys.readouterr().out
    await store.close()
    store = await opened(tmp_path)
    await read_all(store)
    assert "block_differs" not in capsys.readouterr().out
    assert store.failed is None
    await store.close()


async def test_log_when_it_has_more_files_than_sums_are_kept_of_then_they_are_read_again_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_summing, "FILES_MAX", 2)
    store = await filled(tmp_path)
    await store.close()
    store = await opened(tmp_path)
    files = len(store.commit_log.segments())
    assert files > 4
    for _ in range(2):
        _, waited = await read_all(store)
        assert waited >= files - 2, "once a file"
        assert len(store.proving.summing.sums.files) == 2
    assert not store.proving.summing.differing
    await store.close()


async def test_sums_when_nothing_new_was_written_then_no_file_of_them_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path)
    summing, written = store.proving.summing, []
    write = summing._disk.write_atomic

    async def seen(path: str, data: bytes) -> None:
        written.append(path)
        await write(path, data)

    monkeypatch.setattr(summing._disk, "write_atomic", seen)
    await summing.finish(store.max_offset)
    assert len(written) == 1, "that of the last file"
    for _ in range(3):
        await summing.sum_up(store.flushed_offset, store.max_offset)
    assert len(written) == 1
    await store.close()


async def test_file_when_it_expires_then_its_sums_go_too(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    await store.proving.summing.finish(store.max_offset)
    kept = names(tmp_path)
    store.commit_log.files.leave_before(2 * store.file_size)
    await store.commit_log.files.remove_left()
    await store.proving.summing.sum_up(store.flushed_offset, store.max_offset)
    assert names(tmp_path) == kept[2:]
    await read_all(store)
    await store.close()
    # Also where they went while nobody looked.
    for name in names(tmp_path)[:1]:
        (tmp_path / "commitlog" / name).unlink()
    store = await opened(tmp_path)
    assert names(tmp_path) == kept[3:]
    await store.close()


async def test_sums_when_they_cannot_be_written_or_read_then_the_store_goes_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = await opened(tmp_path)
    write = store.proving.summing._disk.write_atomic

    async def full(path: str, data: bytes) -> None:
        if FOLDER in path:
            raise DiskFull("no space")
        await write(path, data)

    monkeypatch.setattr(store.proving.summing._disk, "write_atomic", full)
    fill(store, 0)
    await store.flush(store.max_offset)
    await store.proving.summing.sum_up(store.flushed_offset, store.max_offset)
    await store.truncate(store.max_offset - 100)
    assert "block_sums_not_saved" in capsys.readouterr().out
    for _ in range(100):
        await store.proving.summing.sum_up(store.flushed_offset, store.max_offset)
    assert "block_sums_not_saved" not in capsys.readouterr().out, "once a minute is enough"
    assert store.failed is None
    monkeypatch.undo()
    await store.close()
    files = names(tmp_path)
    assert files, "tried again"
    for name in files:
        (tmp_path / FOLDER / name).write_bytes(b"what is this?")
    store = await opened(tmp_path)
    _, waited = await read_all(store)
    assert waited >= len(files) - 1
    assert store.failed is None
    await store.close()


async def life(loop: SimLoop, disk: SimDisk, rng: random.Random) -> int:
    """Of a process, to its end or to a power cut: how many sums it found and held against the log."""
    HOST.set("store")
    store = sim_store(loop, disk, **SETTINGS)
    summing = small_blocks(store).proving.summing
    await store.open()
    if store.max_offset:
        await read_all(store)
    assert not summing.differing
    known = sum(bool(one) for file in summing.sums.files.values() for one in file.lengths)
    fill(store, rng.randrange(1_000), rng.randrange(20, 120))
    if rng.random() < 0.8:
        await store.flush(store.max_offset)
    await summing.sum_up(store.flushed_offset, store.max_offset)
    if rng.random() < 0.4:
        await cut_somewhere(store, rng, 0)
    fill(store, rng.randrange(1_000), rng.randrange(60))
    if rng.random() < 0.2:
        await store.close()
    HOST.set(None)
    disk.power_cut()
    loop.end_host("store")
    await asyncio.sleep(0)
    return known


@pytest.mark.costly
def test_store_when_the_power_goes_then_no_sum_is_of_bytes_that_were_never_there() -> None:
    """Sums are of what is durable; what a power cut takes from the log, no sum knows."""
    told = 0
    for seed in range(40):
        loop, disk, rng = SimLoop(), new_disk(seed), random.Random(seed)
        try:
            told += sum(simulate(life(loop, disk, rng), loop) for _ in range(4))
        finally:
            loop.close()
    assert told > 500


@pytest.mark.parametrize("at", [60, 5])
async def test_blocks_when_they_were_received_then_only_whole_records_get_sums(
    tmp_path: Path, at: int
) -> None:
    """What came damaged from a master's disk had sums, went on to other slaves, and nobody was told."""
    master = await filled(tmp_path / "master")
    slave = small_blocks(
        real_store(tmp_path / "slave", flush_interval_commit_log=1 << 30, **SETTINGS)
    )
    await slave.open()
    places = records(master)
    damaged, flipped = places[at], places[at] + 100
    for begin in range(0, master.max_offset, master.file_size):
        data = bytearray(master.view(begin, master.readable(begin, master.file_size)))
        if begin <= flipped < begin + len(data):
            data[flipped - begin] ^= 1
        slave.reserve(begin, len(data))[:] = data
        slave.received(begin, len(data))
    await slave._flush_and_sum()
    summing, end = slave.proving.summing, places[at + 1]
    lacking = [
        one for one in range(0, slave.max_offset - BLOCK, BLOCK) if summing.sums.find(one) is None
    ]
    assert lacking == [one for one in range(0, end, BLOCK) if one + BLOCK > damaged]
    assert list(slave.mending.damaged) == [damaged]
    await slave.close()
    await master.close()


async def test_log_when_it_is_received_behind_own_records_and_is_cut_then_its_blocks_are_summed(
    tmp_path: Path,
) -> None:
    """A master that has become a slave, and is cut once more: where its records begin is sought anew."""
    master = await filled(tmp_path / "master")
    store = await opened(tmp_path / "store")
    fill(store, 0, COUNT // 2)
    master_end, own_end = master.max_offset, store.max_offset
    await store.flush_all()
    for end in (master_end - 3_000, master_end):
        while store.max_offset < end:
            at = store.max_offset
            length = master.readable(at, end - at)
            store.reserve(at, length)[:] = master.view(at, length)
            store.received(at, length)
        await store._flush_and_sum()
        await store.truncate(await store.commit_log.record_start(end - 2_000, 0))
    assert own_end < store.commit_log.received_to
    await store._flush_and_sum()
    last = store.max_offset - store.max_offset % BLOCK
    assert all(store.proving.summing.sums.find(one) for one in range(0, last, BLOCK))
    assert not store.mending.damaged
    await store.close()
    await master.close()
