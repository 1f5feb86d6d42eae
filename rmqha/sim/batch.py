"""Many seeds, in several processes, and what they came to together."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice, repeat

from msgspec import Struct, field

from rmqha.sim.shrink import same_failure
from rmqha.sim.story import Outcome

SEEDS_PER_TASK = 4

Run = Callable[[int], Outcome]


class Played(Struct, frozen=True):
    """One seed of a batch, without its trace.

    Attributes:
        failure: what broke, with its facts; empty when nothing did.
        name: of the failure, without the facts.
        notes: the end of the trace of a failure.
        cpu_s: processor seconds.
    """

    seed: int
    failure: str = ""
    name: str = ""
    notes: str = ""
    digest: str = ""
    virtual_ms: int = 0
    settled_ms: int = 0
    elections: int = 0
    reads: int = 0
    faults: int = 0
    cpu_s: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)


class Totals(Struct):
    """A batch as a whole."""

    seeds: int = 0
    failed: list[Played] = field(default_factory=list)
    virtual_ms: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, one: Played) -> None:
        """Count one seed."""
        self.seeds += 1
        if one.failure:
            self.failed.append(one)
        self.virtual_ms += one.virtual_ms
        self.cpu_s += one.cpu_s
        self.counts.update(one.counts)


def play_one(run: Run, seed: int) -> Played:
    """Play one seed; whatever it raises is its failure."""
    began = time.process_time()
    try:
        outcome = run(seed)
    except Exception as error:  # noqa: BLE001 - it is reported, with its trace
        notes = "\n".join(getattr(error, "__notes__", []))
        return Played(
            seed,
            f"{type(error).__name__}: {error}",
            same_failure(error),
            notes,
            cpu_s=time.process_time() - began,
        )
    return Played(
        seed,
        digest=outcome.digest,
        virtual_ms=outcome.virtual_ms,
        settled_ms=outcome.settled_ms,
        elections=outcome.elections,
        reads=outcome.reads,
        faults=sum(outcome.faults.values()),
        counts=outcome.counts,
        cpu_s=time.process_time() - began,
    )


def _play_some(run: Run, seeds: list[int]) -> list[Played]:
    return [play_one(run, seed) for seed in seeds]


def play_batch(run: Run, first: int, count: int, processes: int) -> Iterator[Played]:
    """Play ``count`` seeds from ``first`` on; results come in the order of seeds.

    Args:
        run: plays one seed; a module's function, for it travels to other processes.
        first, count: which seeds.
        processes: how many at a time; one plays in this process.
    """
    if processes == 1:
        for seed in range(first, first + count):
            yield play_one(run, seed)
        return
    seeds = iter(range(first, first + count))
    with ProcessPoolExecutor(min(processes, os.cpu_count() or 1, count)) as pool:
        tasks = iter(lambda: list(islice(seeds, SEEDS_PER_TASK)), [])
        for played in pool.map(_play_some, repeat(run), tasks):
            yield from played
