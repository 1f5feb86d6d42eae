"""What remaps with failovers have shown, and the table of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct, field

from tests.bench.static_ledger import Verdict
from tests.bench.tables import markdown, spread

NOT_DONE = (
    "queues that could not be read to their end", "read in another queue",
    "producers without an answer at the end", "remaps that never got through",
)  # fmt: skip
"""Counts that a clean run has not."""
READ = {
    "lost": "lost", "out_of_order": "out of order", "misplaced": "not at the offset that was told",
    "doubled": "there twice", "repeated": "there twice after an unknown outcome",
}  # fmt: skip
LIVE = {
    "lost": "missed by a reader meanwhile", "out_of_order": "out of order for it",
    "sent_back": "sent back",
}  # fmt: skip


class Outcome(Struct):
    """What a run of one kind has shown.

    Attributes:
        read, live: the verdict on what was read at the end, and meanwhile.
        remap_s: of remaps without a kill; ``pauses_s``: of the queue that waited longest.
        counts: everything that can be counted.
    """

    read: Verdict = field(default_factory=Verdict)
    live: Verdict = field(default_factory=Verdict)
    acknowledged: int = 0
    remap_s: list[float] = field(default_factory=list)
    pauses_s: list[float] = field(default_factory=list)
    failover_pauses_s: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    took_s: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether nothing is amiss."""
        is_done = self.acknowledged > 0 and not any(self.counts[one] for one in NOT_DONE)
        return self.read.is_clean and self.live.is_clean and is_done


def table(outcomes: Mapping[str, Outcome]) -> str:
    """One column a kind."""
    rows: list[list[str]] = []

    def row(name: str, cells: list[str]) -> None:
        rows.append([name, *cells])

    ran = list(outcomes.values())
    row("acknowledged", [f"{one.acknowledged:,}" for one in ran])
    for name, words in READ.items():
        row(words, [str(getattr(one.read, name)) for one in ran])
    for name, words in LIVE.items():
        row(words, [str(getattr(one.live, name)) for one in ran])
    row("longest pause of a queue at a remap, ms",
        [spread([s * 1000 for s in one.pauses_s]) for one in ran])  # fmt: skip
    row("the same with a failover, s", [spread(one.failover_pauses_s) for one in ran])
    row("a remap without one, ms", [spread([s * 1000 for s in one.remap_s]) for one in ran])
    names = list(dict.fromkeys(name for one in ran for name in sorted(one.counts)))
    for name in names:
        row(name, [str(one.counts[name]) for one in ran])
    row("all of it took, s", [f"{one.took_s:.0f}" for one in ran])
    return markdown(["work", *outcomes], rows)
