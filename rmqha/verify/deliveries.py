"""What comes to consumers is what was sent, and within one reign it comes once.

Who has taken over may deliver once more what the one before had delivered: positions are behind. A
master that goes on has no reason to, for it knows what it has delivered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rmqha.base.invariants import invariant


class Delivered(NamedTuple):
    """One copy of a message where consumers read.

    Attributes:
        place: where it is in the log.
        first: where the first record with this message is, in whatever topic. After a take-over a
            half message that had been put back twice is open twice, and each is committed.
    """

    body: bytes
    place: int
    first: int


def check_once(delivered: Iterable[Delivered], reign_starts: Iterable[int]) -> int:
    """Look for two copies of one reign.

    Args:
        reign_starts: where the log ended when anybody took up the role of a master, also in the
            process and epoch of before; and where epochs begin.

    Returns:
        How many copies are no second ones.

    Raises:
        InvariantBroken: a message has two copies, and nobody took over since it was sent.
    """
    starts = sorted(set(reign_starts))
    seen: dict[bytes, int] = {}
    for one in sorted(delivered, key=lambda one: one.place):
        before = seen.get(one.body)
        invariant(
            before is None or _is_between(starts, one.first, one.place),
            "a message is delivered twice in one reign", body=one.body, places=(before, one.place),
        )  # fmt: skip
        seen[one.body] = one.place
    return len(seen)


def _is_between(starts: Sequence[int], before: int, after: int) -> bool:
    """Whether a reign starts behind the record at ``before``, or with the one at ``after``."""
    at = bisect_right(starts, before)
    return at < len(starts) and starts[at] <= after


def check_properties(
    body: bytes, sent: Mapping[str, str], found: Mapping[str, str]
) -> None:  # fmt: skip
    """What was sent is there; brokers may have added their own.

    Raises:
        InvariantBroken: a property is gone, or another one.
    """
    for name, value in sent.items():
        invariant(
            found.get(name) == value, "a message is delivered with other properties",
            body=body, name=name, sent=value, found=found.get(name),
        )  # fmt: skip
