"""What a siege has shown, goal by goal. Pure: figures in, rows out."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from msgspec import Struct

from tests.bench.honest import KINDS, Account
from tests.bench.observed import DESCRIPTORS, FILE_MIB, FILES, MEMORY, Observer, grows
from tests.bench.tables import number

SLOWER_MAX = 10.0
MEMORY_MIB_MAX = 640.0
"""What the attacks may add to a process: 512 MiB of unread and unsent bytes of a port, and tables."""
DESCRIPTORS_MAX = 65_536
FILE_MIB_A_MINUTE_MAX = 2.0
"""Of each process, its log lines above all: at most ten a second of each kind."""
GROWTH_JUDGED_FROM_S = 300.0
"""Attacks that fill something need a minute or two until it is as full as they make it."""
SPARE = {MEMORY: 16.0, DESCRIPTORS: 20.0, FILES: 5.0}


class Goal(Struct, frozen=True):
    """One line of the verdict."""

    what: str
    wanted: str
    found: str
    is_met: bool


class Spans(Struct, frozen=True):
    """Moments of a run: the idle time, and the siege."""

    idle_begin: float
    idle_end: float
    begin: float
    end: float


def percentile(values: Sequence[float], part: float) -> float:
    """A percentile; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


def judge(
    spans: Spans,
    account: Account,
    lost: Sequence[int],
    seen: Observer,
    tallies: Mapping[str, Mapping[str, object] | None],
) -> list[Goal]:
    """All goals.

    Args:
        lost: acknowledged messages that could not be read back.
        tallies: what each attack says it achieved; None of one that failed.
    """
    acked = len(account.acked)
    idle = [name for name, tally in tallies.items() if not tally or not tally.get("sent")]
    changes = seen.changes(spans.begin, spans.end)
    return [
        Goal("attacks that attacked", f"{len(tallies)}",
             f"{len(tallies) - len(idle)}" + (f", idle: {', '.join(idle)}" if idle else ""),
             not idle and bool(tallies)),
        Goal("acknowledged messages lost", "0", f"{len(lost)} of {acked}", acked > 0 and not lost),
        Goal("processes that ended", "0", ", ".join(seen.ended) or "0", not seen.ended),
        Goal("changes of leader, master or epoch", "0",
             f"{len(changes)}{': ' if changes else ''}{'; '.join(changes[:3])}",
             not changes and bool(seen.rulers)),
        *(_latency(kind, spans, account) for kind in KINDS),
        *resources(spans, seen),
    ]  # fmt: skip


def _latency(kind: str, spans: Spans, account: Account) -> Goal:
    samples = account.samples[kind]
    idle = samples.between(spans.idle_begin, spans.idle_end)
    under = samples.between(spans.begin, spans.end)
    before, during = percentile(idle, 0.99), percentile(under, 0.99)
    failures = samples.failures(spans.begin, spans.end)
    found = (
        f"{number(before)} -> {number(during)} ms ({during / before if before else 0:.1f} times;"
        f" p50 {number(percentile(idle, 0.5))} -> {number(percentile(under, 0.5))},"
        f" longest {number(max(under, default=0.0))}; {failures} of {len(under)} failed)"
    )
    is_met = bool(idle) and bool(under) and during <= SLOWER_MAX * before
    return Goal(f"p99 of {kind}", f"{SLOWER_MAX:.0f} times that of idle", found, is_met)


def resources(spans: Spans, seen: Observer, memory_mib_max: float = MEMORY_MIB_MAX) -> list[Goal]:
    """Memory, descriptors and files of every process, against the idle time before."""
    names = sorted({name for name, _ in seen.series})
    limits = {MEMORY: memory_mib_max, DESCRIPTORS: DESCRIPTORS_MAX, FILES: None}
    is_long = spans.end - spans.begin >= GROWTH_JUDGED_FROM_S
    found = []
    for what, limit in limits.items():
        worst, growing, over = "", [], []
        most = -1.0
        for name in names:
            series = seen.of(name, what)
            before = series.most(spans.idle_begin, spans.idle_end)
            values = series.between(spans.begin, spans.end)
            peak = max(values, default=0.0)
            if is_long and grows(values, SPARE[what]):
                growing.append(name)
            added = peak - before if what == MEMORY else peak
            if limit is not None and added > limit:
                over.append(name)
            if peak - before > most:
                most = peak - before
                last = statistics.median(values[-max(1, len(values) // 5) :] or [0.0])
                worst = f"{name}: {number(before)}, at most {number(peak)}, at last {number(last)}"
        bad = "".join(f"; {word} {', '.join(who)}" for word, who in
                      (("growing:", growing), ("over:", over)) if who)  # fmt: skip
        wanted = {MEMORY: f"at most {memory_mib_max:.0f} MiB more, no growth",
                  DESCRIPTORS: f"at most {DESCRIPTORS_MAX}, no growth",
                  FILES: "no growth"}[what]  # fmt: skip
        title = {MEMORY: "memory, MiB", DESCRIPTORS: "descriptors", FILES: "files but the log's"}
        found.append(Goal(title[what], wanted, worst + bad, not growing and not over))
    return [*found, _written(spans, seen, names)]


def _written(spans: Spans, seen: Observer, names: Sequence[str]) -> Goal:
    """How fast files grow that are not the log, in the second half."""
    middle = (spans.begin + spans.end) / 2
    minutes = (spans.end - middle) / 60
    rates = {}
    for name in names:
        values = seen.of(name, FILE_MIB).between(middle, spans.end)
        if len(values) > 1:
            rates[name] = (values[-1] - values[0]) / minutes
    if not rates:
        return Goal("MiB a minute of files but the log's", "known", "none", False)
    worst = max(rates, key=lambda name: rates[name])
    return Goal(
        "MiB a minute of files but the log's", f"at most {FILE_MIB_A_MINUTE_MAX:.0f} a process",
        f"{worst}: {number(rates[worst])}", rates[worst] <= FILE_MIB_A_MINUTE_MAX,
    )  # fmt: skip
