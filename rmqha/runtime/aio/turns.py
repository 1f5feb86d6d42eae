"""Long work of the event loop, in parts between which others have their turn."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Iterable
from typing import Generic, TypeVar

ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT", bound=Hashable)


async def in_turns(work: Generator[None, None, ResultT]) -> ResultT:
    """Do it to its end.

    Args:
        work: yields where others may have their turn; whatever it looks at may be another then.

    Returns:
        What it returns.
    """
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: ResultT = end.value
            return found
        await asyncio.sleep(0)


class Backlog(Generic[ItemT]):
    """The same that is to be done with very many: with the first at once, with the others in turns.

    Args:
        handle: does it with one; what was true when that one was added may be so no more.
        at_a_time: how many in one turn of the loop.
    """

    def __init__(self, handle: Callable[[ItemT], None], at_a_time: int) -> None:
        self._handle = handle
        self._at_a_time = at_a_time
        self._waiting: OrderedDict[ItemT, None] = OrderedDict()
        self._is_going_on = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, items: Iterable[ItemT]) -> None:
        """Do it with these, behind those that wait; who waits already keeps its place."""
        for item in items:
            self._waiting[item] = None
        if not self._is_going_on:
            self._go_on()

    def clear(self) -> None:
        """Do it with nobody who waits."""
        self._waiting.clear()

    def _go_on(self) -> None:
        self._is_going_on = True
        left = self._at_a_time
        try:
            while self._waiting and left:
                left -= 1
                self._handle(self._waiting.popitem(last=False)[0])
        finally:
            self._is_going_on = bool(self._waiting)
            if self._is_going_on:
                asyncio.get_running_loop().call_soon(self._go_on)
