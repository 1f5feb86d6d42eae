"""Work of the event loop that is done in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from rmqha.runtime.aio.turns import in_turns


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
