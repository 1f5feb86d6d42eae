"""Whether the commit logs of two replicas hold the same bytes."""

from __future__ import annotations

from pathlib import Path

COMPARED_BYTES = 1 << 20


def equal_bytes(one: Path, other: Path) -> int:
    """Bytes of files of the same name in two commit logs that are compared, and equal.

    Where they differ one of them must have ended: nothing but zeros follows in it.

    Raises:
        ValueError: two logs hold different bytes, or have no file in common.
    """
    names = sorted(
        {path.name for path in one.glob("[0-9]*")} & {p.name for p in other.glob("[0-9]*")}
    )
    if not names:
        raise ValueError(f"{one} and {other} have no file in common")
    compared = 0
    for name in names:
        mine, theirs = (one / name).open("rb"), (other / name).open("rb")
        with mine, theirs:
            while chunk := mine.read(COMPARED_BYTES):
                against = theirs.read(COMPARED_BYTES)
                if chunk != against:
                    at = next(
                        i for i, (a, b) in enumerate(zip(chunk, against, strict=True)) if a != b
                    )
                    if chunk[at:].strip(b"\0") and against[at:].strip(b"\0"):
                        raise ValueError(
                            f"logs differ in {name} at {mine.tell() - len(chunk) + at}"
                        )
                compared += len(chunk)
    return compared
