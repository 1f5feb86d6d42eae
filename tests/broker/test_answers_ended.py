"""Answers that are under way when their broker ends."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from rmqha.broker.common.aio.answers import Answers
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger


@pytest.mark.parametrize("steps", [0, 1])
async def test_work_when_its_broker_ends_before_or_behind_its_first_step_then_it_is_closed(
    steps: int,
) -> None:
    """Python complains of work that nobody ever awaited, in whatever comes next."""
    log = Logger(node="test")
    tasks = Tasks(log)
    begun: list[str] = []

    async def work() -> None:
        begun.append("begun")
        await asyncio.Event().wait()

    answer: Any = work()
    Answers(tasks, log).start(answer, None, RemotingCommand(310), name="test")  # type: ignore[arg-type]
    for _ in range(steps):
        await asyncio.sleep(0)
    await tasks.close()
    assert len(begun) == steps
    assert inspect.getcoroutinestate(answer) == inspect.CORO_CLOSED
