"""What a soak has shown, goal by goal. Pure: figures in, rows out."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field

from tests.bench.churn import ANSWERED
from tests.bench.observed import Observer
from tests.bench.siege_verdict import Goal, Spans, percentile, resources
from tests.bench.tables import number

MEMORY_MIB_MAX = 64.0
"""What half an hour may add to a process that had 30 to 45 MiB."""


class Outcome(Struct):
    """What happened.

    Attributes:
        leaders: controllers that led and were killed.
        masters: masters that were killed.
        late: what a minute was not enough for.
        writes_back_s: of each producer and killed master.
        visits: connections by what came of them.
    """

    leaders: int = 0
    masters: int = 0
    late: list[str] = field(default_factory=list)
    writes_back_s: list[float] = field(default_factory=list)
    acked: int = 0
    lost: int = 0
    visits: Counter[str] = field(default_factory=Counter)


def judge(spans: Spans, outcome: Outcome, seen: Observer) -> list[Goal]:
    """All goals."""
    back = outcome.writes_back_s
    visits, good = outcome.visits.total(), outcome.visits[ANSWERED]
    return [
        Goal("kills of leaders, of masters", "some", f"{outcome.leaders}, {outcome.masters}",
             outcome.leaders > 0 and outcome.masters > 0),
        Goal("connections that came and went", "some, a quarter good and answered",
             f"{visits}, {good} answered", visits > 0 and good > visits / 4),
        Goal("acknowledged messages lost", "0", f"{outcome.lost} of {outcome.acked}",
             outcome.acked > 0 and not outcome.lost),
        Goal("processes that ended by themselves", "0", ", ".join(seen.ended) or "0",
             not seen.ended),
        Goal("waits longer than a minute", "0", ", ".join(outcome.late) or "0", not outcome.late),
        Goal("writes back after a master's death, s", "known",
             f"p50 {number(percentile(back, 0.5))}, p99 {number(percentile(back, 0.99))},"
             f" worst {number(max(back, default=0.0))}", bool(back)),
        *resources(spans, seen, MEMORY_MIB_MAX),
    ]  # fmt: skip
