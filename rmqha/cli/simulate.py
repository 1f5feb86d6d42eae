"""``bin/simulate SEED``: play one seed and print its trace; ``--count N`` plays many."""

from __future__ import annotations

import sys

import click

from rmqha.base.errors import RmqhaError
from rmqha.sim.replica_swarm import run_replica_seed
from rmqha.sim.swarm import run_seed


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("seed", type=int)
@click.option("--count", default=1, help="Play this many seeds from SEED on; prints one line each.")
@click.option(
    "--replicas", is_flag=True, help="Real replicas and producers instead of scripted brokers."
)
@click.option("--tail", default=0, help="Print only the last lines of the trace.")
def main(seed: int, count: int, tail: int, *, replicas: bool) -> None:
    """Replay a simulated cluster under faults; the same SEED prints the same bytes."""
    for number in range(seed, seed + count):
        try:
            outcome = run_replica_seed(number) if replicas else run_seed(number)
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
