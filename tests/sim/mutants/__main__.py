"""``python -m tests.sim.mutants [FIRST [NAME ...]]``: find a seed for each mutant, print the table.

Without FIRST each begins at the seed that is known to find it.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor

from tests.sim.mutants import MUTANTS, search
from tests.sim.mutants.mutant import Found

SEEDS = 400
SEEDS_KNOWN = 25


def look(number: int, first: int | None) -> Found | None:
    """Search for one mutant."""
    if first is None:
        return search(MUTANTS[number], MUTANTS[number].first_seed, SEEDS_KNOWN)
    return search(MUTANTS[number], first, SEEDS)


def main() -> int:
    """Print a table as docs/TESTING.md holds it; 1 when a mutant survives or dies otherwise."""
    first = int(sys.argv[1]) if len(sys.argv) > 1 else None
    wanted = set(sys.argv[2:])
    chosen = [n for n, one in enumerate(MUTANTS) if not wanted or one.name in wanted]
    print("| mutant | rule that catches it | seed | seconds |\n|---|---|---|---|")
    failed = 0
    with ProcessPoolExecutor(2) as pool:
        for number, found in zip(
            chosen, pool.map(look, chosen, [first] * len(chosen)), strict=True
        ):
            one = MUTANTS[number]
            if found is None:
                print(f"| `{one.name}` | SURVIVED {SEEDS} seeds | | |", flush=True)
                failed = 1
                continue
            other = "" if found.failure == one.rule else f"NOT {one.rule}: "
            failed |= bool(other)
            print(
                f"| `{one.name}` | {other}{found.failure} | {found.seed} | {found.seconds:.1f} |",
                flush=True,
            )
    return failed


if __name__ == "__main__":
    sys.exit(main())
