"""Power cuts at any moment, full disks and failing disks, on the simulated disk."""

from __future__ import annotations

import asyncio
import random
import struct
from dataclasses import dataclass, field
from typing import Any

import pytest

from rmqha.base.errors import DiskFailed
from rmqha.sim.clock import SimClock
from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import HOST, SimLoop
from rmqha.store import consume_queue as cq
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.record import check_record
from tests.store.harness import TOPIC, bodies, message, new_disk, put, sim_store, simulate

LIVES = 5
SEEDS = 150
DAY_MS = 86_400_000


@dataclass
class Model:
    """What the test knows about the log.

    Attributes:
        content: the log's bytes, as far as they were written.
        durable: a flush returned this; never less comes back.
        cutting: a cut to this offset is under way, or None.
        jumps: how often the wall clock went back, by so much that timestamps follow it.
    """

    rng: random.Random
    content: bytearray = field(default_factory=bytearray)
    durable: int = 0
    cutting: int | None = None
    cuts: int = 0
    flushes: int = 0
    jumps: int = 0
    number: int = 0


def note_written(store: MessageStore, model: Model) -> None:
    """Copy what the store wrote since the last look."""
    position = len(model.content)
    while position < store.max_offset:
        length = store.readable(position, 1 << 20)
        model.content += store.view(position, length)
        position += length


async def work(store: MessageStore, model: Model) -> None:
    """Append, flush, cut and receive in random order, for ever."""
    rng = model.rng
    while True:
        dice = rng.random()
        if dice < 0.6:
            for _ in range(rng.randint(1, 20)):
                model.number += 1
                body = b"%d-" % model.number + bytes(rng.randint(0, 900))
                store.append(message(model.number, body=body, queue_id=rng.randint(0, 2)))
            note_written(store, model)
            if store._bounded:
                store.set_confirm_offset(rng.randint(store.confirm_offset, store.max_offset))
        elif dice < 0.8:
            goal = rng.randint(0, store.max_offset)
            reached = await store.flush(goal)
            assert reached >= goal
            model.durable = max(model.durable, goal)
            model.flushes += 1
        elif dice < 0.9:
            await cut(store, model)
        else:
            if rng.random() < 0.3:
                jump(store, model)
            await asyncio.sleep(rng.random() * 0.8)
        await asyncio.sleep(0)


def jump(store: MessageStore, model: Model) -> None:
    """The wall clock is a day ahead for a while, or right again."""
    assert isinstance(store._clock, SimClock)
    ahead_ms = model.rng.choice((0, DAY_MS))
    model.jumps += ahead_ms < store._clock.wall_offset_ms
    store._clock.wall_offset_ms = ahead_ms


