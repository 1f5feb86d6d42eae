"""``bin/simulate SEED``: play one seed and print its trace; ``--count N`` plays many."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from rmqha.cli.output import run_command
from rmqha.cli.version import version_option
from rmqha.sim.batch import Played, Run, Totals, play_batch
from rmqha.sim.coverage import GIVEN_UP
from rmqha.sim.emptied_swarm import run_emptied_seed
from rmqha.sim.java_peer import run_java_peer_seed
from rmqha.sim.members_swarm import run_members_seed
from rmqha.sim.pressed_swarm import run_pressed_seed
from rmqha.sim.probe_swarm import run_slow_seed, run_stopped_seed
from rmqha.sim.replica_swarm import run_replica_seed
from rmqha.sim.rot_swarm import run_rot_seed
from rmqha.sim.service_swarm import run_service_seed
from rmqha.sim.shrink import same_failure, shrink
from rmqha.sim.storm_swarm import faults_among, make_storm, run_storm_seed
from rmqha.sim.story import Fault, Outcome
from rmqha.sim.swarm import Swarm, make_swarm, run_seed
from rmqha.sim.wanted import uncovered
from rmqha.verify.client_history import HistoryWriter

COVERED_FROM = 200
"""A batch of so many seeds must hold every kind of fault and happening at least once."""

SEED_LINES_MAX = 200
"""A longer batch prints failures, how far it is, and totals."""
SEEDS_PER_LINE = 100
EXIT_ENDED = 130
"""Ended by a signal: what the shell says of a command that Ctrl-C ended."""

Make = Callable[[int, tuple[Fault, ...] | None], Swarm]
SHRUNK: dict[Run, Make] = {run_seed: make_swarm, run_storm_seed: make_storm}
"""Stories that are cut down to the faults that they need, and how they are made."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@version_option("rmqha simulate")
@click.argument("seed", type=int)
@click.option(
    "--count",
    default=1,
    type=click.IntRange(min=1),
    help="Play this many seeds from SEED on; prints one line each, and what they cover together.",
)
@click.option(
    "-j",
    "--processes",
    default=1,
    type=click.IntRange(min=1),
    help="Play so many seeds at a time.",
)
@click.option(
    "--replicas", is_flag=True, help="Real replicas and producers instead of scripted brokers."
)
@click.option(
    "--services",
    is_flag=True,
    help="Real replicas whose delays, timers, transactions, pops and locks are used.",
)
@click.option(
    "--java-peer",
    is_flag=True,
    help="The same in sets of which one replica treats its tables as Java's brokers do.",
)
@click.option(
    "--pressed", is_flag=True, help="The same on disks that take less than is sent: writes wait."
)
@click.option(
    "--members", is_flag=True, help="Controllers that join and leave their group, among faults."
)
@click.option(
    "--probes", is_flag=True, help="Slow masters that are asked, and must not be given up."
)
@click.option(
    "--stopped",
    is_flag=True,
    help="Masters that are asked while they are stopped or cut off, and must not acknowledge.",
)
@click.option(
    "--rot", is_flag=True, help="Real replicas in whose logs bits flip, and which mend each other."
)
@click.option(
    "--emptied",
    is_flag=True,
    help="Real replicas of which an operator empties one while it is down.",
)
@click.option(
    "--storms", is_flag=True, help="Controllers in squalls of dozens of faults at a time."
)
@click.option(
    "--tail",
    default=0,
    type=click.IntRange(min=0),
    help="Print only the last lines of the trace.",
)
@click.option(
    "--shrink/--no-shrink",
    "shrinking",
    default=True,
    help="Cut a failing seed down to the faults that it needs (the default stories, and --storms).",
)
@click.option(
    "--history",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    default=None,
    help="Write what clients of one seed do, for bin/pipeline history-check (with --replicas).",
)
def main(
    seed: int,
    count: int,
    processes: int,
    tail: int,
    history: Path | None,
    *,
    replicas: bool,
    services: bool,
    java_peer: bool,
    pressed: bool,
    members: bool,
    probes: bool,
    stopped: bool,
    rot: bool,
    emptied: bool,
    storms: bool,
    shrinking: bool,
) -> None:
    """Replay a simulated cluster under faults; the same SEED prints the same bytes."""
    if history is not None and (count != 1 or not replicas):
        raise click.UsageError("--history needs --replicas and one seed")
    runs = [run for run, asked in (
        (run_replica_seed, replicas), (run_service_seed, services), (run_members_seed, members),
        (run_slow_seed, probes), (run_stopped_seed, stopped), (run_java_peer_seed, java_peer),
        (run_rot_seed, rot), (run_storm_seed, storms), (run_pressed_seed, pressed),
        (run_emptied_seed, emptied),
    ) if asked]  # fmt: skip
    if len(runs) > 1:
        raise click.UsageError(
            "--replicas, --services, --java-peer, --pressed, --members, --probes, --stopped, --rot,"
            " --emptied and --storms are different stories"
        )
    run: Run = runs[0] if runs else run_seed
    if count == 1:
        failed = _play_one(run, seed, tail, history)
    else:
        failed = _play_many(run, seed, count, processes)
    if failed is not None and shrinking and run in SHRUNK:
        _shrink(SHRUNK[run], failed)
    sys.exit(1 if failed is not None else 0)


