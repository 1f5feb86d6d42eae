"""What an installation puts on the PATH: ``rmqha`` with a subcommand for everything, and the names
that operators of RocketMQ know.

Nothing but the command that is asked for is imported, so help and versions are there at once.
"""

from __future__ import annotations

import importlib
import sys
from typing import NamedTuple

import click

from rmqha.cli.early import hold_signals, let_held_come, let_signals_come
from rmqha.cli.output import run, run_command
from rmqha.cli.version import version_line, version_option


class Place(NamedTuple):
    """Where a command is.

    Attributes:
        module: has the command as ``main``.
        summary: its help's first sentence, without the full stop.
    """

    module: str
    summary: str


COMMANDS: dict[str, Place] = {
    "controller": Place("rmqha.cli.mqcontroller", "Run one controller of a RocketMQ cluster"),
    "broker": Place("rmqha.cli.mqbroker", "Run one replica of a RocketMQ broker set"),
    "namesrv": Place("rmqha.cli.mqnamesrv", "Run one RocketMQ name server"),
    "mqadmin": Place("rmqha.cli.mqadmin", "Look after RocketMQ clusters"),
    "doctor": Place("rmqha.cli.mqdoctor", "Look at brokers and controllers from outside"),
    "up": Place("rmqha.cli.up", "Run a cluster on this machine until Ctrl-C"),
    "demo": Place("rmqha.cli.demo", "Show failovers of a RocketMQ broker set"),
    "simulate": Place("rmqha.cli.simulate", "Replay a simulated cluster under faults"),
    "explore": Place(
        "rmqha.cli.explore", "Visit every state that a small group of real Raft cores can reach"
    ),
    "explore-replicas": Place(
        "rmqha.cli.explore_replicas", "Visit every state that a master and its slaves can reach"
    ),
    "replay": Place("rmqha.cli.replay", "Play TRACE"),
    "chaos": Place(
        "rmqha.cli.chaos", "Break a cluster of three controllers, a name server and brokers"
    ),
    "pipeline": Place("rmqha.cli.pipeline", "Spark jobs over RocketMQ stores"),
}


def load(name: str) -> click.Command:
    """The command of a subcommand's name."""
    command = importlib.import_module(COMMANDS[name].module).main
    assert isinstance(command, click.Command)
    return command


def _held(name: str) -> click.Command:
    """The command of a subcommand's name, whose imports no signal breaks off with a traceback."""
    hold_signals()
    try:
        return load(name)
    finally:
        let_signals_come(COMMANDS[name].module.rpartition(".")[2])


class Everything(click.Group):
    """A group whose commands are imported when they are asked for, and not to list them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the help text."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None when there is none."""
        if cmd_name not in COMMANDS:
            return None
        ctx.call_on_close(let_held_come)
        return _held(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.summary) for name, place in COMMANDS.items()])


@click.command(cls=Everything, context_settings={"help_option_names": ["-h", "--help"]})
@version_option("rmqha")
def rmqha() -> None:
    """RocketMQ's high-availability half in Python: servers, tools and tests.

    The servers and mqadmin are installed under RocketMQ's names, too: mqcontroller, mqbroker,
    mqnamesrv, mqadmin. Each command has a --help of its own.
    """


def _start(name: str, subcommand: str) -> None:
    # Importing the fifty commands of mqadmin takes ten times as long.
    if sys.argv[1:] == ["--version"]:
        run(name, lambda: click.echo(version_line(name)))
        return
    run(name, lambda: _held(subcommand).main(prog_name=name))


def everything() -> None:
    """Run any of them."""
    run_command("rmqha", rmqha)


def mqcontroller() -> None:
    """Run a controller."""
    _start("mqcontroller", "controller")


def mqbroker() -> None:
    """Run a broker."""
    _start("mqbroker", "broker")


def mqnamesrv() -> None:
    """Run a name server."""
    _start("mqnamesrv", "namesrv")


def mqadmin() -> None:
    """Ask or change a cluster."""
    _start("mqadmin", "mqadmin")


def demo() -> None:
    """Show failovers of a set."""
    _start("rmqha-demo", "demo")
