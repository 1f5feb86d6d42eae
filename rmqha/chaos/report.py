"""What a matrix came to: as Markdown, as one page that needs nothing else, and as JSON.

Times in tables are p50 / p95 / p99 / worst, in seconds, over a cell's rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import msgspec

from rmqha.chaos.outcome import PERCENTILES, Cell, Round, percentile, totals

COLUMNS = (
    ("noticed", "noticed_ms"), ("elected", "elected_ms"), ("master writes", "writing_ms"),
    ("routed", "routed_ms"), ("first acknowledged", "first_ack_ms"),
    ("writes out", "out_ms"), ("back after healing", "back_ms"), ("in sync after healing", "whole_ms"),
)  # fmt: skip
HEAD = (
    "scenario", "controllers", "brokers", "faults", "bits", "acknowledged", "lost", "damaged",
    *(name for name, _ in COLUMNS), "verdict",
)  # fmt: skip
HEAT_MS_MAX = 30_000
"""As dark as it gets."""


def to_json(cells: Sequence[Cell]) -> bytes:
    """All figures, round by round; ``from_json`` reads them."""
    return msgspec.json.format(msgspec.json.encode(list(cells)), indent=1)


def from_json(data: bytes) -> list[Cell]:
    """The cells of a file that ``to_json`` made.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return msgspec.json.decode(data, type=list[Cell])


