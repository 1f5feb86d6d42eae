"""A message that is stored twice must have been sent twice."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmqha.chaos.aio.load import Load
from rmqha.chaos.copies import Copies
from rmqha.runtime.aio.clock import SystemClock
from rmqha.testing.client import Acked
from rmqha.testing.workload import stop_all


def test_copies_when_each_had_an_attempt_without_an_answer_then_they_are_explained() -> None:
    copies = Copies()
    copies.unanswered(range(4, 6))
    copies.unanswered(range(4, 6))
    for number in (4, 5, 4):
        copies.came_again(number)
    assert copies.unexplained() == []


def test_copies_when_there_are_more_than_attempts_then_the_numbers_are_told() -> None:
    """A refused send of one message explains no copy of another."""
    copies = Copies()
    copies.unanswered([4])
    for number in (9, 4, 4, 7):
        copies.came_again(number)
    assert copies.unexplained() == [4, 7, 9]


class Broker:
    """A broker and its client in one, with a single queue.

    Args:
        copies: how often each message is stored.
        answers: whether the first attempt of each is answered.
    """

    def __init__(self, copies: int, *, answers: bool) -> None:
        self.clock, self.history = SystemClock(), None
        self._copies, self._answers = copies, answers
        self._stored: list[bytes] = []

    async def master(self) -> str:
        """Itself."""
        return "here"

    async def create_topic(self, *_: object) -> Any:
        """One queue."""
        return SimpleNamespace(read=1)

    async def send_together(
        self, number: int, bodies: list[bytes], topic: str, attempt: int
    ) -> list[Acked]:
        """Store them as often as it does."""
        await asyncio.sleep(0)
        at = len(self._stored)
        self._stored += list(bodies) * self._copies
        if attempt == 1 and not self._answers:
            return []
        places = enumerate(bodies, at)
        return [Acked(topic, b, 0, place, "", "here", attempt, 0, 0) for place, b in places]

    async def pull(self, _: str, topic: str, queue: int, offset: int, count: int) -> Any:
        """All that there is."""
        bodies = self._stored[offset : offset + count]
        found = [SimpleNamespace(body=b, queue_offset=o) for o, b in enumerate(bodies, offset)]
        return found, offset + len(found)

    async def until(self, found: Any, what: str, timeout_s: float) -> None:
        """Wait for it."""
        async with asyncio.timeout(timeout_s):
            while not await found():  # noqa: ASYNC110 - as the real one does
                await asyncio.sleep(0.001)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    ("copies", "answers", "good"), [(1, True, True), (1, False, True), (2, True, False)]
)
async def test_load_when_a_broker_stores_twice_then_it_says_so_unless_it_sent_twice(
    batch: int, copies: int, *, answers: bool, good: bool
) -> None:
    """1,953 duplicates and no send that was refused gave a cell that was good."""
    load = Load(cast(Any, Broker(copies, answers=answers)), "t", 0.0, 1.0, batch)
    load.start()
    await load.wait_for_acks(30, 10.0)
    assert await stop_all([load], 10.0) == []
    assert (load.ledger.duplicates > 0) == (copies > 1 or not answers)
    assert (
        load.broken() == [] if good else "stored more often than they were sent" in load.broken()[0]
    )
