"""``bin/explore ha``: walk every interleaving of a small broker set, within bounds."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import click

from rmqha.cli.explore_walk import explore, limited
from rmqha.cli.output import run_command
from rmqha.cli.version import version_option
from rmqha.sim.explore.broker_set import Move, Scene
from rmqha.sim.explore.replicas import STARTS, Replicas
from rmqha.sim.explore.walk import Limits, State, Violation

WORDS = {
    "put": "a record is written",
    "elect": "is elected",
    "lost": "its request to the controller is lost, or the answer",
    "poll": "hears of the controller's set",
    "disk": "its disk has done what it was asked for",
    "due": "a time has come",
    "tell": "hears of the newest election",
    "alter": "its request reaches the controller",
    "answered": "the controller's answer arrives",
    "restart": "restarts on what its disk holds",
}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@version_option("rmqha explore-replicas")
@click.option("--replicas", default=3, show_default=True, help="Members of the set.")
@click.option("--puts", default=1, show_default=True, help="How many records at most.")
@click.option("--elections", default=1, show_default=True, help="How many elections at most.")
@click.option("--crashes", default=0, help="How many power failures at most.")
@click.option("--resets", default=0, help="How many resets of a connection at most.")
@click.option("--losses", default=0, help="How many lost alterations at most.")
@click.option("--polls", default=0, help="How many polls of the controller's set at most.")
@click.option("--passes", default=0, help="How many steps of time at most.")
@click.option("--start", type=click.Choice(sorted(STARTS)), default="in step", show_default=True)
@limited
def main(*, limits: Limits, **numbers: Any) -> None:
    """Visit every state that a master and its slaves can reach, with the real HA core.

    Exits with 1 and a shortest trace when a property breaks.
    """
    space = Replicas(Scene(**numbers))
    explore(space, space.start, limits, missing=space.scene.missing, tell=partial(tell, space))


def tell(space: Replicas, trace: Iterable[Move]) -> list[str]:
    """The way to a violation, one line a move; the last line is the property."""
    lines, state = list[str](), space.start
    for number, move in enumerate(trace, 1):
        lines.append(f"{number:3} {_what(space, state, move)}")
        try:
            state = space.after(state, move)
        except Violation as violation:
            lines.append(f"    VIOLATION: {violation}")
    return lines


def _what(space: Replicas, state: State, move: Move) -> str:
    name = f"r{move.replica}"
    match move.kind:
        case "up" | "down":
            return f"r{move.number} -> {name}: {space.detail_of(state, move)} arrives"
        case "crash":
            return f"{name}: loses power; {move.number} records survive"
        case "reset":
            return f"{name} - r{move.number}: the connection is reset"
        case "connect":
            return f"{name}: connects to r{space.of(state, move.replica).target}"
        case "pass":
            return "time goes on"
        case kind:
            return f"{name}: {WORDS[kind]}"


if __name__ == "__main__":
    run_command("explore-replicas", main)
