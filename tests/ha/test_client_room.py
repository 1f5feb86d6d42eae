"""A slave whose writes wait for the disk: what comes next waits in its socket, and not the loop."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from rmqha.base.errors import DiskFailed
from rmqha.ha.aio.client import (
    FRAMES_A_TURN,
    READ_BYTES_MIN,
    RECEIVE_BUFFER_BYTES,
    ROOM_BYTES_MIN,
    MasterConnection,
)
from rmqha.ha.frames import TransferHeader, encode_transfer_header
from rmqha.store.aio.room import SLOW_MS
from tests.broker.replicas import ReplicaCluster, log_bytes, master_of
from tests.ha.memory_log import MemoryLog, Room


class Line:
    """A transport that knows whether it is read, and an owner that runs what waits."""

    def __init__(self) -> None:
        self.reads: list[bool] = []
        self.offset = 0
        self.log = MemoryLog(1 << 23)
        self.room = self.log.room
        self.waits: list[asyncio.Task[None]] = []
        self.connection = MasterConnection(self, 1, self.log)
        self.connection.connection_made(cast(asyncio.Transport, self))

    def pause_reading(self) -> None:
        self.reads.append(False)

    def resume_reading(self) -> None:
        self.reads.append(True)

    def abort(self) -> None:
        pass

    def give(self, event: Any) -> None:
        pass

    def busy_wait(self) -> None:
        pass

    def broken(self, error: Exception) -> None:
        raise error

    def in_background(self, work: Any) -> None:
        self.waits.append(asyncio.ensure_future(work))

    def frame(self, size: int) -> None:
        """Comes from the master."""
        header = encode_transfer_header(TransferHeader(size, self.offset, 1, 0, 0))
        self.connection.data_received(header + bytes(size))
        self.offset += size


async def settled() -> None:
    """Everybody who can go on does."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_slave_when_no_write_waits_then_nobody_makes_room() -> None:
    line = Line()
    line.frame(100)
    assert (line.reads, line.waits, line.room.told) == ([], [], 1)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("size", "made"), [(100, ROOM_BYTES_MIN), (2 * ROOM_BYTES_MIN, 2 * ROOM_BYTES_MIN)]
)
async def test_slave_when_writes_wait_then_it_reads_on_once_there_is_room(
    size: int, made: int
) -> None:
    """For as much as came last: a flood comes a megabyte at a time, a put alone."""
    line = Line()
    line.room.is_short = True
    line.frame(size)
    await settled()
    assert (line.reads, line.log.max_offset) == ([False], size)
    assert made <= line.room.made[0] <= made + 100
    line.room.may_go.set()
    await settled()
    assert line.reads == [False, True]
    line.frame(size)
    await settled()
    assert line.reads == [False, True, False, True]


@pytest.mark.costly
async def test_slave_when_a_part_of_a_body_has_come_then_room_is_made_behind_that() -> None:
    """The log ends where the body begins, until all of it is there."""
    line = Line()
    line.room.is_short = True
    line.room.may_go.set()
    line.connection.data_received(encode_transfer_header(TransferHeader(1_000, 0, 1, 0, 0)))
    for size in (400, 500, 100):
        line.connection.data_received(bytes(size))
        await settled()
    assert (line.room.ahead, line.log.max_offset) == ([0, 400, 900, 0], 1_000)


@pytest.mark.costly
async def test_slave_when_its_connection_ends_while_it_waits_then_nothing_is_read() -> None:
    line = Line()
    line.room.is_short = True
    line.frame(100)
    await settled()
    line.connection.close()
    line.room.may_go.set()
    await settled()
    assert line.reads == [False]
    assert all(one.done() and one.exception() is None for one in line.waits)


async def test_slave_when_its_connection_ends_by_what_comes_then_nobody_makes_room() -> None:
    line = Line()
    line.room.is_short = True
    line.connection.data_received(b"\xff" * 100)
    assert (line.reads, line.waits) == ([], [])


@pytest.mark.costly
async def test_slave_when_the_file_has_gone_then_whoever_writes_learns_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def gone(self: Room, length: int, *, ahead: int = 0) -> int:
        raise DiskFailed("closed")

    monkeypatch.setattr(Room, "make", gone)
    line = Line()
    line.room.is_short = True
    line.frame(100)
    await settled()
    assert line.reads == [False, True]


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(60, 64))
def test_slaves_when_their_writes_wait_then_they_follow_all_the_same(seed: int) -> None:
    """Also those whose disk stands still for a while: the loop goes on, and so does the lease."""
    with ReplicaCluster(seed, replicas=3) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "a SyncStateSet of three")
        master = master_of(cluster)
        slaves = [one for one in cluster.replicas.values() if one is not master]
        made = []
        for one in slaves:
            one.store.room.wrote(one.clock.now_ms() - SLOW_MS)
            make = one.store.room.make

            async def watched(length: int, *, ahead: int = 0, make: Any = make) -> int:
                made.append(length)
                return int(await make(length, ahead=ahead))

            one.store.room.make = watched  # type: ignore[method-assign]
        cluster.disks[slaves[0].config.host].hang(500, fails=False)
        cluster.send_many(20)
        assert len(made) >= 20
        assert cluster.in_sync()
        assert len({log_bytes(one) for one in (master, *slaves)}) <= 2
        cluster.run_for(500)
        assert len({log_bytes(one) for one in (master, *slaves)}) == 1


def read(line: Line, stream: bytearray) -> int:
    """One read of the socket, of as much as the connection takes; how much that was."""
    buffer = line.connection.get_buffer(-1)
    size = min(len(buffer), len(stream))
    buffer[:size] = stream[:size]
    del stream[:size]
    line.connection.buffer_updated(size)
    return size


def stream_of(line: Line, body_bytes: int, count: int) -> bytearray:
    """Frames of one size."""
    found = bytearray()
    for _ in range(count):
        found += encode_transfer_header(TransferHeader(body_bytes, line.offset, 1, 0, 0))
        found += bytes(body_bytes)
        line.offset += body_bytes
    return found


async def test_slave_when_frames_are_small_then_others_have_a_turn_between_them() -> None:
    """A megabyte of single puts, as they wait for a slave that stood still, took 424 ms in one go."""
    line = Line()
    stream = stream_of(line, 100, 20 * FRAMES_A_TURN)
    read(line, stream)
    while stream:
        assert line.reads[-1] is False, "it is read on before others had a turn"
        await settled()
        assert line.reads[-1] is True
        assert read(line, stream) <= READ_BYTES_MIN
    await settled()
    assert line.log.max_offset == line.offset


async def test_slave_when_frames_are_large_then_it_reads_more_at_a_time() -> None:
    """As much as its buffer holds, without a pause."""
    line = Line()
    stream, sizes = stream_of(line, 32 * 1024, 200), list[int]()
    while stream:
        sizes.append(read(line, stream))
    assert sizes[6] == RECEIVE_BUFFER_BYTES
    assert (line.reads, line.log.max_offset) == ([], line.offset)
