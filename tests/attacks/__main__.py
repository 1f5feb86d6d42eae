"""One attack as a process: ``python -m tests.attacks NAME TARGET_FILE SECONDS PER_S``.

Prints its tally as JSON. It ends with 1 when it has sent nothing: such an attack proves nothing.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import msgspec

from rmqha.testing.real import wire
from tests.attacks.attacker import Run, Target
from tests.attacks.catalog import ATTACKS


def main(name: str, target_file: str, seconds: float, per_s: float) -> int:
    """Attack until the time is over."""
    target = msgspec.json.decode(Path(target_file).read_bytes(), type=Target)
    run = Run(target, seconds, per_s)
    signing = (
        wire.signing(target.access_key, target.secret_key)
        if target.access_key
        else contextlib.nullcontext()
    )
    with signing:
        ATTACKS[name].do(run)
    print(msgspec.json.encode(run.tally).decode())
    return 0 if run.tally.sent else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])))
