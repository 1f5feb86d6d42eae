"""Flips bits in the commit log of a broker that runs, as a bad disk or bad memory does.

The file and the broker's mapping of it share the kernel's pages, so a bit that flips in one has
flipped in the other. What was written a moment ago is left alone: it may not be on any other replica
yet, and nobody could mend it.
"""

from __future__ import annotations

import os
from pathlib import Path

from rmqha.runtime.ports import Rng

TAIL_BYTES = 64 << 10
SCANNED_BYTES = 1 << 20


def flip_bits(log: Path, rng: Rng, count: int) -> list[int]:
    """Flip bits of the log, each in another byte, anywhere but at its end.

    Args:
        log: the folder of commit log files.
        rng: draws the bytes and the bits.
        count: how many; fewer where the log has fewer bytes.

    Returns:
        Their places in the log, ascending.
    """
    extents = [(file, used_bytes(file)) for file in sorted(log.glob("[0-9]*"))]
    extents = [(file, used) for file, used in extents if used]
    if not extents:
        return []
    first = int(extents[0][0].name)
    last, used = extents[-1]
    end = int(last.name) + used - TAIL_BYTES
    wanted = min(count, end - first)
    places: set[int] = set()
    while len(places) < wanted:
        places.add(rng.randint(first, end - 1))
    for place in sorted(places):
        file = max((one for one, _ in extents if int(one.name) <= place), key=lambda one: one.name)
        _flip(file, place - int(file.name), 1 << rng.randint(0, 7))
    return sorted(places)


def used_bytes(file: Path) -> int:
    """Up to the last byte that is not zero; a file has its whole length from the beginning."""
    with file.open("rb") as opened:
        at = os.fstat(opened.fileno()).st_size
        while at > 0:
            begin = max(0, at - SCANNED_BYTES)
            opened.seek(begin)
            held = opened.read(at - begin).rstrip(b"\0")
            if held:
                return begin + len(held)
            at = begin
    return 0


def _flip(file: Path, at: int, mask: int) -> None:
    with file.open("r+b", buffering=0) as opened:
        opened.seek(at)
        (byte,) = opened.read(1)
        opened.seek(at)
        opened.write(bytes([byte ^ mask]))
