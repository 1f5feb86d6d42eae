"""A start that makes the units of a missing queue file anew may be killed: the next one does it, then."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import HOST, SimLoop
from rmqha.store import checkpoint as cp
from tests.store.harness import (
    ROOT,
    TOPIC,
    bodies,
    message,
    new_disk,
    sim_store,
    simulate,
    simulate_seeds,
)

WANTED = [b"%032d" % number for number in range(400)]
QUEUE = f"{ROOT}/consumequeue/{TOPIC}/0"


async def written(loop: SimLoop, disk: SimDisk) -> None:
    """A store of a queue with several files, which was stopped in order."""
    store = sim_store(loop, disk)
    await store.open()
    for number, body in enumerate(WANTED):
        if number == 350:
            # What is older is durable, by its stamp: a start after a crash begins behind it.
            await asyncio.sleep(6)
        store.append(message(body=body))
    await store.wait_dispatched(store.max_offset)
    await store.close()


def mark_anew(disk: SimDisk, indexed_offset: int | None, *, is_ours: bool) -> None:
    """The checkpoint says so of the queues; with ``is_ours`` of the log what it said, else nothing."""
    path = f"{ROOT}/checkpoint"
    buffer = disk.map_file(path, cp.SIZE, create=False).buffer
    known = cp.read(buffer)
    known.indexed_offset = indexed_offset
    if not is_ours:
        known.flushed_offset = None
    cp.write_into(buffer, known)
    disk.place(path, cp.SIZE, bytes(buffer))


async def start_that_dies(loop: SimLoop, disk: SimDisk, after_ms: int, *, power: bool) -> None:
    """A process that ends so long after it has begun."""
    HOST.set("store")
    start = asyncio.create_task(sim_store(loop, disk).open())
    await asyncio.sleep(after_ms / 1000)
    if power:
        disk.power_cut()
    HOST.set(None)
    loop.end_host("store")
    await asyncio.wait([start])


async def story(loop: SimLoop, disk: SimDisk, seed: int, *, clean: bool) -> None:
    """Two starts after a file has gone: the first one dies."""
    await written(loop, disk)
    if seed % 3 == 1:
        mark_anew(disk, None, is_ours=False)
    elif seed % 3 == 2 and not clean:
        mark_anew(disk, 0, is_ours=True)
    names = sorted(path for path in disk.files if path.startswith(QUEUE))
    assert len(names) > 4
    disk.lose(lambda path: path == names[2])
    if not clean:
        await disk.write_atomic(f"{ROOT}/{cp.ABORT}", b"1")
    await start_that_dies(loop, disk, seed % 19, power=seed % 8 > 0)
    store = sim_store(loop, disk)
    await store.open()
    await store.wait_dispatched(store.max_offset)
    assert bodies(store) == WANTED
    assert store.append(message()).queue_offset == len(WANTED)
    await store.close()


@pytest.mark.costly
@pytest.mark.parametrize("clean", [True, False])
def test_queue_when_the_start_that_mends_it_dies_then_the_next_one_does(*, clean: bool) -> None:
    """The files behind the gap had gone, and with them whatever told that units are missing."""
    simulate_seeds(partial(story, clean=clean), 60)


@pytest.mark.parametrize(("known", "noted"), [(None, 20_334), (100, 100), (63_000, 20_334)])
def test_checkpoint_when_a_queue_file_is_missing_then_it_vouches_for_no_more_than_before(
    known: int | None, noted: int
) -> None:
    """Units of other queues may have been lost from before on."""
    loop, disk = SimLoop(), new_disk()

    async def missing() -> None:
        await written(loop, disk)
        mark_anew(disk, known, is_ours=True)
        disk.lose(lambda path: path == f"{QUEUE}/{128 * 20:020}")
        await disk.write_atomic(f"{ROOT}/{cp.ABORT}", b"1")
        await start_that_dies(loop, disk, 1, power=True)

    simulate(missing(), loop)
    found = cp.read(disk.map_file(f"{ROOT}/checkpoint", cp.SIZE, create=False).buffer)
    loop.close()
    assert found.indexed_offset == noted
