"""The write-ahead log when its disk is full: what waits is written later, in order and once."""

from __future__ import annotations

import asyncio
import random

from rmqha.base.errors import DiskFull
from rmqha.controller.aio.space import (
    RESERVE_BYTES,
    SPACE_AGAIN_BYTES,
    SPACE_CHECK_MS,
    Space,
)
from rmqha.controller.aio.wal import WalContent
from rmqha.controller.raft.events import HardState, Persist, SnapshotMeta
from rmqha.controller.raft.messages import Entry
from rmqha.runtime.aio.tasks import Tasks
from rmqha.sim.clock import SimClock
from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import SimLoop
from rmqha.sim.trace import Trace, TraceLogger
from tests.controller.test_wal import Bench, entries, reopen, simulate

LARGE = bytes(10_000)
"""More than the simulated disk reserves behind what it has written."""

PATIENCE_S = 5


class FullBench(Bench):
    """A log whose disk will be full; it waits for nothing without end."""

    def __init__(self, disk: SimDisk, *, segment_bytes: int = 1 << 20) -> None:
        super().__init__(disk, segment_bytes=segment_bytes)
        self.disk = disk

    async def wait_refused(self, times: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.refused < times:
                await self.changed.wait()
                self.changed.clear()

    def has_space_again(self) -> None:
        self.disk.mood.full = False
        self.wal.retry()

    async def wait_durable(self, seq: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await super().wait_durable(seq)


def test_disk_when_full_then_what_waited_is_written_before_what_came_later() -> None:
    """After a restart the term and the vote would be older ones, and the node would vote twice."""
    disk = SimDisk(random.Random(1))

    async def story() -> WalContent:
        bench = FullBench(disk)
        await bench.wal.open(SnapshotMeta())
        disk.mood.full = True
        bench.wal.append(Persist(1, HardState(5, "n1"), (Entry(1, 5, LARGE),)))
        bench.wal.append(Persist(2, HardState(6, "n2"), (Entry(2, 6, b"two"),)))
        await bench.wait_refused(1)
        bench.has_space_again()
        await bench.wait_durable(2)
        await bench.wal.close()
        return await reopen(disk)

    content = simulate(story())
    assert content.hard_state == HardState(6, "n2")
    assert content.entries == [Entry(1, 5, LARGE), Entry(2, 6, b"two")]


def test_disk_when_full_twice_then_the_frames_are_numbered_without_a_gap() -> None:
    """A number that no frame has is taken for a lost frame, and the store is set aside."""
    disk = SimDisk(random.Random(1))

    async def story() -> WalContent:
        bench = FullBench(disk)
        await bench.wal.open(SnapshotMeta())
        disk.mood.full = True
        bench.wal.append(Persist(1, None, (Entry(1, 1, LARGE),)))
        await bench.wait_refused(1)
        bench.wal.append(Persist(2, None, entries(2, 2)))
        await asyncio.sleep(1)
        assert bench.refused == 1  # it waits to be told
        bench.wal.retry()
        await bench.wait_refused(2)
        assert bench.durable == 0
        bench.has_space_again()
        await bench.wait_durable(2)
        await bench.wal.close()
        return await reopen(disk)

    assert simulate(story()).entries == [Entry(1, 1, LARGE), *entries(2, 2)]


def test_reset_when_the_disk_is_full_then_it_ends_with_the_space_and_stays() -> None:
    """An install would wait for ever: its node would take no entries and never stand again."""
    disk = SimDisk(random.Random(1))

    async def story() -> WalContent:
        bench = FullBench(disk)
        await bench.wal.open(SnapshotMeta())
        disk.mood.full = True
        bench.wal.append(Persist(1, None, (Entry(1, 1, LARGE),)))
        resets = [asyncio.ensure_future(bench.wal.reset(index, 3)) for index in (5, 7)]
        await bench.wait_refused(1)
        bench.wal.retry()
        await bench.wait_refused(2)
        assert not any(one.done() for one in resets)
        bench.has_space_again()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*resets)
        bench.wal.append(Persist(2, None, entries(8, 9, term=3)))
        await bench.wait_durable(2)
        await bench.wal.close()
        return await reopen(disk, SnapshotMeta(7, 3, 10))

    content = simulate(story())
    assert (content.base_index, content.base_term) == (7, 3)
    assert content.entries == list(entries(8, 9, term=3))


def test_new_segment_when_the_disk_is_full_then_begun_again_under_its_number() -> None:
    """The file of the first try would stay empty, or a frame be missing: the store is set aside."""
    disk = SimDisk(random.Random(1))

    async def story() -> WalContent:
        bench = FullBench(disk, segment_bytes=200)
        await bench.wal.open(SnapshotMeta())
        bench.wal.append(Persist(1, None, entries(1, 9)))
        await bench.wait_durable(1)
        # There is room for a name in the directory, and none for a frame.
        disk.mood.full, disk.room_bytes = True, 1
        bench.wal.append(Persist(2, HardState(4, "n2"), entries(10, 10)))
        await bench.wait_refused(1)
        assert len(disk.files) == 2
        bench.wal.append(Persist(3, None, entries(11, 11)))
        bench.has_space_again()
        await bench.wait_durable(3)
        await bench.wal.close()
        assert len(disk.files) == 2
        return await reopen(disk)

    content = simulate(story())
    assert content.entries == list(entries(1, 11))
    assert content.hard_state == HardState(4, "n2")


def test_vote_when_it_waited_for_space_then_the_next_segment_opens_with_it() -> None:
    """Compaction deletes the segment that the vote was written to, and the node votes again."""
    disk = SimDisk(random.Random(1))

    async def story() -> WalContent:
        bench = FullBench(disk, segment_bytes=12_000)
        await bench.wal.open(SnapshotMeta())
        bench.wal.append(Persist(1, HardState(4, "n1"), entries(1, 1)))
        await bench.wait_durable(1)
        disk.mood.full = True
        bench.wal.append(Persist(2, HardState(5, "n2"), (Entry(2, 5, LARGE),)))
        await bench.wait_refused(1)
        bench.has_space_again()
        await bench.wait_durable(2)
        for seq in (3, 4):
            bench.wal.append(Persist(seq, None, (Entry(seq, 5, LARGE),)))
            await bench.wait_durable(seq)
        assert await bench.wal.compact(3) == 1
        await bench.wal.close()
        return await reopen(disk, SnapshotMeta(3, 5, 10))

    content = simulate(story())
    assert content.hard_state == HardState(5, "n2")
    assert content.entries == [Entry(4, 5, LARGE)]


def test_close_when_the_disk_becomes_full_meanwhile_then_it_ends() -> None:
    """A node that is told to stop would hang until somebody makes space."""
    disk = SimDisk(random.Random(1))

    async def story() -> WalContent:
        bench = FullBench(disk)
        await bench.wal.open(SnapshotMeta())
        disk.mood.full = True
        bench.wal.append(Persist(1, None, (Entry(1, 1, LARGE),)))
        async with asyncio.timeout(PATIENCE_S):
            await bench.wal.close()
        assert bench.refused == 1
        return await reopen(disk)

    assert simulate(story()).entries == []


def test_space_when_there_is_room_for_the_reserve_only_then_it_is_still_low() -> None:
    """The node would take entries again, and be full a moment later, again and again."""
    made: list[bool] = []

    class Scarce(SimDisk):
        free = RESERVE_BYTES

        async def write_atomic(self, path: str, data: bytes) -> None:
            if len(data) > self.free:
                raise DiskFull(path)
            await super().write_atomic(path, data)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        disk, clock, log = Scarce(random.Random(1)), SimClock(loop), TraceLogger(Trace(loop), "n0")
        tasks = Tasks(log)
        space = Space(disk, "/", clock, log, tasks, on_changed=made.append, retry=lambda: None)
        await space.open()
        space.is_full(DiskFull("log"))
        await clock.sleep(3 * SPACE_CHECK_MS)
        assert made == [False]
        disk.free = SPACE_AGAIN_BYTES
        await clock.sleep(2 * SPACE_CHECK_MS)
        assert made == [False, True]
        await tasks.close()

    simulate(story())
