"""The verbs of a cluster as coroutines, for tests with an event loop of their own."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rmqha.testing.aio_cluster import AioCluster
from rmqha.testing.ledger import Ledger
from rmqha.testing.loop_thread import LoopThread
from rmqha.testing.traffic import TIMEOUT_S
from rmqha.testing.verbs import SeenWorkload

T = TypeVar("T")


async def _elsewhere(thread: LoopThread, work: Coroutine[Any, Any, T]) -> T:
    """Run in the cluster's loop, and wait in the caller's."""
    return await asyncio.wrap_future(thread.submit(work))


class AioVerbs:
    """``await cluster.aio.kill(node)`` and so on: the arguments are those of ``AioCluster``."""

    def __init__(self, core: AioCluster, thread: LoopThread) -> None:
        self._core = core
        self._thread = thread

    async def workload(self, topic: str | None = None, pause_ms: float = 1.0) -> AioWorkload:
        """Begin to send and to read, as :meth:`RmqCluster.workload` does."""
        work = self._core.workload(topic, pause_ms)
        return AioWorkload(await _elsewhere(self._thread, work), self._thread)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        """A verb's coroutine, made of the one that runs in the cluster's loop."""
        made = getattr(self._core, verb, None)
        if not inspect.iscoroutinefunction(made):
            raise AttributeError(f"cluster.aio has no coroutine {verb!r}")

        @functools.wraps(made)
        async def call(*args: Any, **more: Any) -> Any:
            return await _elsewhere(self._thread, made(*args, **more))

        return call


class AioWorkload(SeenWorkload):
    """A workload, seen from a test's event loop."""

    async def stop(self, drain_s: float = TIMEOUT_S) -> Ledger:
        """Stop sending, read what was acknowledged, at most for ``drain_s``, and stop reading."""
        await _elsewhere(self._thread, self._workload.stop(drain_s))
        return self.ledger

    async def wait_for_acks(self, more: int, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until so many more are acknowledged.

        Raises:
            NotYet: they were not.
        """
        await _elsewhere(self._thread, self._workload.wait_for_acks(more, timeout_s))
