"""What an outsider believes of a broker set was said a moment ago, by somebody who answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmqha.base.errors import RmqhaError
from rmqha.chaos.aio.watch import Seen, Watch, first_since
from rmqha.runtime.aio.clock import SystemClock
from rmqha.testing.client import SetInfo

WHOLE = SetInfo(1, "host-1:1", 1, frozenset({1, 2, 3}))


class Controllers:
    """They answer one question; ``then`` is what comes of all others."""

    clock = SystemClock()

    def __init__(self, then: Callable[[], SetInfo | None]) -> None:
        self._then = then
        self.asked = 0

    async def set_info(self) -> SetInfo | None:
        """The first answer, or another one."""
        self.asked += 1
        return WHOLE if self.asked == 1 else self._then()

    async def routed(self, _: str) -> dict[int, str]:
        """Nobody is listed."""
        return {}


def watching(then: Callable[[], SetInfo | None]) -> tuple[Watch, Controllers]:
    """A watch over these."""
    controllers = Controllers(then)
    return Watch(cast(Any, controllers), "nowhere"), controllers


def fails(error: Exception) -> Callable[[], SetInfo | None]:
    """Nothing but an error comes."""

    def raised() -> SetInfo | None:
        raise error

    return raised


async def looks(controllers: Controllers, count: int) -> None:
    """Wait until the watch has looked so often."""
    async with asyncio.timeout(10):
        while controllers.asked < count:  # noqa: ASYNC110 - a watch has no event for this
            await asyncio.sleep(0.005)
    await asyncio.sleep(0)


@pytest.mark.parametrize("then", [lambda: None, fails(RmqhaError("all controllers are dead"))])
async def test_set_when_nobody_answers_any_more_then_it_is_not_in_sync(
    then: Callable[[], SetInfo | None],
) -> None:
    watch, controllers = watching(then)
    watch.start()
    await looks(controllers, 2)
    assert (watch.now, watch.is_in_sync(3, 0)) == (None, False)
    await watch.close()


def test_set_when_it_was_asked_before_the_healing_then_the_answer_does_not_count() -> None:
    """It may be that of a leader who has heard of nothing yet."""
    watch, _ = watching(lambda: WHOLE)
    watch._told(WHOLE, 100)
    assert watch.is_in_sync(3, 100)
    assert not watch.is_in_sync(3, 101)


@pytest.mark.parametrize(
    "info",
    [
        SetInfo(None, None, 1, frozenset({1, 2, 3})),
        SetInfo(1, None, 1, frozenset({1, 2, 3})),
        SetInfo(1, "host-1:1", 1, frozenset({1, 2})),
        SetInfo(4, "host-4:1", 1, frozenset({1, 2, 3})),
    ],
)
def test_set_when_it_has_no_master_or_lacks_somebody_then_it_is_not_in_sync(info: SetInfo) -> None:
    watch, _ = watching(lambda: info)
    watch._told(info, 100)
    assert not watch.is_in_sync(3, 0)


async def test_watch_when_it_breaks_then_that_is_told_and_nobody_believes_its_last_word() -> None:
    """Nobody held the controllers to the rules of masters any more, and nothing said so."""
    watch, controllers = watching(fails(KeyError("masterEpoch")))
    watch.start()
    await looks(controllers, 2)
    await asyncio.sleep(0)
    assert watch.broken == ["nobody watches the controllers any more: KeyError('masterEpoch')"]
    assert not watch.is_in_sync(3, 0)
    await watch.close()
    assert len(watch.broken) == 1, "an end that was asked for is none of these"


async def test_watch_when_nobody_looks_at_routes_any_more_then_that_is_told() -> None:
    class Unrouted(Controllers):
        async def routed(self, _: str) -> dict[int, str]:
            raise RmqhaError("no such route")

    watch = Watch(cast(Any, Unrouted(lambda: WHOLE)), "nowhere")
    watch.start()
    async with asyncio.timeout(10):
        while not watch.broken:  # noqa: ASYNC110 - nor for that
            await asyncio.sleep(0.005)
    assert watch.broken[0].startswith("nobody watches the routes any more: ")
    await watch.close()


def test_watch_when_two_masters_have_one_epoch_then_that_is_told() -> None:
    watch = Watch(cast(Any, SimpleNamespace(clock=SystemClock())), "nowhere")
    for master in (1, 1, 2):
        watch._told(SetInfo(master, f"host-{master}:1", 7, frozenset({1, 2})), 0)
    assert len(watch.elected) == 2
    assert len(watch.broken) == 1
    assert "epoch" in watch.broken[0]


def test_change_when_it_came_before_the_fault_then_it_does_not_count() -> None:
    assert first_since([Seen(5, "a"), Seen(20, "b"), Seen(30, "c")], 10) == 10
    assert first_since([Seen(5, "a")], 10) is None
