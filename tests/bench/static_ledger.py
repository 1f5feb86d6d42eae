"""What producers of a static topic were told, and what readers found of it: is anything amiss?

The producer of each logical queue sends 0, 1, 2 .. and goes on when a number is acknowledged; what
it was not told of it sends again. So a number may come again where an outcome was unknown, and
nowhere else, and the first coming of each is in order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

UNDECIDED = -1
"""The offset that Java's brokers tell while a remap is under way."""

Read = Sequence[tuple[int, int]]
"""Logical offset and number of each message of a queue, as it was read."""


class Ledger(Struct):
    """What the producers know.

    Attributes:
        told: number and offset of each acknowledged message, by logical queue.
        resent: numbers that were sent again after an unknown outcome, by logical queue.
    """

    told: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    resent: dict[int, set[int]] = field(default_factory=dict)

    @property
    def acknowledged(self) -> int:
        """How many messages."""
        return sum(map(len, self.told.values()))


class Verdict(Struct, frozen=True):
    """How many messages, of all queues.

    Attributes:
        lost: acknowledged, and not there.
        out_of_order: so many would have to be taken out to have the others in order.
        sent_back: read at an offset that is not above the one before.
        misplaced: there, and not at the offset that was told.
        repeated: there again, after an unknown outcome.
        doubled: there again, with every outcome known.
        examples: the first of each kind, in words.
    """

    lost: int = 0
    out_of_order: int = 0
    sent_back: int = 0
    misplaced: int = 0
    repeated: int = 0
    doubled: int = 0
    examples: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether nothing is amiss."""
        return not (
            self.lost or self.out_of_order or self.sent_back or self.misplaced or self.doubled
        )


def judge(ledger: Ledger, found: Mapping[int, Read]) -> Verdict:
    """Compare what was told with what was read.

    Args:
        found: by logical queue.
    """
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for queue, told in ledger.told.items():
        resent = ledger.resent.get(queue, set())
        for kind, words in _amiss(told, resent, found.get(queue, ())):
            counts[kind] += 1
            examples.setdefault(kind, f"{kind}, queue {queue}: {words}")
    return Verdict(**counts, examples=tuple(examples.values()))


def _amiss(
    told: Sequence[tuple[int, int]], resent: set[int], read: Read
) -> Iterable[tuple[str, str]]:
    """Kind and description of everything that is to be counted."""
    seen: dict[int, set[int]] = {}
    first: list[tuple[int, int]] = []
    last = -1
    for offset, number in read:
        if offset <= last:
            yield "sent_back", f"offset {offset} after {last}"
        last = offset
        if number in seen:
            kind = "repeated" if number in resent else "doubled"
            yield kind, f"{number} at {offset} and {min(seen[number])}"
        else:
            first.append((offset, number))
        seen.setdefault(number, set()).add(offset)
    for offset, number in _out_of_order(first):
        yield "out_of_order", f"{number} at {offset}"
    for number, offset in told:
        if number not in seen:
            yield "lost", f"{number}, acknowledged at {offset}"
        elif offset != UNDECIDED and offset not in seen[number]:
            yield "misplaced", f"{number} was acknowledged at {offset}, is at {min(seen[number])}"


def _out_of_order(first: Read) -> Iterable[tuple[int, int]]:
    """All that is outside a longest rising sequence of numbers."""
    ends: list[int] = []  # the smallest number that ends a rising sequence of each length
    lengths = []
    for _, number in first:
        at = bisect_left(ends, number)
        ends[at : at + 1] = [number]
        lengths.append(at)
    wanted = len(ends) - 1
    for place, length in zip(reversed(first), reversed(lengths), strict=True):
        if length == wanted:
            wanted -= 1
        else:
            yield place
