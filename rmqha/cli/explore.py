"""``bin/explore``: walk every interleaving of a small controller group, within bounds."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from rmqha.sim.explore.bounds import Bounds
from rmqha.sim.explore.group import Group
from rmqha.sim.explore.moves import Move
from rmqha.sim.explore.prefix import STARTS
from rmqha.sim.explore.trace import tell
from rmqha.sim.explore.walk import Limits, Report, Walk

COUNTS = ("proposals", "crashes", "losses", "duplicates", "heartbeats", "snapshots", "transfers",
          "reads", "quorum_losses", "resets", "asks", "wipes", "damages", "full",
          "hangs")  # fmt: skip


def _counts(command: click.Command) -> click.Command:
    for name in reversed(COUNTS):
        option = click.Option([f"--{name.replace('_', '-')}"], default=0, show_default=True,
                              help=f"How many {name.replace('_', ' ')} at most.")  # fmt: skip
        command.params.insert(2, option)
    return command


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--nodes", default=3, show_default=True, help="Members of the group.")
@click.option("--elections", default=1, show_default=True, help="How many timeouts pass at most.")
@click.option("--start", type=click.Choice(sorted(STARTS)), default="fresh", show_default=True)
@click.option("--entries-per-request", default=512, show_default=True)
@click.option("--reorder", is_flag=True, help="Messages of a link may overtake each other.")
@click.option("--symmetry", is_flag=True, help="Names of nodes do not tell states apart.")
@click.option("--depth", default=0, help="Stop after this many moves; 0 is no limit.")
@click.option("--states", default=0, help="Stop after this many states; 0 is no limit.")
@click.option("--seconds", default=0.0, help="Stop after this time; 0 is no limit.")
def _explore(  # type: ignore[no-untyped-def]  # the counts come by name
    *, depth: int, states: int, seconds: float, **bounds
) -> None:
    """Visit every state that a small group of real Raft cores can reach.

    Exits with 1 and a shortest trace when a property breaks.
    """
    space = Bounds(**bounds)
    group = Group(space)
    start = STARTS[space.start](group)
    walk = Walk(group, start, Limits(depth, states, seconds), time.monotonic)
    report = walk.run()
    print("\n".join(summary(report, space)))
    if report.violation is not None:
        print("\n".join(tell(group, start, report.trace)))
        sys.exit(1)


main = _counts(_explore)


def summary(report: Report[Move], bounds: Bounds) -> list[str]:
    """What a walk came to, for people."""
    return told(report, bounds.missing(report.moves))


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


if __name__ == "__main__":
    main()
