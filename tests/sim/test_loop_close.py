"""A loop that ends while a task of a host has been made and has not begun."""

from __future__ import annotations

import contextvars
import gc
import warnings

import pytest

from rmqha.sim.loop import HOST, SimLoop


@pytest.mark.costly
def test_loop_when_closed_then_a_task_that_never_began_is_no_warning_of_a_later_test() -> None:
    """It made another test fail, whenever the collector came by."""

    loop = SimLoop()

    async def work() -> None:
        raise AssertionError("it never begins")

    def start() -> None:
        HOST.set("h")
        loop.create_task(work())

    contextvars.copy_context().run(start)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop.close()
        loop.host_tasks.clear()
        gc.collect()
