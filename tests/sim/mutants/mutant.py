"""A bug put in on purpose, the rule that must catch it, and the search for a seed that does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import pytest

from rmqha.sim.shrink import same_failure
from rmqha.sim.story import Outcome
from rmqha.sim.swarm import run_seed

Patch = Callable[[pytest.MonkeyPatch], None]
INVARIANT = "InvariantBroken: "


class Mutant(NamedTuple):
    """One bug.

    Attributes:
        patch: puts it in; its docstring says what it is.
        rule: the words of the invariant that catches it, exactly.
        first_seed: known to find it.
    """

    patch: Patch
    rule: str
    first_seed: int = 1

    @property
    def name(self) -> str:
        """The patch's name."""
        return self.patch.__name__


class Found(NamedTuple):
    """A seed at which a mutant died.

    Attributes:
        failure: the broken rule, without facts.
        seconds: of processor time, from the first seed on.
        survived: seeds that saw nothing wrong before.
    """

    seed: int
    failure: str
    seconds: float
    survived: int


def search(
    mutant: Mutant, first: int, count: int, run: Callable[[int], Outcome] = run_seed
) -> Found | None:
    """Play seeds with the bug until one fails, in whatever way."""
    began = time.process_time()
    with pytest.MonkeyPatch.context() as patch:
        mutant.patch(patch)
        for seed in range(first, first + count):
            try:
                run(seed)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the verdict
                failure = same_failure(error).removeprefix(INVARIANT)
                return Found(seed, failure, time.process_time() - began, seed - first)
    return None