def _play_one(run: Run, seed: int, tail: int, history: Path | None) -> int | None:
    with ExitStack() as stack:
        writer = None
        if history is not None:
            try:
                file = stack.enter_context(history.open("wb"))
            except OSError as error:
                raise click.UsageError(f"--history: {error}") from error
            writer = HistoryWriter(file.write, f"seed {seed}")
        try:
            outcome = run(seed) if writer is None else run_replica_seed(seed, history=writer)
        except Exception as error:  # noqa: BLE001 - it is what the seed came to
            print("\n".join(getattr(error, "__notes__", [])))
            print(f"seed {seed} FAILED: {type(error).__name__}: {error}", file=sys.stderr)
            return seed
    print("\n".join(outcome.lines[-tail:]))
    print(_line(run, _summary(outcome)))
    return None


def _summary(outcome: Outcome) -> Played:
    return Played(
        outcome.seed,
        digest=outcome.digest,
        virtual_ms=outcome.virtual_ms,
        settled_ms=outcome.settled_ms,
        elections=outcome.elections,
        reads=outcome.reads,
        faults=sum(outcome.faults.values()),
    )


def _line(run: Run, one: Played) -> str:
    answers = run in (run_seed, run_members_seed, run_storm_seed)
    checked = "answers checked" if answers else "messages acknowledged"
    return (
        f"seed {one.seed} ok: {one.virtual_ms / 1000:.1f} s, {one.faults} faults,"
        f" {one.elections} elections, {one.reads} {checked}, well again after"
        f" {one.settled_ms} ms, trace {one.digest}"
    )


def _play_many(run: Run, first: int, count: int, processes: int) -> int | None:
    """Play a batch, print what it came to; the first seed that failed, or None.

    Ends the process where something is not covered or was given up, or a signal came before the end.
    """
    totals = Totals()
    began = time.monotonic()
    try:
        with _ended_by_signals():
            for one in play_batch(run, first, count, processes):
                totals.add(one)
                _tell(run, first, count, one, totals)
    except KeyboardInterrupt:
        pass
    totals.wall_s = time.monotonic() - began
    lacking = uncovered(run, first, totals.counts)
    _print_totals(first, totals)
    if totals.failed:
        print("\n" + totals.failed[0].notes)
    if totals.seeds < count:
        print(f"ended after {totals.seeds} of {count} seeds", file=sys.stderr)
        sys.exit(EXIT_ENDED)
    if totals.failed:
        return totals.failed[0].seed
    if totals.counts[GIVEN_UP]:
        print(f"searches given up in this batch: {totals.counts[GIVEN_UP]}", file=sys.stderr)
        sys.exit(1)
    if lacking and count >= COVERED_FROM:
        print(f"never happened in this batch: {', '.join(lacking)}", file=sys.stderr)
        sys.exit(1)
    return None


def _tell(run: Run, first: int, count: int, one: Played, totals: Totals) -> None:
    """Print what there is to say of a seed."""
    if one.failure:
        print(f"seed {one.seed} FAILED: {one.failure}", file=sys.stderr)
    elif count <= SEED_LINES_MAX:
        print(_line(run, one))
    if count > SEED_LINES_MAX and totals.seeds % SEEDS_PER_LINE == 0:
        print(f"seeds {first} to {one.seed}: {len(totals.failed)} failed", flush=True)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Both of Ctrl-C and SIGTERM raise KeyboardInterrupt in here."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print_totals(first: int, totals: Totals) -> None:
    width = max((len(name) for name in totals.counts), default=0)
    for name, number in sorted(totals.counts.items()):
        print(f"  {name:<{width}}  {number}")
    simulated_s = totals.virtual_ms / 1000
    print(
        f"seeds {first} to {first + totals.seeds - 1}: {len(totals.failed)} failed,"
        f" {faults_among(totals.counts):,} faults,"
        f" {simulated_s:.0f} simulated seconds in {totals.wall_s:.1f} s"
        f" ({simulated_s / max(totals.wall_s, 0.001):.0f} a second),"
        f" {totals.cpu_s / max(totals.seeds, 1):.3f} processor seconds a seed"
    )
    for name in sorted({one.name for one in totals.failed}):
        seeds = [str(one.seed) for one in totals.failed if one.name == name]
        print(f"  {len(seeds)} times {name}: {' '.join(seeds[:20])}")


def _shrink(make: Make, seed: int) -> None:
    """Print the fewest faults with which a seed fails as it does, and the end of that trace."""
    script, wanted, _ = _failure(make, seed, None)
    if not wanted:
        return
    found = shrink(script, lambda shorter: _failure(make, seed, shorter)[1] == wanted)
    _, _, notes = _failure(make, seed, found)
    print(f"\nseed {seed} fails with {len(found)} of {len(script)} faults: {wanted}")
    for fault in found:
        print(f"  {fault.at_ms:10.3f} {fault.kind} {' '.join(map(str, fault.args))}".rstrip())
    print(notes)


def _failure(
    make: Make, seed: int, script: tuple[Fault, ...] | None
) -> tuple[tuple[Fault, ...], str, str]:
    """The faults that were played, the failure's name (empty for none), and its trace's end."""
    swarm = make(seed, script)
    try:
        swarm.tell(seed)
    except Exception as error:  # noqa: BLE001 - it is compared
        notes = "\n".join(getattr(error, "__notes__", []))
        return tuple(swarm.script), same_failure(error), notes
    return tuple(swarm.script), "", ""


if __name__ == "__main__":
    run_command("simulate", main)
