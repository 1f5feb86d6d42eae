"""What chaos came to: rounds, cells, and the figures of many rounds.

A cell is one scenario on one cluster. Times are milliseconds; those of a round count from its fault,
or from the moment at which it was healed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

PERCENTILES = (50, 95, 99)


class Round(Struct, frozen=True):
    """One fault, from its beginning until the set was whole again.

    Attributes:
        number: from 0.
        fault: in words.
        faults: processes, or links, that it took.
        at_ms: since the cell began.
        held_ms: until it was healed.
        noticed_ms: until a controller took the master for dead, by our controllers' logs.
        elected_ms: until the controllers named another master; None when they did not.
        writing_ms: until the new master took writes, by our brokers' logs.
        routed_ms: until the name server named another master.
        first_ack_ms: until a message that was sent after the fault was acknowledged; None when none
            was before the end of the round.
        out_ms: the longest time without an acknowledgement, from the fault to the end of the round.
        back_ms: from the healing until a message that was sent after it was acknowledged.
        whole_ms: from the healing until all replicas were in sync; None when they were not in time.
    """

    number: int
    fault: str
    faults: int
    at_ms: int
    held_ms: int
    elected_ms: int | None = None
    routed_ms: int | None = None
    first_ack_ms: int | None = None
    out_ms: int = 0
    back_ms: int | None = None
    whole_ms: int | None = None
    noticed_ms: int | None = None
    writing_ms: int | None = None


class Cell(Struct):
    """One scenario on one cluster.

    Attributes:
        controllers, brokers: ``py``, ``java``, ``jraft`` or ``mixed``.
        replicas: how many brokers.
        asked: how it was to go, in words; the same of two cells that were asked for alike.
        seed: with the scenario's name it gives the same faults again.
        links_by: what cuts links.
        lost: numbers of messages that were acknowledged and not found, by the consumer that reads
            along, or in the end at the master.
        flipped_bits: in brokers' logs.
        damaged: messages that the master gave out, and not as they were sent: to the consumer that
            reads along, or in the end.
        bytes_equal: of the logs, compared byte by byte; None when they were not.
        services: what clients of services came to, counted; empty where none were used.
        broken: rules that did not hold, in words; empty for a good cell.
    """

    scenario: str
    controllers: str
    brokers: str
    seed: int
    replicas: int = 3
    asked: str = ""
    settings: str = ""
    links_by: str = ""
    rounds: list[Round] = field(default_factory=list)
    acknowledged: int = 0
    refused: int = 0
    duplicates: int = 0
    consumed: int = 0
    lost: list[str] = field(default_factory=list)
    flipped_bits: int = 0
    damaged: int = 0
    bytes_equal: int | None = None
    elections: int = 0
    took_s: float = 0.0
    services: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def is_of(self, other: Cell) -> bool:
        """Whether the same was asked for: its outcome need not be found again."""
        names = ("scenario", "controllers", "brokers", "seed", "replicas", "asked", "settings")
        return all(getattr(self, one) == getattr(other, one) for one in names)

    @property
    def faults(self) -> int:
        """Of all rounds."""
        return sum(one.faults for one in self.rounds)

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost and no rule broken, in at least one round."""
        played = bool(self.rounds) and self.acknowledged > 0
        return played and not self.lost and not self.damaged and not self.broken

    def times(self, name: str) -> list[int]:
        """One kind of time of all rounds that have it."""
        values = (getattr(one, name) for one in self.rounds)
        return [value for value in values if value is not None]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all do not exceed (nearest rank).

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values")
    ranked = sorted(values)
    return ranked[max(0, math.ceil(len(ranked) * percent / 100) - 1)]


def totals(cells: Iterable[Cell]) -> tuple[int, int, int, int]:
    """Faults, acknowledged, lost, and cells in which a rule was broken."""
    found = list(cells)
    return (
        sum(one.faults for one in found), sum(one.acknowledged for one in found),
        sum(len(one.lost) for one in found), sum(1 for one in found if one.broken),
    )  # fmt: skip
