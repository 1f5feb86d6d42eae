"""A sync has failed, and the process is started again: what it shows then may be on no disk."""

from __future__ import annotations

import asyncio

import pytest

from rmqha.base.errors import DiskFailed
from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import SimLoop
from rmqha.sim.pages import SimMappedFile
from tests.store.harness import bodies, message, new_disk, put, sim_store, simulate

FILES = {"small files": {}, "a file of 32 MiB": {"mapped_file_size_commit_log": 32 << 20}}


@pytest.mark.costly
@pytest.mark.parametrize("settings", FILES.values(), ids=FILES)
@pytest.mark.parametrize("populates", [True, False])
def test_log_when_a_sync_of_it_has_failed_then_the_next_start_writes_it_anew(
    settings: dict[str, int], populates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux takes the pages for written, and says of every later sync that all is well: the start after
    found messages, vouched for them, and had none after a power cut."""

    disk, loop = new_disk(), SimLoop()

    async def nothing(self: SimMappedFile, *ranges: tuple[int, int]) -> None:
        """A kernel that cannot make pages dirty without writing to them."""

    if not populates:
        monkeypatch.setattr(SimMappedFile, "make_writable", nothing)

    async def story() -> None:
        first = sim_store(loop, disk, **settings)
        await first.open()
        for number in range(150):
            await put(first, message(number))
        await asyncio.sleep(3)  # the checkpoint says how far it is durable: within a page
        for number in range(150, 300):
            first.append(message(number))
        disk.mood.failing = True
        with pytest.raises(DiskFailed):
            await first.flush(first.max_offset)
        await first.close()
        assert lost_bytes(disk) > 10_000
        disk.mood.failing = False
        second = sim_store(loop, disk, **settings)
        await second.open()
        # As it says to its master, and to whoever asks for an acknowledgement.
        assert second.flusher.flushed_offset == second.max_offset > 40_000
        await second.wait_dispatched(second.max_offset)
        assert len(bodies(second)) == 300
        await second._tasks.close()
        disk.power_cut()
        third = sim_store(loop, disk, **settings)
        await third.open()
        await third.wait_dispatched(third.max_offset)
        assert len(bodies(third)) == 300
        await third.close()

    simulate(story(), loop)
    loop.close()


def lost_bytes(disk: SimDisk) -> int:
    """Of the log, in pages that nobody will write."""
    return sum(
        sum(map(len, file.clean.values()))
        for path, file in disk.files.items()
        if "commitlog" in path and isinstance(file.clean, dict)
    )
