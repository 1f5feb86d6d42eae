"""``bin/simulate SEED``: play one seed and print its trace; ``--count N`` plays many."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import click

from rmqha.base.errors import RmqhaError
from rmqha.sim.replica_swarm import run_replica_seed
from rmqha.sim.swarm import run_seed
from rmqha.verify.client_history import HistoryWriter


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("seed", type=int)
@click.option("--count", default=1, help="Play this many seeds from SEED on; prints one line each.")
@click.option(
    "--replicas", is_flag=True, help="Real replicas and producers instead of scripted brokers."
)
@click.option("--tail", default=0, help="Print only the last lines of the trace.")
@click.option(
    "--history",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    default=None,
    help="Write what clients of one seed do, for bin/pipeline history-check (with --replicas).",
)
def main(seed: int, count: int, tail: int, history: Path | None, *, replicas: bool) -> None:
    """Replay a simulated cluster under faults; the same SEED prints the same bytes."""
    if history is not None and (count != 1 or not replicas):
        raise click.UsageError("--history needs --replicas and one seed")
    with ExitStack() as stack:
        writer = None
        if history is not None:
            try:
                file = stack.enter_context(history.open("wb"))
            except OSError as error:
                raise click.UsageError(f"--history: {error}") from error
            writer = HistoryWriter(file.write, f"seed {seed}")
        _play(seed, count, tail, writer, replicas=replicas)


def _play(
    seed: int, count: int, tail: int, history: HistoryWriter | None, *, replicas: bool
) -> None:
    for number in range(seed, seed + count):
        try:
            outcome = run_replica_seed(number, history=history) if replicas else run_seed(number)
        except RmqhaError as error:
            print("\n".join(getattr(error, "__notes__", [])))
            print(f"seed {number} FAILED: {error}", file=sys.stderr)
            sys.exit(1)
        if count == 1:
            print("\n".join(outcome.lines[-tail:]))
        checked = "messages acknowledged" if replicas else "answers checked"
        faults = sum(outcome.faults.values())
        print(
            f"seed {number} ok: {outcome.virtual_ms / 1000:.1f} s, {faults} faults,"
            f" {outcome.elections} elections, {outcome.reads} {checked}, well again after"
            f" {outcome.settled_ms} ms, trace {outcome.digest}"
        )


if __name__ == "__main__":
    main()
