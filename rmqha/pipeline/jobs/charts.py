"""Charts of reports: matplotlib's SVG, inside of the page, so that a report is one file.

Nothing of it needs a network or a script; texts stay texts, which browsers find and copy.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS_MAX = 30
"""Of a chart; the table below it has more."""
SERIES_MAX = 8
"""Of a chart with colours: the rest is one series."""
WIDTH_IN, ROW_IN, EDGES_IN = 10.0, 0.32, 1.3
_LABEL_CHARACTERS = 48
_SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "rmqha", "font.size": 9}
_GREY = "#888888"


class Stages(NamedTuple):
    """A row of a timeline: its name, and when each stage was."""

    label: str
    stages: Sequence[tuple[str, int]]


class Spread(NamedTuple):
    """A row of percentiles."""

    label: str
    p50: float
    p95: float
    p99: float
    max: float


def timeline(rows: Sequence[Stages]) -> str:
    """What happened when, in milliseconds since each row's beginning; a colour for each stage."""
    shown = list(rows[:ROWS_MAX])
    figure, axes = _figure(len(shown))
    names = list(dict.fromkeys(name for row in shown for name, _ in row.stages))
    for number, name in enumerate(names):
        points = [
            (at, index)
            for index, row in enumerate(shown)
            for stage, at in row.stages
            if stage == name
        ]
        axes.scatter([at for at, _ in points], [row for _, row in points], s=34, color=f"C{number % 10}", label=name,
                     marker="osD^v"[number // 10 % 5], zorder=3)  # fmt: skip
    for index, row in enumerate(shown):
        if row.stages:
            times = [at for _, at in row.stages]
            axes.hlines(index, min(times), max(times), color=_GREY, linewidth=1)
    axes.axvline(0, color=_GREY, linewidth=0.6)
    _labels(axes, [row.label for row in shown])
    axes.set_xlabel("ms")
    if names:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.5 / (len(shown) * ROW_IN + 0.5)),
                    ncols=6, frameon=False, fontsize=8)  # fmt: skip
    return _svg(figure, "when each stage was")


def spreads(rows: Sequence[Spread]) -> str:
    """Percentiles of times in milliseconds, on a logarithmic axis."""
    shown = list(rows[:ROWS_MAX])
    figure, axes = _figure(len(shown))
    # Zero has no place on such an axis.
    axes.set_xscale("symlog", linthresh=1)
    for index, row in enumerate(shown):
        axes.hlines(index, row.p50, row.max, color=_GREY, linewidth=1)
    for number, name in enumerate(("p50", "p95", "p99", "max")):
        values = [row[number + 1] for row in shown]
        axes.scatter(values, range(len(shown)), s=30, color=f"C{number}", label=name, zorder=3)
    _labels(axes, [row.label for row in shown])
    axes.set_xlabel("ms")
    _legend_beside(axes)
    return _svg(figure, "latency")


def bars(rows: Sequence[tuple[str, float]], unit: str) -> str:
    """A bar for each row, with its number."""
    shown = list(rows[:ROWS_MAX])
    figure, axes = _figure(len(shown))
    drawn = axes.barh(range(len(shown)), [value for _, value in shown], color="C0", height=0.7)
    axes.bar_label(drawn, [f"{value:,.0f}" for _, value in shown], padding=3, fontsize=8)
    axes.margins(x=0.12)
    _labels(axes, [label for label, _ in shown])
    axes.set_xlabel(unit)
    return _svg(figure, unit)


def stacked(columns: Sequence[str], series: Mapping[str, Sequence[float]], unit: str) -> str:
    """A column for each day, say, in which the largest series have a colour each."""
    ordered = sorted(series.items(), key=lambda one: -sum(one[1]))
    kept = ordered[:SERIES_MAX]
    if rest := ordered[SERIES_MAX:]:
        others = [sum(values) for values in zip(*(one for _, one in rest), strict=True)]
        kept.append((f"{len(rest)} others", others))
    figure, axes = _figure(9)
    below = [0.0] * len(columns)
    for number, (name, values) in enumerate(kept):
        axes.bar(columns, values, bottom=below, color=f"C{number}", label=_short(name), width=0.8)
        below = [sum(pair) for pair in zip(below, values, strict=True)]
    axes.set_ylabel(unit)
    axes.tick_params(axis="x", rotation=45 if len(columns) > 6 else 0)
    axes.set_xlim(-0.6, max(len(columns), 5) - 0.4)
    axes.grid(visible=False, axis="x")
    axes.grid(axis="y", color="#dddddd", linewidth=0.5)
    _legend_beside(axes)
    return _svg(figure, unit)


def _figure(rows: int) -> tuple[Figure, Axes]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_SETTINGS):
        figure = Figure(figsize=(WIDTH_IN, max(2, rows) * ROW_IN + EDGES_IN), layout="tight")
        axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)
    return figure, axes


def _labels(axes: Axes, labels: Sequence[str]) -> None:
    """From above, as one reads."""
    axes.set_yticks(range(len(labels)), [_short(one) for one in labels])
    axes.set_ylim(max(len(labels), 2) - 0.4, -0.6)


def _legend_beside(axes: Axes) -> None:
    """Where it hides nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)


def _short(label: str) -> str:
    # A dollar sign would begin a formula.
    label = label.replace("$", r"\$")
    if len(label) <= _LABEL_CHARACTERS:
        return label
    return f"{label[: _LABEL_CHARACTERS - 1]}…"


def _svg(figure: Figure, title: str) -> str:
    from matplotlib import rc_context

    target = io.StringIO()
    with rc_context(_SETTINGS):
        figure.savefig(target, format="svg", metadata={"Date": None, "Title": title})
    text = target.getvalue()
    return text[text.index("<svg") :]
