"""A long run of plain mutations over all decoders: ``python -m tests.fuzz.plain --inputs N --seed S``.

It ends with exit code 0 when nothing was found; what is found is printed in hex.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.fuzz.mutations import mutated
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

SECONDS_MAX = 5.0


def run(target: Target, inputs: int, seed: str) -> int:
    """Mutate the corpus of one decoder; how many inputs did what none may."""
    rng, corpus, found = random.Random(f"{target.name} {seed}"), target.corpus(), 0
    for _ in range(inputs):
        data, begun = mutated(rng, corpus), time.monotonic()
        try:
            target.run(data)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            found += 1
            print(f"found in {target.name}: {error!r}: {data.hex()}", flush=True)
        if time.monotonic() - begun > SECONDS_MAX:
            found += 1
            print(f"slow in {target.name}: {data.hex()}", flush=True)
    return found


def main() -> None:
    """Run them all, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="of each decoder")
    parser.add_argument("--seed", default="1")
    asked = parser.parse_args()
    found = 0
    for target in TARGETS:
        begun = time.monotonic()
        found += run(target, asked.inputs, asked.seed)
        print(f"{target.name}: {asked.inputs} in {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{asked.inputs * len(TARGETS)} inputs, {found} found")
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
