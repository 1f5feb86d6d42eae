"""Long work of the event loop, in parts between which others have their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

ResultT = TypeVar("ResultT")


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
