"""What a service writes in one turn of the loop: as much as there is room for."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmqha.broker.common.aio.writer import BATCH_BYTES, ROOM_BYTES, Writer
from rmqha.store.aio.room import Room, Stretch


class FakeRoom:
    """Makes as much as is asked for."""

    def __init__(self, is_short: bool) -> None:
        self.is_short = is_short
        self.waited = 0
        self.made: list[int] = []

    @contextlib.asynccontextmanager
    async def stretch(self, length: int) -> AsyncIterator[Stretch]:
        """As asked for."""
        self.made.append(length)
        yield Stretch(cast(Room, self), length)


async def written(room: FakeRoom, sizes: list[int]) -> list[int]:
    """What a service writes that has records of these sizes."""
    calls: list[list[int]] = []

    def write(stretch: Stretch) -> None:
        calls.append([])
        for size in sizes:
            if not stretch.takes(size):
                break
            calls[-1].append(size)

    writer = Writer(cast(Any, SimpleNamespace(store=SimpleNamespace(room=room))))
    await writer.batch(write)
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
