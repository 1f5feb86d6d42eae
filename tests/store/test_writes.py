"""How long the store's oldest write has been waiting for the disk."""

from __future__ import annotations

import asyncio

import pytest

from rmqha.base.errors import DiskFailed
from rmqha.sim.loop import SimLoop
from tests.store.harness import message, new_disk, sim_store, simulate

HUNG_MS = 5_000


@pytest.mark.parametrize("fails", [False, True], ids=["ends", "fails"])
def test_oldest_write_grows_while_the_disk_hangs_and_is_none_after(*, fails: bool) -> None:
    """A stalled disk must be seen from outside, and a write that failed must not count for ever."""
    loop, disk = SimLoop(), new_disk()

    async def work() -> None:
        store = sim_store(loop, disk)
        await store.open()
        store.append(message(0))
        await store.flush(store.max_offset)
        assert store.writes.oldest_ms == 0
        disk.hang(HUNG_MS, fails=fails)
        store.append(message(1))
        began = loop.time()
        waiting = asyncio.create_task(store.flush(store.max_offset))
        for _ in range(4):
            await asyncio.sleep(1)
            assert abs(store.writes.oldest_ms - (loop.time() - began) * 1000) <= 50
        if fails:
            with pytest.raises(DiskFailed):
                await waiting
        else:
            await waiting
        await asyncio.sleep(1)
        assert store.writes.oldest_ms <= 10
        await store.close()

    simulate(work(), loop)
    loop.close()


def test_oldest_write_when_queues_wait_for_the_disk_counts_as_well() -> None:
    """A master that is never asked to flush its log would look sound."""
    loop, disk = SimLoop(), new_disk()

    async def work() -> None:
        store = sim_store(loop, disk, flush_interval_commit_log=3_600_000)
        await store.open()
        store.append(message(0))
        await store.wait_dispatched(store.max_offset)
        disk.hang(HUNG_MS, fails=False)
        await asyncio.sleep(3)
        assert store.writes.oldest_ms >= 1_000
        await asyncio.sleep(HUNG_MS / 1000)
        assert store.writes.oldest_ms == 0
        await store.close()

    simulate(work(), loop)
    loop.close()
