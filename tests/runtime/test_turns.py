"""Work of the event loop that is done in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from rmqha.runtime.aio.turns import Backlog, in_turns


async def test_work_when_done_in_turns_then_others_run_between_and_its_result_comes() -> None:
    done: list[str] = []

    def work() -> Generator[None, None, int]:
        for _ in range(3):
            done.append("work")
            yield
        return 7

    async def other() -> None:
        for _ in range(3):
            done.append("other")
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    assert await in_turns(work()) == 7
    await beside
    assert done == ["work", "other"] * 3


async def turns_of_the_loop() -> None:
    """Let whatever goes on in turns go on to its end."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_backlog_when_few_then_at_once_and_when_many_then_some_in_each_turn() -> None:
    """What is done for one is done before whoever asked for it goes on."""
    done: list[object] = []
    backlog: Backlog[object] = Backlog(done.append, 3)
    backlog.add([1, 2])
    assert done == [1, 2]
    backlog.add(range(10, 20))
    assert done[2:] == [10, 11, 12]
    asyncio.get_running_loop().call_soon(done.append, "another")
    await turns_of_the_loop()
    assert done[5:] == [13, 14, 15, "another", 16, 17, 18, 19]
    assert len(backlog) == 0
    backlog.add([3])
    assert done[-1] == 3, "it begins anew"


async def test_backlog_when_one_is_added_again_then_it_is_done_once_in_its_place() -> None:
    done: list[int] = []
    backlog = Backlog(done.append, 2)
    backlog.add([1, 2, 3, 4])
    backlog.add([4, 5, 3, 1])
    assert done == [1, 2], "the turn was used up"
    await turns_of_the_loop()
    assert done == [1, 2, 3, 4, 5, 1]


async def test_backlog_when_work_brings_more_then_that_waits_its_turn() -> None:
    """Whoever is handled may be the reason for others: a turn stays as long as it was."""
    done: list[int] = []

    def handle(item: int) -> None:
        done.append(item)
        if item < 8:
            backlog.add([item + 1])

    backlog = Backlog(handle, 2)
    backlog.add([0])
    assert done == [0, 1]
    await turns_of_the_loop()
    assert done == [*range(9)]


async def test_backlog_when_work_fails_then_the_others_are_not_forgotten() -> None:
    done: list[int] = []

    def handle(item: int) -> None:
        if item == 1:
            raise ValueError(item)
        done.append(item)

    backlog = Backlog(handle, 2)
    with pytest.raises(ValueError, match="1"):
        backlog.add([1, 2, 3, 4])
    await turns_of_the_loop()
    assert done == [2, 3, 4]


async def test_backlog_when_cleared_then_nothing_more_is_done() -> None:
    done: list[int] = []
    backlog = Backlog(done.append, 1)
    backlog.add([1, 2, 3])
    backlog.clear()
    await turns_of_the_loop()
    assert done == [1]
    backlog.add([4])
    assert done == [1, 4]
