"""``bin/explore``: walk every interleaving of a small controller group, within bounds."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from rmqha.cli.explore_walk import explore, limited
from rmqha.cli.output import run_command
from rmqha.cli.version import version_option
from rmqha.sim.explore.bounds import Bounds
from rmqha.sim.explore.group import Group
from rmqha.sim.explore.prefix import STARTS
from rmqha.sim.explore.trace import tell
from rmqha.sim.explore.walk import Limits

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
@version_option("rmqha explore")
@click.option("--nodes", default=3, show_default=True, help="Members of the group.")
@click.option("--elections", default=1, show_default=True, help="How many timeouts pass at most.")
@click.option("--start", type=click.Choice(sorted(STARTS)), default="fresh", show_default=True)
@click.option("--entries-per-request", default=512, show_default=True)
@click.option("--reorder", is_flag=True, help="Messages of a link may overtake each other.")
@click.option("--symmetry", is_flag=True, help="Names of nodes do not tell states apart.")
@limited
def _explore(*, limits: Limits, **bounds: Any) -> None:
    """Visit every state that a small group of real Raft cores can reach.

    Exits with 1 and a shortest trace when a property breaks.
    """
    space = Bounds(**bounds)
    group = Group(space)
    start = STARTS[space.start](group)
    explore(group, start, limits, missing=space.missing, tell=partial(tell, group, start))


main = _counts(_explore)


if __name__ == "__main__":
    run_command("explore", main)
