"""A coverage-guided run of one decoder by atheris: ``python -m tests.fuzz.guided NAME --runs N``.

It ends with exit code 0 when nothing was found. Whatever a decoder raises but its documented errors,
an input that takes longer than ``SECONDS_MAX`` or memory beyond ``MEMORY_MB_MAX`` ends it with
another one, and the input is printed in hex.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

SECONDS_MAX = 5
MEMORY_MB_MAX = 1024


def main() -> None:
    """Run until the number is reached, or something is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--runs", type=int, default=-1)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for new inputs")
    asked = parser.parse_args()
    with atheris.instrument_imports(include=["rmqha", "tests.fuzz.planted"]):
        from tests.fuzz.target import INPUT_BYTES_MAX
        from tests.fuzz.targets import by_name
    target = by_name(asked.name)

    def one(data: bytes) -> None:
        try:
            target.run(data)
        except Exception:
            print(f"found in {target.name}: {data.hex()}", file=sys.stderr, flush=True)
            raise

    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(target.corpus()):
            Path(folder, str(number)).write_bytes(data)
        kept = [str(asked.keep)] if asked.keep else []
        atheris.Setup(
            [
                sys.argv[0], f"-runs={asked.runs}", f"-seed={asked.seed}",
                f"-max_total_time={asked.seconds}", f"-timeout={SECONDS_MAX}",
                f"-rss_limit_mb={MEMORY_MB_MAX}", f"-max_len={INPUT_BYTES_MAX}",
                "-verbosity=0", "-print_final_stats=1", f"-artifact_prefix={folder}/",
                *kept, folder,
            ],
            one,
        )  # fmt: skip
        atheris.Fuzz()


if __name__ == "__main__":
    main()
