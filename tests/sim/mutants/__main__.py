"""``python -m tests.sim.mutants``: search a seed for each mutant and print the table."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor

from tests.sim.mutants import MUTANTS, SURVIVORS, search
from tests.sim.mutants.mutant import Found

SEEDS = 400
ALL = (*MUTANTS, *SURVIVORS)


def look(number: int, first: int) -> Found | None:
    return search(ALL[number], first, SEEDS)


def main() -> int:
    """Print a table as docs/TESTING.md holds it; 1 when a mutant survives or dies otherwise."""
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    wanted = set(sys.argv[2:])
    chosen = [n for n, one in enumerate(ALL) if not wanted or one.name in wanted]
    print("| mutant | rule that catches it | seed | seconds |\n|---|---|---|---|")
    failed = 0
    with ProcessPoolExecutor(2) as pool:
        for number, found in zip(
            chosen, pool.map(look, chosen, [first] * len(chosen)), strict=True
        ):
            one = ALL[number]
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
