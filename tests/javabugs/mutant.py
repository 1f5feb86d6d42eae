"""One of Java's bugs in our code, the test that is named in its row, and where that test then fails."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, field

from rmqha.sim.cluster import SimCluster

ROOT = Path(__file__).resolve().parents[2]
Patch = Callable[[pytest.MonkeyPatch], None]


class Mutant(Struct, frozen=True):
    """A bug, and how it is found.

    Attributes:
        number: of the row of docs/known-java-bugs.md.
        patch: brings Java's behaviour back; its docstring says what it is.
        file: of the test, below ``tests``.
        test: its name.
        fails_at: a part of the line of the test that fails, and of no other one of its lines.
        given: the test's arguments.
    """

    number: int
    patch: Patch
    file: str
    test: str
    fails_at: str
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The patch's name."""
        return self.patch.__name__

    @property
    def path(self) -> Path:
        """The test's file."""
        return ROOT / "tests" / self.file

    def run(self) -> None:
        """Run the test, with the bug or without, as the caller has it."""
        try:
            self._run()
        except BaseException as error:
            _end_clusters(error)
            raise

    def _run(self) -> None:
        module = importlib.import_module(f"tests.{self.file.removesuffix('.py').replace('/', '.')}")
        outcome = getattr(module, self.test)(**self.given)
        if inspect.iscoroutine(outcome):
            asyncio.run(outcome)


def _end_clusters(error: BaseException) -> None:
    """Free the loops of a simulated cluster that a test ends itself when it passes."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        found = frame.f_locals.get("cluster")
        if isinstance(found, SimCluster) and not found.loop.is_closed():
            found.close()


def failing_line(error: BaseException, mutant: Mutant) -> str | None:
    """The line at which an error left the mutant's test; None when it never was there."""
    return next(
        (
            one.line
            for one in traceback.extract_tb(error.__traceback__)
            if Path(one.filename) == mutant.path and one.name == mutant.test
        ),
        None,
    )
