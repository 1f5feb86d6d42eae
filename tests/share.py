"""Which of many tests that are alike are run: a share, another one after each commit.

Long rows of stories take turns everywhere: a test with the mark ``turns(4)`` runs a fourth of its
parameters in each ``bin/test``.

The whole of bin/test takes the better part of an hour where a seed of the controllers' simulator takes a
quarter of a second, and more than CI's ninety minutes where it takes a whole one. There ``bin/test --ci``
runs every test, but a slow one, or one of real RocketMQ, only with a share of its parameters. Which ones
follows from the number of commits, so that some commits in a row run all of them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

SEEDS = range(601, 605)
WORKERS = 2
STEPS = ((0.36, 1), (0.5, 2), (0.65, 3), (0.9, 4), (1.2, 6))
"""Up to so many processor seconds a seed, one parameter of so many is run."""
LEAST_SHARE = 8


class Named(Protocol):
    """A test as pytest collects it."""

    nodeid: str


Item = TypeVar("Item", bound=Named)


def share_at(seed_s: float) -> int:
    """One parameter of how many is run where a seed takes ``seed_s`` processor seconds."""
    return next((share for limit, share in STEPS if seed_s <= limit), LEAST_SHARE)


def left_out(items: Sequence[Item], share: int, turn: int) -> list[Item]:
    """What is not run of ``items`` this ``turn``: each test keeps every ``share``-th parameter.

    In ``share`` turns that follow each other, every one of them is kept once at least.
    """
    alike: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        alike[item.nodeid.partition("[")[0]].append(item)
    return [
        item
        for name in sorted(alike)
        for number, item in enumerate(alike[name])
        if number % min(share, len(alike[name])) != turn % min(share, len(alike[name]))
    ]


def turn_of(root: Path) -> int:
    """The number of commits, or 0 where that cannot be known."""
    asked = ["git", "-C", str(root), "rev-list", "--count", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else 0


def _play(seeds: range) -> float:
    from rmqha.sim.swarm import run_seed  # what is not timed

    run_seed(seeds.start)
    begun = time.process_time()
    for seed in seeds:
        run_seed(seed)
    return (time.process_time() - begun) / len(seeds)


def seed_seconds() -> float:
    """Processor seconds that a seed takes here while both processors are busy."""
    with ProcessPoolExecutor(WORKERS) as pool:
        return sum(pool.map(_play, [SEEDS] * WORKERS)) / WORKERS


if __name__ == "__main__":
    taken_s = seed_seconds()
    print(f"a seed takes {taken_s:.2f} processor seconds here", file=sys.stderr)
    print(share_at(taken_s))
