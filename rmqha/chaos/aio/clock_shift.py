"""Runs a program of ours with a wall clock that somebody else moves: no other process sees it jump.

``python -m rmqha.chaos.aio.clock_shift FILE MODULE ARGUMENTS``. The file holds nanoseconds, eight
bytes of the machine's order with a sign, which are added to the time since 1970 at each look. Clocks
that count intervals go on: a machine whose wall clock is set keeps them, too.

A process that the program starts has the machine's time.
"""

from __future__ import annotations

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path

SHIFT = struct.Struct("=q")
NS_PER_S = 1_000_000_000


def write_shift(file: Path, shift_s: float) -> None:
    """Move the clock of whoever runs with this file; 0 for the machine's own time."""
    data = SHIFT.pack(round(shift_s * NS_PER_S))
    if not file.exists():
        file.write_bytes(data)
        return
    with file.open("r+b") as opened:
        opened.write(data)


def shift_clock(file: Path) -> None:
    """Have ``time.time`` and ``time.time_ns`` of this process follow the file."""
    with file.open("rb") as opened:
        shift = mmap.mmap(opened.fileno(), SHIFT.size, access=mmap.ACCESS_READ)
    real_ns, look = time.time_ns, SHIFT.unpack_from

    def time_ns() -> int:
        return real_ns() + int(look(shift)[0])

    def time_s() -> float:
        return time_ns() / NS_PER_S

    time.time_ns = time_ns
    time.time = time_s  # noqa: TID251 - whoever else asks for the time, a library or ours


def main() -> None:
    """See the module's text."""
    file, module, *arguments = sys.argv[1:]
    shift_clock(Path(file))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