def markdown(cells: Sequence[Cell]) -> str:
    """A sentence, and a table with a line for each cell."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(_row(cell)) + " |" for cell in cells]
    return "\n".join((summary(cells), "", *lines))


def summary(cells: Sequence[Cell]) -> str:
    """What it came to, in one sentence."""
    faults, acknowledged, lost, broken = totals(cells)
    links = ", ".join(sorted({cell.links_by for cell in cells if cell.links_by})) or "nothing"
    rounds = sum(len(cell.rounds) for cell in cells)
    return (
        f"{rounds} rounds with {faults} faults; {acknowledged} messages acknowledged, {lost} of them"
        f" lost; cells in which a rule was broken: {broken} of {len(cells)}. Links are cut by {links}."
    )


def _row(cell: Cell) -> list[str]:
    return [
        cell.scenario, cell.controllers, _brokers(cell),
        str(cell.faults), str(cell.flipped_bits or "-"), str(cell.acknowledged),
        str(len(cell.lost)), str(cell.damaged),
        *(_times(cell.times(field)) for _, field in COLUMNS), verdict(cell),
    ]  # fmt: skip


def _brokers(cell: Cell) -> str:
    return f"{cell.replicas} {cell.brokers}" + (f" ({cell.settings})" if cell.settings else "")


def _times(values: Sequence[int]) -> str:
    """Percentiles in seconds."""
    if not values:
        return "-"
    found = [*(percentile(values, one) for one in PERCENTILES), max(values)]
    return " / ".join(_seconds(one) for one in found)


def _seconds(value_ms: float) -> str:
    return f"{value_ms / 1000:.2f}" if value_ms < 10_000 else f"{value_ms / 1000:.1f}"


def verdict(cell: Cell) -> str:
    """``good``, or what is wrong."""
    if cell.is_good:
        return "good"
    what = [*(f"lost {one}" for one in cell.lost[:3]), *cell.broken]
    if cell.damaged:
        what.insert(0, f"{cell.damaged} given out damaged")
    return "; ".join(what) or "nothing was played"


def page(cells: Sequence[Cell]) -> str:
    """Verdict, heat map, timelines and the table, for a browser without a network."""
    parts = (
        f"<h1>{'Nothing was lost' if all(c.is_good for c in cells) else 'Something is wrong'}</h1>",
        f"<p>{escape(summary(cells))}</p>",
        "<h2>How long writes were out: p99, seconds</h2>", _heat_map(cells),
        "<h2>Rounds</h2>",
        "<p>Dark: the fault holds. Light: until all replicas are in sync again. Red: no"
        " acknowledgement. Hold the pointer over a bar for what was broken.</p>",
        *(_timeline(cell) for cell in cells),
        "<h2>Figures: p50 / p95 / p99 / worst, seconds</h2>", _table(cells),
    )  # fmt: skip
    return _PAGE.replace("@BODY@", "\n".join(parts))


def _heat_map(cells: Sequence[Cell]) -> str:
    clusters = list(dict.fromkeys(_cluster(cell) for cell in cells))
    scenarios = list(dict.fromkeys(cell.scenario for cell in cells))
    found = {(cell.scenario, _cluster(cell)): cell for cell in cells}
    rows = ["<tr><th></th>" + "".join(f"<th>{escape(one)}</th>" for one in clusters) + "</tr>"]
    for scenario in scenarios:
        boxes = (_box(found.get((scenario, cluster))) for cluster in clusters)
        rows.append(f"<tr><th>{escape(scenario)}</th>{''.join(boxes)}</tr>")
    return f'<div class="wide"><table class="heat">{"".join(rows)}</table></div>'


def _cluster(cell: Cell) -> str:
    more = f", {cell.settings}" if cell.settings else ""
    return f"{cell.controllers} controllers, {cell.replicas} {cell.brokers} brokers{more}"


def _box(cell: Cell | None) -> str:
    if cell is None:
        return "<td></td>"
    values = cell.times("out_ms")
    if not values:
        return '<td class="bad">no round</td>'
    worst = percentile(values, 99)
    heat = min(1.0, worst / HEAT_MS_MAX)
    name = "" if cell.is_good else ' class="bad"'
    return f'<td{name} style="--heat:{heat:.2f}">{_seconds(worst)}</td>'


def _timeline(cell: Cell) -> str:
    if not cell.rounds:
        return ""
    last = cell.rounds[-1]
    whole_ms = last.at_ms + last.held_ms + (last.whole_ms or 0) + 1
    bars = "".join(_bars(one, whole_ms) for one in cell.rounds)
    name = escape(f"{cell.scenario}, {_cluster(cell)}")
    return f'<figure><figcaption>{name}</figcaption><div class="line">{bars}</div></figure>'


def _bars(one: Round, whole_ms: int) -> str:
    told = escape(
        f"{one.fault}: elected {_after(one.elected_ms)}, writes out for {_seconds(one.out_ms)} s,"
        f" in sync {_after(one.whole_ms)} of healing"
    )
    healed_ms = one.at_ms + one.held_ms
    spans = (
        ("held", one.at_ms, one.held_ms), ("mends", healed_ms, one.whole_ms or 0),
        ("out", one.at_ms, one.out_ms),
    )  # fmt: skip
    bars = "".join(
        f'<i class="{name}" style="left:{100 * at / whole_ms:.3f}%;'
        f'width:{100 * size / whole_ms:.3f}%"></i>'
        for name, at, size in spans
    )
    return f'<b title="{told}">{bars}</b>'


def _after(value_ms: int | None) -> str:
    return "nobody" if value_ms is None else f"within {_seconds(value_ms)} s"


def _table(cells: Sequence[Cell]) -> str:
    rows = ["<tr>" + "".join(f"<th>{one}</th>" for one in HEAD) + "</tr>"]
    for cell in cells:
        name = "" if cell.is_good else ' class="bad"'
        rows.append(f"<tr{name}>" + "".join(f"<td>{escape(o)}</td>" for o in _row(cell)) + "</tr>")
    return f'<div class="wide"><table>{"".join(rows)}</table></div>'


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>rmqha chaos</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark; --ink: #1c2330; --paper: #fff; --line: #d7dce4; --hot: 14 90% 48%; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ef; --paper: #14181f; --line: #38404d; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1200px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { border: 1px solid var(--line); padding: .3rem .5rem; text-align: left; white-space: nowrap; }
.heat td { text-align: right; background: hsl(var(--hot) / var(--heat, 0)); }
.bad { outline: 3px solid #d22; }
figure { margin: .8rem 0; } figcaption { font-size: 13px; }
.line { position: relative; height: 22px; background: color-mix(in srgb, var(--line) 40%, transparent); }
.line i { position: absolute; top: 0; bottom: 0; min-width: 1px; }
.held { background: #5b6b86; } .mends { background: #a9b8d0; }
.out { background: #d8382c; top: 14px !important; }
</style></head><body>
@BODY@
</body></html>
"""
