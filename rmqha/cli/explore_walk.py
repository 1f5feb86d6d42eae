"""What both ``bin/explore`` have in common: how far a walk goes, and what is said at its end."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import click

from rmqha.cli.options import SecondsRange
from rmqha.sim.explore.walk import Limits, MoveT, Report, Space, State, Walk

OPTIONS = (
    click.option("--depth", default=0, help="Stop after this many moves; 0 is no limit."),
    click.option("--states", default=0, help="Stop after this many states; 0 is no limit."),
    click.option(
        "--seconds",
        type=SecondsRange(min=0),
        default=0.0,
        help="Stop after this time; 0 is no limit.",
    ),
)


def limited(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that limit a walk; it gets them as ``limits``."""

    @functools.wraps(command)
    def called(*, depth: int, states: int, seconds: float, **others: Any) -> None:
        command(limits=Limits(depth, states, seconds), **others)

    for option in reversed(OPTIONS):
        called = option(called)
    return called


def explore(
    space: Space[MoveT],
    start: State,
    limits: Limits,
    *,
    missing: Callable[[Mapping[str, int]], list[str]],
    tell: Callable[[tuple[MoveT, ...]], list[str]],
) -> None:
    """Walk, print what it came to, and end with 1 and the way there when a property breaks.

    Args:
        missing: the kinds of moves that were allowed and did not occur, by how often each did.
        tell: a trace, one line a move.
    """
    report = Walk(space, start, limits, time.monotonic).run()
    print("\n".join(told(report, missing(report.moves))))
    if report.violation is not None:
        print("\n".join(tell(report.trace)))
        sys.exit(1)


def told(report: Report[Any], missing: list[str]) -> list[str]:
    """A report in words; ``missing`` are the kinds that were allowed and never occurred."""
    rate = report.states / max(report.seconds, 0.001)
    end = "exhausted" if report.exhausted else f"not exhausted, {report.frontier:,} on the frontier"
    lines = [
        f"{report.states:,} states, {report.transitions:,} moves, depth {report.depth},"
        f" {report.seconds:.1f} s, {rate:,.0f} states a second: {end}",
        "moves     " + ", ".join(f"{k} {n:,}" for k, n in sorted(report.moves.items())),
        "delivered " + ", ".join(f"{k} {n:,}" for k, n in sorted(report.delivered.items())),
    ]
    if missing and report.violation is None:
        lines.append(f"NEVER OCCURRED, so nothing is shown of it: {', '.join(missing)}")
    return lines