async def cut(store: MessageStore, model: Model) -> None:
    """Cut at or within a record."""
    offset = model.rng.randint(store.max_offset // 2, store.max_offset)
    model.cutting = offset
    model.durable = min(model.durable, offset)
    await store.truncate(offset)
    del model.content[offset:]
    start = store.valid_end(store.min_offset if store.max_offset else 0, offset)
    if start < offset:
        # Half a record at the end is a slave's: only its master could complete it.
        model.durable = min(model.durable, start)
        await store.truncate(start)
        del model.content[start:]
    model.cutting = None
    model.cuts += 1
    assert store.max_offset == len(model.content)


def whole_end(content: bytes, end: int, file_size: int) -> int:
    """Where whole records within ``content[:end]`` end, found without the store."""
    position = 0
    while position < end:
        stop = position - position % file_size + file_size
        head = check_record(content, position, min(stop, end), position, check_crc=True)
        if head.size < 0:
            break
        position = stop if head.size == 0 else position + head.size
        if position > end:
            return position - file_size
    return position


def blank_end(content: bytes, file_size: int) -> int:
    """Where the blank ends within which ``content`` does; its own length where that is in none."""
    position = 0
    while position < len(content):
        stop = position - position % file_size + file_size
        head = check_record(content, position, min(stop, len(content)), position, check_crc=True)
        if head.size < 0:
            break
        position = position + head.size if head.size else stop
    return max(position, len(content))


def check_recovered(store: MessageStore, model: Model) -> None:
    """Everything flushed is there, nothing cut is, no half record, queues agree with the log."""
    end = store.max_offset
    if model.cutting == len(model.content) < end:
        # Cut within a blank, whose head is whole: the log goes on behind it, as before the cut.
        assert end == blank_end(bytes(model.content), store.file_size)
        model.content += bytes(end - len(model.content))
    assert end <= len(model.content)
    durable_whole = whole_end(bytes(model.content), model.durable, store.file_size)
    assert end >= durable_whole, (end, model.durable, durable_whole)
    found = bytearray()
    while len(found) < end:
        found += store.view(len(found), store.readable(len(found), 1 << 20))
    assert found == model.content[:end]
    for file in store.commit_log.files.files[-1:]:
        assert not any(file.buffer[end - store.commit_log.files.end + store.file_size :])
    check_queues(store, end)
    del model.content[end:]
    model.durable = end
    model.cutting = None


def check_queues(store: MessageStore, end: int) -> None:
    """Each dispatched record has its unit, at its queue offset, and there is no other unit."""
    expected: dict[int, list[tuple[int, int]]] = {0: [], 1: [], 2: []}
    position = 0
    while position < end:
        _, head = store.commit_log.check(position)
        assert head.size >= 0, head
        if head.size and position + head.size <= store.dispatched_offset:
            assert head.queue_offset == len(expected[head.queue_id])
            expected[head.queue_id].append((position, head.size))
        position = position + head.size if head.size else store.commit_log.file_end(position)
    assert store.dispatched_offset >= store.confirm_offset or store._bounded
    for queue_id, units in expected.items():
        queue = store.queues.queues.get((TOPIC.encode(), queue_id))
        there = 0 if queue is None else queue.count_end
        assert there == len(units), (queue_id, there, len(units))
        for index, unit in enumerate(units):
            assert queue is not None
            assert queue.unit(index)[:2] == unit


async def live(
    loop: SimLoop, disk: SimDisk, model: Model, settings: dict[str, Any], *, power: bool
) -> None:
    """One life of a process: open, check, work, die."""
    HOST.set("store")
    store = sim_store(loop, disk, **settings)

    async def process() -> None:
        await store.open()
        check_recovered(store, model)
        await store.rebuild_queue_offsets()
        await work(store, model)

    task = asyncio.create_task(process())
    # Some cuts come while the store still recovers.
    span = model.rng.choice([0.01, 0.1, 1.0, 5.0])
    done, _ = await asyncio.wait([task], timeout=model.rng.random() * span)
    if done:
        task.result()
    if power:
        note_written(store, model)
        disk.power_cut()
    HOST.set(None)
    loop.end_host("store")
    await asyncio.sleep(0)
    if not power:
        note_written(store, model)


@pytest.mark.slow
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("block", range(5))
def test_a_power_cut_takes_only_what_was_not_flushed(block: int, bounded: bool) -> None:
    """Over several lives on one disk: acknowledged bytes stay, cut bytes never come back."""
    cuts = flushes = jumps = 0
    for seed in range(block * SEEDS // 5, (block + 1) * SEEDS // 5):
        loop = SimLoop()
        disk = new_disk(seed)
        model = Model(random.Random(seed))
        settings = {
            "enable_controller_mode": bounded,
            "flush_disk_type": "SYNC_FLUSH" if seed % 3 == 0 else "ASYNC_FLUSH",
        }

        async def story(
            loop: SimLoop = loop, disk: SimDisk = disk, model: Model = model,
            settings: dict[str, Any] = settings, seed: int = seed,
        ) -> None:  # fmt: skip
            for _ in range(LIVES):
                await live(loop, disk, model, settings, power=True)
            store = sim_store(loop, disk, **settings)
            await store.open()
            check_recovered(store, model)
            await store.close()
            again = sim_store(loop, disk, **settings)
            found = await again.open()
            assert found.clean, seed
            check_recovered(again, model)
            await again.close()

        try:
            simulate(story(), loop)
        except BaseException:
            print("seed", seed)
            raise
        finally:
            loop.close()
        cuts += model.cuts
        flushes += model.flushes
        jumps += model.jumps
    assert cuts > 20
    assert jumps > 5
    assert flushes > 50


@pytest.mark.costly
def test_a_cut_whose_erasure_is_skipped_is_found_out() -> None:
    """The crash test sees the mistake that Java makes: its checks can fail."""
    failures = 0
    for seed in range(40):
        loop, disk, model = SimLoop(), new_disk(seed), Model(random.Random(seed))

        async def story(loop: SimLoop = loop, disk: SimDisk = disk, model: Model = model) -> None:
            store = sim_store(loop, disk, flush_interval_commit_log=10**8)
            await store.open()
            for number in range(60):
                store.append(message(number))
            await store.flush(store.max_offset)

            async def keep(low: int, high: int) -> int:
                """Java leaves the bytes."""
                return 0

            store.commit_log.files.erase = keep  # type: ignore[method-assign]
            await store.truncate(158 * 40)
            model.content = bytearray(store.view(0, 158 * 40))
            model.durable = 158 * 40
            disk.power_cut()
            await store._tasks.close()
            again = sim_store(loop, disk)
            await again.open()
            check_recovered(again, model)

        try:
            simulate(story(), loop)
        except AssertionError:
            failures += 1
        finally:
            loop.close()
    assert failures == 40


def test_a_full_disk_refuses_the_append_and_loses_nothing() -> None:
    """No room for the next file: the log is as before, and goes on once there is room."""
    loop, disk = SimLoop(), new_disk()

    async def story() -> None:
        store = sim_store(loop, disk)
        await store.open()
        disk.mood.bytes_free = 16_384 + 20 * 64 * 2
        stored = 0
        for _ in range(103):
            await put(store, message(stored, body=b"%032d" % stored))
            stored += 1
            await store.wait_dispatched(store.max_offset)
        end = store.max_offset
        with pytest.raises(DiskFailed, match="no space left"):
            store.append(message())
        assert store.max_offset == end
        assert len(bodies(store)) == stored
        disk.mood.bytes_free = None
        assert store.append(message()).queue_offset == stored
        await store.wait_dispatched(store.max_offset)
        assert len(bodies(store)) == stored + 1
        await store.close()

    simulate(story(), loop)
    loop.close()


def test_a_failing_disk_stops_the_store_and_keeps_what_was_acknowledged() -> None:
    """A failed fdatasync is final; the next start finds the acknowledged messages."""
    loop, disk = SimLoop(), new_disk()

    async def story() -> None:
        store = sim_store(loop, disk, flush_disk_type="SYNC_FLUSH")
        told: list[BaseException] = []
        store._on_failed = told.append
        await store.open()
        acked = 0
        for _ in range(20):
            await put(store, message(acked))
            acked += 1
        disk.mood.failing = True
        with pytest.raises(DiskFailed):
            await put(store, message(acked))
        await store.close()
        assert len(told) == 1
        disk.mood.failing = False
        disk.power_cut()
        again = sim_store(loop, disk, flush_disk_type="SYNC_FLUSH")
        found = await again.open()
        assert not found.clean
        assert len(bodies(again)) >= acked == 20
        await again.close()

    simulate(story(), loop)
    loop.close()


def test_java_s_torn_tail_is_cut_and_java_s_hole_is_refused() -> None:
    """Without our mark the stamps decide: what is older than the flush was durable."""
    for aged, torn_at in ((False, 30), (True, 30), (True, 59)):
        loop, disk = SimLoop(), new_disk()

        async def story(
            loop: SimLoop = loop, disk: SimDisk = disk, aged: bool = aged, torn_at: int = torn_at
        ) -> None:
            store = sim_store(loop, disk)
            await store.open()
            for number in range(60):
                store.append(message(number))
            await store.flush(store.max_offset)
            last = store.commit_log.last_timestamp
            store.view(158 * torn_at, 158)[100] ^= 1
            await store.flush(store.max_offset)
            await store._tasks.close()
            file = disk.map_file("/store/checkpoint", 4096, create=False)
            stamp = last + 3_000 if aged else last
            struct.pack_into(">qqqqq", file.buffer, 0, stamp, stamp, 0, 0, 158 * 60)
            again = sim_store(loop, disk)
            if aged and torn_at == 30:
                with pytest.raises(Exception, match="a durable record follows at 4898"):
                    await again.open()
                return
            await again.open()
            assert again.max_offset == 158 * torn_at
            await again.close()

        simulate(story(), loop)
        loop.close()


def test_units_of_a_torn_page_are_not_believed() -> None:
    """The queue's rule: sizes positive, records one behind the other."""
    good = b"".join(cq.UNIT.pack(n * 100, 100, 7) for n in range(5))
    buffer = memoryview(bytearray(good + cq.UNIT.pack(50, 100, 7) + bytes(40)))
    assert cq.valid_units(buffer, 20, 0) == (5, 500)
    assert cq.valid_units(buffer, 20, 1) == (0, 1)
    assert cq.count_below(buffer, 20, 5, 200) == 2
    filled = memoryview(bytearray(cq.FILLER * 3 + good))
    assert cq.valid_units(filled, 20, 0) == (8, 500)
    assert cq.first_live(filled, 20, 8, 0) == 3
    assert cq.first_live(filled, 20, 8, 250) == 6
