"""Whether the commit logs of two replicas hold the same bytes, from where both begin to where both end."""

from __future__ import annotations

from pathlib import Path

from rmqha.chaos.aio.flips import used_bytes

COMPARED_BYTES = 1 << 20


def used_end(log: Path) -> int:
    """Where a commit log of ours ends; 0 for one without a byte.

    Behind it are zeros alone: a file has its whole length from the beginning, and what is cut is
    erased. The last record of a log may itself end with zeros, of each replica with as many.
    """
    for file in sorted(log.glob("[0-9]*"), reverse=True):
        if used := used_bytes(file):
            return int(file.name) + used
    return 0


def equal_bytes(one: Path, other: Path, end: int | None = None) -> int:
    """Compare two commit logs, and tell how many bytes of them are the same.

    Of a log that begins later (its oldest files have expired, or a slave has started over) nothing
    is asked below its first file.

    Args:
        end: to where both must have everything, and no further; by default to where both end.

    Raises:
        ValueError: they differ, end at two places, lack a file, or have nothing in common.
    """
    begin = max(_begin(one), _begin(other))
    if end is None:
        end, theirs = used_end(one), used_end(other)
        if end != theirs:
            raise ValueError(f"{one} ends at {end}, {other} at {theirs}")
    if begin >= end:
        raise ValueError(f"{one} and {other} have nothing in common below {end}")
    at = begin
    while at < end:
        at += _compared(one, other, f"{at:020d}", end - at)
    return end - begin


def _begin(log: Path) -> int:
    """Where its first file does."""
    names = [int(file.name) for file in log.glob("[0-9]*")]
    if not names:
        raise ValueError(f"{log} has no file")
    return min(names)


def _compared(one: Path, other: Path, name: str, left: int) -> int:
    """The length of a file of both, of which so many bytes are left to compare."""
    for log in (one, other):
        if not (log / name).exists():
            raise ValueError(f"{log} has no {name}")
    sizes = {(log / name).stat().st_size for log in (one, other)}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"{name} has not one length in {one} and {other}: {sorted(sizes)}")
    at = 0
    with (one / name).open("rb") as mine, (other / name).open("rb") as theirs:
        while count := min(left - at, COMPARED_BYTES):
            chunk, against = mine.read(count), theirs.read(count)
            if chunk != against:
                pairs = enumerate(zip(chunk, against, strict=True))
                differ = next(i for i, (a, b) in pairs if a != b)
                raise ValueError(f"logs differ in {name} at {at + differ}")
            at += len(chunk)
            if len(chunk) < count:
                break
    return sizes.pop()
