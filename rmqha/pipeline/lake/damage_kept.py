"""Which rows of damage a lake keeps when an export has read the log, or some topics of it, anew."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from rmqha.pipeline.lake.cells import ROTTEN


class DamageRow(NamedTuple):
    """A row of the table of damage."""

    replica: str
    at: int
    size: int
    reason: str
    cluster: str | None
    broker: str


def rotten_places(before: Iterable[DamageRow]) -> set[int]:
    """Where messages stand that an export found with rotten bodies."""
    return {one.at for one in before if one.reason == ROTTEN}


def damage_kept(
    before: Iterable[DamageRow],
    new: Iterable[DamageRow],
    span: tuple[int, int],
    read_again: Collection[int] | None,
) -> set[DamageRow]:
    """Rows of before that still hold.

    An export of some topics goes through the whole log for damaged ranges, and looks at bodies of
    these topics only: what it has not looked at has not become well.

    Args:
        before: of this set, in the lake.
        new: what this export has found.
        span: from where to where it has gone through the log.
        read_again: the ``rotten_places`` of messages that it has read; None for all.
    """
    low, high = span
    gaps = [(one.at, one.at + one.size) for one in new]

    def holds(one: DamageRow) -> bool:
        if not low <= one.at < high:
            return True
        unread = read_again is not None and one.at not in read_again
        is_hurt_anew = any(start <= one.at < stop for start, stop in gaps)
        return one.reason == ROTTEN and unread and not is_hurt_anew

    return {one for one in before if holds(one)}
