"""Tasks with an owner: nothing is lost silently, everything ends with its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from rmqha.runtime.logs import Logger


class Tasks:
    """A set of background tasks; an unexpected error is logged and handed to ``on_error``."""

    def __init__(
        self, log: Logger, on_error: Callable[[BaseException], None] | None = None
    ) -> None:
        self._log = log
        self._on_error = on_error
        self._running: dict[int, asyncio.Task[Any]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Run ``work`` until it ends or :meth:`close` is called."""
        self._count += 1
        number = self._count
        task = asyncio.create_task(work, name=name)
        self._running[number] = task
        task.add_done_callback(lambda done: self._ended(number, done))
        return task

    def _ended(self, number: int, task: asyncio.Task[Any]) -> None:
        self._running.pop(number, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        self._log.log("error", "task_failed", task=task.get_name(), error=repr(error))
        if self._on_error is not None:
            self._on_error(error)

    def cancel(self) -> None:
        """Cancel what runs, at once; further tasks may be started."""
        for task in list(self._running.values()):
            task.cancel()

    async def close(self) -> None:
        """Cancel what runs and wait for it."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
