"""When a slave's connection writes its acknowledgements: seldom in a flood, at once otherwise."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from rmqha.ha.aio import client
from rmqha.ha.aio.client import ACK_DELAY_BYTES_MAX, FULL_BODY_BYTES_MIN, MasterConnection
from rmqha.ha.busy_wait import ANSWERED, FEW_BYTES, BusyWait
from rmqha.ha.events import BodyReceived
from rmqha.ha.frames import TransferHeader, encode_ack, encode_transfer_header
from tests.ha.memory_log import MemoryLog
from tests.ha.test_busy_wait import Machine
from tests.ha.test_loopback import until

FULL = FULL_BODY_BYTES_MIN


class Line:
    """A transport that keeps what is written, and an owner that acknowledges every body."""

    def __init__(self, wait: BusyWait | None = None) -> None:
        self.busy_wait = lambda: wait
        self.written: list[bytes] = []
        self.offset = 0
        self.connection = MasterConnection(self, 1, MemoryLog(1 << 23))
        self.connection.connection_made(cast(asyncio.Transport, self))

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        pass

    def give(self, event: Any) -> None:
        if isinstance(event, BodyReceived):
            self.connection.send_ack(event.offset + event.length)

    def broken(self, error: Exception) -> None:
        raise error

    def in_background(self, work: Any) -> None:
        raise AssertionError("nothing waits here")

    async def frames(self, size: int, count: int = 1) -> None:
        """Frames in one loop turn each."""
        for _ in range(count):
            header = encode_transfer_header(TransferHeader(size, self.offset, 1, 0, 0))
            self.connection.data_received(header + bytes(size))
            self.offset += size
            await asyncio.sleep(0)


@pytest.fixture
def no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the timer of a late acknowledgement would come before the frames."""
    monkeypatch.setattr(client, "ACK_DELAY_S", 3_600)


async def test_slave_when_it_acknowledged_then_it_stays_awake_for_what_comes_next() -> None:
    ended = Counter[str]()
    machine = Machine()
    line = Line(BusyWait(machine, 100, ended))
    assert not machine.turn(), "nothing was sent yet"
    await line.frames(FEW_BYTES + 1)
    assert not machine.turn(), "many puts are under way"
    await line.frames(FEW_BYTES)
    assert machine.turn()
    await line.frames(100)
    assert ended == {ANSWERED: 1}
    line.connection.close()
    machine.run()
    assert ended == {ANSWERED: 1}


async def test_small_frames_are_acknowledged_at_once() -> None:
    """A put waits for this one: equal sizes do not make a flood."""
    line = Line()
    await line.frames(1_000, 3)
    assert line.written == [encode_ack(1_000), encode_ack(2_000), encode_ack(3_000)]


async def test_a_frame_is_acknowledged_before_the_loop_s_next_turn_and_frames_of_one_read_once() -> (
    None
):
    """A turn of the loop costs a single put as much as writing its record."""
    line = Line()
    frames = [encode_transfer_header(TransferHeader(100, at, 1, 0, 0)) + bytes(100)
              for at in (0, 100, 200)]  # fmt: skip
    line.connection.data_received(frames[0])
    assert line.written == [encode_ack(100)]
    line.connection.data_received(frames[1] + frames[2])
    assert line.written[1:] == [encode_ack(300)]
    await asyncio.sleep(0)
    assert len(line.written) == 2


@pytest.mark.usefixtures("no_timer")
async def test_a_late_acknowledgement_when_a_small_frame_follows_in_its_read_then_one_is_written() -> (
    None
):
    """The timer of the full frame would write a second one."""
    line = Line()
    full = encode_transfer_header(TransferHeader(FULL, 0, 1, 0, 0)) + bytes(FULL)
    small = encode_transfer_header(TransferHeader(10, FULL, 1, 0, 0)) + bytes(10)
    line.connection.data_received(full + small)
    assert line.written == [encode_ack(FULL + 10)]
    assert line.connection._ack_timer is None


@pytest.mark.usefixtures("no_timer")
async def test_full_frames_share_an_acknowledgement_with_the_one_that_ends_them() -> None:
    """Java cuts its batches at 32 KiB: an ack for each would cost as much as the data."""
    line = Line()
    await line.frames(FULL, 5)
    assert line.written == []
    await line.frames(10)
    assert line.written == [encode_ack(5 * FULL + 10)]


@pytest.mark.usefixtures("no_timer")
async def test_a_flood_is_acknowledged_every_mebibyte() -> None:
    """The master's set and puts must not wait for the end of a catch-up."""
    line = Line()
    count = 3 * ACK_DELAY_BYTES_MAX // FULL
    await line.frames(FULL, count)
    assert line.written
    acked = [int.from_bytes(one[4:]) for one in line.written]
    assert all(b - a <= ACK_DELAY_BYTES_MAX for a, b in zip([0, *acked], acked, strict=False))
    assert line.offset - acked[-1] < ACK_DELAY_BYTES_MAX


async def test_a_last_frame_that_is_full_is_acknowledged_soon() -> None:
    """Nothing may follow: then a timer, not the heartbeat, sends it."""
    line = Line()
    await line.frames(FULL)
    await until(lambda: line.written == [encode_ack(FULL)], timeout_s=1)


async def test_a_closed_connection_writes_nothing() -> None:
    """The timer of a late acknowledgement goes with the connection."""
    line = Line()
    await line.frames(FULL)
    line.connection.close()
    await asyncio.sleep(0.005)
    assert line.written == []
