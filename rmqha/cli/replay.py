"""Plays a recorded trace against the cores of this release, and says where they first differ."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rmqha.broker.membership.traced import LEASE_KIND, REPLICAS_KIND
from rmqha.cli.output import run_command
from rmqha.cli.version import version_option
from rmqha.controller.traced import CONTROLLER_KIND
from rmqha.ha.traced import HA_KIND
from rmqha.runtime.trace import Replayed, TraceUnreadable, read_records, replay

KINDS = {kind.name: kind for kind in (CONTROLLER_KIND, HA_KIND, REPLICAS_KIND, LEASE_KIND)}
"""The cores that can be recorded."""

EXIT_DIFFERS = 1
EXIT_UNREADABLE = 2


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@version_option("rmqha replay")
@click.argument("trace", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(trace: Path) -> None:
    """Play TRACE (see traceFile) and compare what follows from each event.

    Exits with 0 when everything is the same, 1 when an event has other effects, 2 when the file
    cannot be read.
    """
    try:
        played = replay(read_records(trace.read_bytes()), KINDS)
    except TraceUnreadable as error:
        print(f"replay: {trace}: {error}", file=sys.stderr)
        sys.exit(EXIT_UNREADABLE)
    for line in report(played):
        print(line)
    sys.exit(0 if played.difference is None else EXIT_DIFFERS)


def report(played: Replayed) -> list[str]:
    """What became of a trace, in lines."""
    counts = ", ".join(f"{count} of {kind}" for kind, count in played.events.items())
    lines = [f"written by release {played.opened.release}", f"events played: {counts or 'none'}"]
    if played.ended:
        lines.append(f"the trace ends early: {played.ended}")
    found = played.difference
    if found is None:
        return [*lines, "all effects are the same"]
    return [
        *lines,
        f"event {found.number} differs: {found.kind} at {found.now_ms} ms, {found.event}",
        "recorded:",
        *(f"  {line}" for line in found.recorded or ("nothing",)),
        "played:",
        *(f"  {line}" for line in found.replayed or ("nothing",)),
    ]


if __name__ == "__main__":
    run_command("replay", main)
