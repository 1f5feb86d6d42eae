"""What a majority agrees on. Pure arithmetic, tested without a Raft."""

from __future__ import annotations

from collections.abc import Iterable


def majority(members: int) -> int:
    """How many of ``members`` nodes a quorum needs."""
    return members // 2 + 1


def reached_by_majority(values: Iterable[int]) -> int:
    """The largest value that a majority of the members has reached (one value a member)."""
    ordered = sorted(values, reverse=True)
    return ordered[majority(len(ordered)) - 1]
