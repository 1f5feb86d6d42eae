"""How many megabytes of commit log does the pipeline read in a second of processor time?

Question: a scan of all columns but the body, of four columns and of one topic, an audit of two
replicas and an export to Parquet, beside the same batches without Spark, a source that yields rows,
and whole files through ``binaryFile`` and pandas; does memory grow with the log?

Recipe: ``bin/bench pipeline --mb 1000 --rounds 3 --json figures.json``; one size and one kind of
work in 4 GB: ``--mb 4000 --bodies 1024 --cores 2 --cases 'four columns'``. The store is written by
the project's record encoder: ten topics of four queues, bodies from half to one and a half times the
size named; log files have RocketMQ's own size, 1 GiB, unless ``--file-mib`` says another. Each pair
of size and cores has a session of its own; everything is run ``--warm-up`` times before it is timed
(the JVM compiles for about a minute), the page cache is hot, rows go to Spark's ``noop`` sink.
``--in-turn`` goes through all works in every round: compare two of them so; memory is then that of
whichever needs most, for they share the workers. Megabytes are those of the log, for the audit of
both logs. Processor time is that of the JVM (its compiler and collector, too), the Python workers
and the driver; read it, not wall time, on a machine that others use as well.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench.ending import end_children_when_terminated
from tests.bench.tables import machine, markdown, spread, write_json
from tests.pipeline.synthetic import SyntheticStore

ROOT = Path(__file__).parents[2]
BODIES = (200, 1024, 4096)
CORES = (1, 2)
FILE_MIB = 1024
WHOLE_FILE_MIB_MAX = 128
"""``binaryFile`` holds a file in the JVM several times: with 1 GiB it ends in want of memory."""
TOPICS = 10
QUEUES = 4
POOL_BYTES = 1 << 20
WHOLE = "four columns, binaryFile"
CASES = (
    "all columns but the body", "four columns", "one topic of ten",
    "one topic of ten, without queues", "audit of two replicas", "export to Parquet",
    "export to Parquet, by Spark's writer", "export to Parquet, no Spark",
    "four columns, rows yielded", WHOLE, "four columns, no Spark",
    "all columns, no Spark", "four columns, read",
    "four columns with bodies, read", "four columns, read by DuckDB",
)  # fmt: skip


def main() -> None:
    """Write stores, run the sides and print the table."""
    end_children_when_terminated()
    options = _options()
    figures: dict[str, dict[str, list[dict[str, float]]]] = {}
    folder = Path(tempfile.mkdtemp(prefix="bench-pipeline-", dir=options.folder))
    try:
        for body in options.bodies:
            store = folder / "store"
            size_mb = write(store, options.mb, body, options.file_mib)
            other = linked(store, folder / "other")
            for cores in options.cores:
                print(f"bodies of {body} bytes, {cores} cores, {size_mb:.0f} MB", flush=True)
                found = side(store, other, folder / "lake", cores, options)
                for values in found.values():
                    for one in values:
                        one["log_mb"] = size_mb
                figures[f"{body} B, {cores} cores"] = found
            shutil.rmtree(store)
            shutil.rmtree(other)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{machine()}; {options.mb} MB of log, medians of {options.rounds}\n")
    print(table(figures, speed))
    print("\nMost memory of a Python worker, MB:\n")
    print(table(figures, lambda one: one["mb"]))
    if options.json:
        write_json(Path(options.json), {"machine": machine(), "figures": figures})


def write(root: Path, size_mb: int, body_bytes: int, file_mib: int = FILE_MIB) -> float:
    """A store of about so many MB of log, in files of so many MiB; how many it became."""
    chance = random.Random(body_bytes)
    pool = chance.randbytes(POOL_BYTES)
    store = SyntheticStore(root, file_mib << 20)
    total = number = 0
    while total < size_mb * 1_000_000:
        size = chance.randrange(body_bytes // 2, body_bytes * 3 // 2)
        at = chance.randrange(POOL_BYTES - size)
        topic, queue_id = f"topic{number % TOPICS}", number // TOPICS % QUEUES
        total += store.add(topic, queue_id, pool[at : at + size]).size
        number += 1
    store.close()
    return total / 1e6


def linked(store: Path, target: Path) -> Path:
    """The same files under another name: another replica."""
    shutil.copytree(store, target, copy_function=os.link)
    return target


def side(
    store: Path, other: Path, out: Path, cores: int, options: argparse.Namespace
) -> dict[str, list[dict[str, float]]]:
    """One session's figures."""
    asked = {
        "store": str(store), "other": str(other), "out": str(out), "cores": cores,
        "cases": options.cases, "rounds": options.rounds,
        "warm_up": options.warm_up, "in_turn": options.in_turn,
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.bench.pipeline_side", json.dumps(asked)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    told = ""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    ) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                if line.startswith("{"):
                    told = line
                    print(f"  {last_round(json.loads(line))}", flush=True)
        except BaseException:
            # Its JVM ends when nothing reads it any more.
            child.kill()
            raise
    if child.returncode:
        raise SystemExit(f"{cores} cores: the session ended with {child.returncode}")
    found: dict[str, list[dict[str, float]]] = json.loads(told)
    counts = {
        (name.startswith("one topic"), one["rows"])
        for name, values in found.items()
        if name != "audit of two replicas"
        for one in values
    }
    if len(counts) != len({is_topic for is_topic, _ in counts}):
        raise SystemExit(f"readers found different numbers of rows: {found}")
    return found


def last_round(found: dict[str, list[dict[str, float]]]) -> str:
    """What was timed last of each work, and how often."""
    return "; ".join(
        f"{name} ({len(values)}): {values[-1]['cpu_s']:.2f} s of processor,"
        f" {values[-1]['wall_s']:.2f} s, {values[-1]['mb']:.0f} MB"
        for name, values in found.items()
    )


def speed(one: dict[str, float]) -> float:
    """MB of log a second of processor time."""
    return one["log_mb"] * one["times"] / one["cpu_s"]


def table(figures: dict[str, dict[str, list[dict[str, float]]]], value: object) -> str:
    """A row each kind of work, a column each session.

    Of a small log a work may take less processor time than the clock shows, and has no figure then.
    """
    assert callable(value)
    names = [name for name in CASES if any(name in found for found in figures.values())]
    rows = [
        [name, *(spread([value(one) for one in found.get(name, []) if one["cpu_s"]])
                 for found in figures.values())]
        for name in names
    ]  # fmt: skip
    return markdown(["work", *figures], rows)


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bin/bench pipeline", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--mb", type=int, default=128, help="of log; 1000 for figures to quote")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--warm-up", type=int, default=1, help="runs before; 12 for a warm JVM")
    parser.add_argument("--in-turn", action="store_true", help="each round does all works")
    parser.add_argument("--bodies", type=_numbers, default=BODIES, help="bytes, with commas")
    parser.add_argument("--cores", type=_numbers, default=CORES, help="with commas")
    parser.add_argument("--cases", type=_cases, default=CASES, help=f"with semicolons: {CASES}")
    parser.add_argument("--file-mib", type=int, default=FILE_MIB, help="size of the log's files")
    parser.add_argument("--folder", help="where stores are written; the system's temporary one")
    parser.add_argument("--json", help="keep the raw figures here")
    options = parser.parse_args(arguments)
    if WHOLE in options.cases and min(options.mb, options.file_mib) > WHOLE_FILE_MIB_MAX:
        parser.error(f"{WHOLE!r} needs --file-mib {WHOLE_FILE_MIB_MAX} or less")
    return options


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(","))


def _cases(text: str) -> tuple[str, ...]:
    found = tuple(one.strip() for one in text.split(";"))
    unknown = [one for one in found if one not in CASES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such work: {', '.join(unknown)}")
    return found


if __name__ == "__main__":
    main()
