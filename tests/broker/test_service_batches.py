"""What a service writes in one turn of the loop: as much as there is room for."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmqha.broker.common.aio.writer import (
    BATCH_BYTES,
    RECORDS_A_TURN,
    ROOM_BYTES,
    TURNS,
    Writer,
)
from rmqha.store.aio.room import Room, Stretch


class FakeRoom:
    """Makes as much as is asked for."""

    def __init__(self, is_short: bool) -> None:
        self.is_short = is_short
        self.waited = 0
        self.made: list[int] = []

    @contextlib.asynccontextmanager
    async def stretch(self, length: int, records: int) -> AsyncIterator[Stretch]:
        """As asked for."""
        self.made.append(length)
        yield Stretch(cast(Room, self), length, records)


class FakeClock:
    """Counts what is slept."""

    def __init__(self) -> None:
        self.slept: list[int] = []

    async def sleep(self, delay_ms: int) -> None:
        """At once."""
        self.slept.append(delay_ms)


def writer_of(room: FakeRoom, clock: FakeClock | None = None) -> Writer:
    """A writer of a broker that has these."""
    broker = SimpleNamespace(store=SimpleNamespace(room=room), clock=clock)
    return Writer(cast(Any, broker))


async def written(room: FakeRoom, sizes: list[int]) -> list[int]:
    """What a service writes that has records of these sizes."""
    calls: list[list[int]] = []

    def write(stretch: Stretch) -> None:
        calls.append([])
        for size in sizes:
            if not stretch.takes(size):
                break
            calls[-1].append(size)

    await writer_of(room).batch(write)
    assert len(calls) <= 2
    assert calls[:-1] in ([], [[]])
    return calls[-1]


@pytest.mark.parametrize(("sizes", "made"), [([], []), ([10, 20], [ROOM_BYTES])])
async def test_batch_when_writes_wait_then_room_is_made_if_there_is_something(
    sizes: list[int], made: list[int]
) -> None:
    room = FakeRoom(is_short=True)
    assert await written(room, sizes) == sizes
    assert room.made == made


async def test_batch_when_a_record_is_larger_than_the_room_then_room_is_made_for_it() -> None:
    room = FakeRoom(is_short=True)
    assert await written(room, [ROOM_BYTES + 1, 1]) == [ROOM_BYTES + 1]
    assert room.made == [ROOM_BYTES + 1]


async def test_batch_when_no_write_waits_then_no_room_is_made_and_there_is_an_end() -> None:
    room = FakeRoom(is_short=False)
    half = BATCH_BYTES // 2
    assert await written(room, [half, half, 1]) == [half, half]
    assert room.made == []


@pytest.mark.parametrize("is_short", [False, True])
async def test_batch_when_there_are_many_small_records_then_others_have_their_turn(
    is_short: bool,
) -> None:
    room = FakeRoom(is_short)
    assert await written(room, [1] * (RECORDS_A_TURN + 1)) == [1] * RECORDS_A_TURN


@pytest.mark.parametrize("is_short", [False, True])
@pytest.mark.parametrize(
    ("count", "turns"),
    [(0, 0), (1, 0), (RECORDS_A_TURN, 0), (RECORDS_A_TURN + 1, 1), (10_000, TURNS)],
)
async def test_batches_when_there_is_more_then_a_few_turns_and_what_was_written_last(
    count: int, turns: int, is_short: bool
) -> None:
    """A sync is for all of them, and none of them keeps clients waiting for long."""
    clock, left, at_once = FakeClock(), count, [0]

    def write(stretch: Stretch) -> tuple[int, bool]:
        nonlocal left
        end, at_once[:] = 0, [*at_once, 0]
        while left:
            if not stretch.takes(1):
                return end, True
            left, at_once[-1] = left - 1, at_once[-1] + 1
            end = count - left
        return end, False

    end, more = await writer_of(FakeRoom(is_short), clock).batches(write)
    assert max(at_once) <= RECORDS_A_TURN
    assert clock.slept == [0] * turns
    assert (end, more) == (min(count, TURNS * RECORDS_A_TURN), left > 0)
