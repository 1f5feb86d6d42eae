"""Long work in parts: a generator that yields where others may have their turn.

``aio/turns`` does it with turns for others; here it is done without, for who has nobody to wait.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

ResultT = TypeVar("ResultT")


def at_once(work: Generator[None, None, ResultT]) -> ResultT:
    """Do all parts of it, and return what it returns."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: ResultT = end.value
            return found
