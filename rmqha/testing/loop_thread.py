"""An event loop in a thread of its own, so that plain synchronous tests can use a cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from rmqha.runtime.aio.loop import run
from rmqha.testing.life import task_factory

T = TypeVar("T")
END_TIMEOUT_S = 10.0


class LoopThread:
    """uvloop in a background thread; ended by :meth:`close`.

    Args:
        name: of the thread, and of what is closed with it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_closed = False
        self._ready = threading.Event()
        self._ended: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        run(self._main())

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        # typeshed wants a generic factory; ours makes whatever task it is given the work of.
        self.loop.set_task_factory(cast(Any, task_factory))
        self._ended = asyncio.Event()
        self._ready.set()
        await self._ended.wait()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run in the loop, and wait for the result; an interrupt here cancels it there.

        Raises:
            ValueError: the loop is closed.
        """
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run in the loop, without waiting.

        Raises:
            ValueError: the loop is closed.
        """
        if self._is_closed:
            work.close()  # else Python warns that it was never awaited
            raise ValueError(f"the {self._name} is closed")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """End the loop, and everything in it."""
        self._is_closed = True
        if self._ended is not None and self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(END_TIMEOUT_S)
