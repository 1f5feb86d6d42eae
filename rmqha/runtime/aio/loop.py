"""The only file that knows uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a process's main coroutine on uvloop."""
    with loop_runner() as runner:
        return runner.run(main)


def loop_runner() -> asyncio.Runner:
    """A uvloop that stands still between one ``run`` and the next, for callers that block."""
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)
