"""``bin/pictures``: draws the tables of states for the documents, one SVG a table.

The states stand on an ellipse, each arrow has the numbers of the rows that lead along it, and the
rows stand below. A test fails when a committed picture is not what this draws.
"""

from __future__ import annotations

import html
import math
from pathlib import Path
from typing import NamedTuple

import click

from rmqha.base.transitions import StateTable, Transition
from rmqha.broker.membership import lease_table, place_table
from rmqha.cli.output import run_command
from rmqha.controller.raft import role_table as raft_roles
from rmqha.ha import role_table as replica_roles

PICTURES: dict[str, StateTable] = {
    "raft-roles.svg": raft_roles.PICTURE,
    "replica-roles.svg": replica_roles.PICTURE,
    "write-lease.svg": lease_table.PICTURE,
    "broker-place.svg": place_table.PICTURE,
}
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"

WIDTH, TOP, ROW = 1140, 480, 21
CENTRE, RADIUS = (570.0, 270.0), (400.0, 165.0)
BOX = (160.0, 46.0)
BENDS = (0.13, 0.14, 0.3)
"""How far an arrow bends, as a share of its length: to its left between neighbours; and inwards,
clockwise and the other way round, where it would else pass behind the states between."""
COLUMNS = (24, 56, 420, 575, 900)

_STYLE = """<style>
    text { font-family: "Segoe UI", Helvetica, Arial, sans-serif; font-size: 13px; fill: #1f2328; }
    .head { font-weight: 600; font-size: 16px; }
    .name { font-weight: 600; }
    .soft { fill: #57606a; font-size: 12px; }
    .card { fill: #ffffff; stroke: #d0d7de; }
    .state { fill: #ddf4ff; stroke: #54aeff; }
    .way { fill: none; stroke: #8c959f; stroke-width: 1.4; }
    .tip { fill: #8c959f; }
    .number { font-size: 11px; paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .soft { fill: #9da7b3; }
      .card { fill: #0d1117; stroke: #30363d; }
      .state { fill: #0c2d6b; stroke: #388bfd; }
      .way { stroke: #6e7681; }
      .tip { fill: #6e7681; }
      .number { stroke: #0d1117; }
    }
  </style>
  <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"
    orient="auto"><path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>"""


class Line(NamedTuple):
    """Rows of a table that differ in where they begin only."""

    states: tuple[str, ...]
    row: Transition


def lines_of(rows: tuple[Transition, ...]) -> list[Line]:
    """The rows as they are listed below the picture, in the table's order."""
    found: dict[tuple[str, ...], Line] = {}
    for row in rows:
        key = row[1:]
        states = found[key].states if key in found else ()
        found[key] = Line((*states, row.state), row)
    return list(found.values())


def draw(table: StateTable) -> str:
    """The whole picture."""
    lines = lines_of(table.rows)
    height = TOP + ROW * len(lines) + 24
    places = _places([name for name, _ in table.states])
    parts = [
        f'<rect class="card" x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="10"/>',
        f'<text class="head" x="24" y="36">{html.escape(table.title)}</text>',
        *_ways(lines, places),
        *(_box(places[name], name, says) for name, says in table.states),
        *(_listed(number, line) for number, line in enumerate(lines, 1)),
    ]
    label = html.escape(f"{table.title}: {', '.join(name for name, _ in table.states)}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{label}">\n  {_STYLE}\n  ' + "\n  ".join(parts) + "\n</svg>\n"
    )


def _places(names: list[str]) -> dict[str, tuple[float, float]]:
    """Where each state stands: on an ellipse, clockwise, the first one at the left."""
    step = 2 * math.pi / len(names)
    return {
        name: (
            CENTRE[0] - RADIUS[0] * math.cos(step * number),
            CENTRE[1] - RADIUS[1] * math.sin(step * number),
        )
        for number, name in enumerate(names)
    }


def _ways(lines: list[Line], places: dict[str, tuple[float, float]]) -> list[str]:
    numbers: dict[tuple[str, str], list[int]] = {}
    for number, line in enumerate(lines, 1):
        for state in line.states:
            numbers.setdefault((state, line.row.to), []).append(number)
    ring = list(places)
    return [
        _way(places[start], places[end], found, _bend(ring.index(end) - ring.index(start), ring))
        for (start, end), found in numbers.items()
    ]


def _bend(steps: int, ring: list[str]) -> float:
    """How far to the left an arrow bends that leads so many states on around the ellipse."""
    clockwise = steps % len(ring)
    if clockwise in (1, len(ring) - 1):
        return BENDS[0]
    return -BENDS[1] if clockwise <= len(ring) / 2 else BENDS[2]


def _way(
    start: tuple[float, float], end: tuple[float, float], numbers: list[int], aside: float
) -> str:
    """One arrow with its numbers at the middle."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    bend = ((start[0] + end[0]) / 2 + dy * aside, (start[1] + end[1]) / 2 - dx * aside)
    first, last = _edge(start, bend), _edge(end, bend)
    middle = (
        (first[0] + 2 * bend[0] + last[0]) / 4,
        (first[1] + 2 * bend[1] + last[1]) / 4,
    )
    return (
        f'<path class="way" marker-end="url(#tip)" d="M{_point(first)} Q{_point(bend)} '
        f'{_point(last)}"/><text class="number" x="{middle[0]:.0f}" y="{middle[1] + 4:.0f}" '
        f'text-anchor="middle">{_ranges(numbers)}</text>'
    )


def _edge(box: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Where a line from the middle of a box leaves it."""
    dx, dy = towards[0] - box[0], towards[1] - box[1]
    across = abs(dx) / (BOX[0] / 2 + 4)
    along = abs(dy) / (BOX[1] / 2 + 4)
    share = 1 / max(across, along, 1e-9)
    return box[0] + dx * share, box[1] + dy * share


def _point(place: tuple[float, float]) -> str:
    return f"{place[0]:.0f} {place[1]:.0f}"


def _ranges(numbers: list[int]) -> str:
    """Numbers that follow each other as a range: 1, 3-5."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ", ".join(str(one[0]) if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in found)


def _box(place: tuple[float, float], name: str, says: str) -> str:
    x, y = place[0] - BOX[0] / 2, place[1] - BOX[1] / 2
    return (
        f'<rect class="state" x="{x:.0f}" y="{y:.0f}" width="{BOX[0]:.0f}" '
        f'height="{BOX[1]:.0f}" rx="8"/>'
        f'<text class="name" x="{place[0]:.0f}" y="{y + 19:.0f}" text-anchor="middle">{name}</text>'
        f'<text class="soft" x="{place[0]:.0f}" y="{y + 36:.0f}" text-anchor="middle">'
        f"{html.escape(says)}</text>"
    )


def _listed(number: int, line: Line) -> str:
    states, row = line
    cells = (str(number), f"{', '.join(states)} → {row.to}", row.event, row.when, row.source)
    y = TOP + ROW * number
    return "".join(
        f'<text class="{"soft" if at in (0, 4) else "row"}" x="{COLUMNS[at]}" y="{y}">'
        f"{html.escape(cell)}</text>"
        for at, cell in enumerate(cells)
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Draw the tables of states into docs/pictures."""
    for name, table in PICTURES.items():
        (FOLDER / name).write_text(draw(table))
        print(FOLDER / name)


if __name__ == "__main__":
    run_command("pictures", main)
