"""How fast is the store, ours next to Java's DefaultMessageStore?

Question: appends a second without and with waiting for the disk, reads a second through consume
queues and by physical offset, seconds of recovery for each GB after a clean stop and after kill -9.

Recipe: ``bin/bench store --rounds 3 --json figures.json``. Both sides run in processes of their own
(``store_side.py``, ``java/StoreBench.java``), take turns in every round, write records of the same
bytes into files of the same sizes, and open copies of the very same directory, which ours wrote.
Every side warms up before its clock starts; copies are synced first, the page cache stays warm.
Java has 1 GB of heap, otherwise default options, and its message index is off, since ours writes none.
Noise: other processes on the machine; read the ratios, and the ranges.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rmqha.testing.real.maven import DEFAULT_VERSION
from tests.bench.ending import end_children_when_terminated
from tests.bench.java_program import command, compiled
from tests.bench.tables import machine, markdown, ratio, spread, write_json

PROPERTIES = "TAGS=TAG1;KEYS=k0000012345;UNIQ_KEY=7F0000010BAD18B4AAC2123456780000;"
WIDTHS = (1, 16, 64)
WARM = 100_000
PHASE_TIMEOUT_S = 300
GB = 1e9
KINDS = ("rmqha", "java")
COPY_BLOCK = 16 << 20


@dataclass(slots=True)
class Figures:
    """Rows of one side, one value a round."""

    rows: dict[str, list[float]] = field(default_factory=dict)

    def add(self, row: str, value: float) -> None:
        """Keep one value."""
        self.rows.setdefault(row, []).append(value)


class Sides:
    """Runs phases of either side in processes of their own."""

    def __init__(self, folder: Path, version: str) -> None:
        self._version = version
        self._home = folder / "java-home"
        self._classpath = compiled("StoreBench", version, folder)

    def line(self, kind: str, phase: str, root: Path, *args: object) -> list[str]:
        """The command line of one phase."""
        words = [phase, str(root), PROPERTIES, *map(str, args)]
        if kind == "rmqha":
            return [sys.executable, "-m", "tests.bench.store_side", *words]
        return command(
            "StoreBench", self._version, self._home, self._classpath, words, ("-Xms1g", "-Xmx1g")
        )

    def run(self, kind: str, phase: str, root: Path, *args: object) -> dict[str, float]:
        """Run one phase to its end; its figures."""
        done = subprocess.run(
            self.line(kind, phase, root, *args),
            capture_output=True, text=True, timeout=PHASE_TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{kind} {phase}: {done.stdout}{done.stderr}")
        figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
        return figures


def main() -> None:
    """Run the rounds and print the table."""
    end_children_when_terminated()
    options = _options()
    figures = {kind: Figures() for kind in KINDS}
    folder = Path(tempfile.mkdtemp(prefix="bench-store-", dir=options.folder))
    try:
        sides = Sides(folder, options.version)
        for number in range(1, options.rounds + 1):
            print(f"round {number} of {options.rounds}", flush=True)
            _round(sides, folder, figures, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print()
    print(
        f"{machine()}; RocketMQ {options.version}, {options.records} records of 1 KB, "
        f"medians of {options.rounds} (smallest-largest)"
    )
    print()
    print(table(figures))
    if options.json:
        content = {"machine": machine(), "figures": {k: asdict(f) for k, f in figures.items()}}
        write_json(Path(options.json), content)


def _round(
    sides: Sides, folder: Path, figures: dict[str, Figures], options: argparse.Namespace
) -> None:
    clean, killed = folder / "clean", folder / "killed"
    for kind in KINDS:
        root = clean if kind == "rmqha" else folder / "other"
        found = sides.run(kind, "append", root, options.records, WARM)
        figures[kind].add("append, per s", options.records / found["append_s"])
        figures[kind].add("append and dispatch, per s", options.records / found["dispatched_s"])
    shutil.rmtree(folder / "other")
    for width in WIDTHS:
        for kind in KINDS:
            found = sides.run(kind, "sync", folder / "sync", width, options.seconds)
            row = f"durable put, {width} waiting, per s"
            figures[kind].add(row, found["puts"] / found["seconds"])
            shutil.rmtree(folder / "sync")
    _fill_and_kill(sides, killed, options.records + WARM)
    for kind in KINDS:
        copy = _copy(clean, folder / "copy")
        found = sides.run(kind, "read", copy)
        figures[kind].add("read through queues, per s", found["records"] / found["queue_s"])
        figures[kind].add("read by offset, per s", found["records"] / found["look_s"])
        shutil.rmtree(copy)
    for source, row in ((clean, "a clean stop"), (killed, "kill -9")):
        ends = []
        for kind in KINDS:
            copy = _copy(source, folder / "copy")
            found = sides.run(kind, "open", copy)
            figures[kind].add(f"open after {row}, s per GB", found["open_s"] / found["end"] * GB)
            ends.append((found["end"], found["units"]))
            shutil.rmtree(copy)
        if set(ends) != {(ends[0][0], options.records + WARM)}:
            raise SystemExit(f"the sides found different logs after {row}: {ends}")
    for root in (clean, killed):
        shutil.rmtree(root)


def _fill_and_kill(sides: Sides, root: Path, count: int) -> None:
    """Have our side write a store and kill it once the queues are written."""
    line = sides.line("rmqha", "hold", root, count)
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        told = ""
        for text in iter(child.stdout.readline, ""):
            if text.startswith('{"end"'):
                told = text
                break
        child.send_signal(signal.SIGKILL)
        if not told:
            raise SystemExit("our side ended early")


def _copy(source: Path, target: Path) -> Path:
    """Copy a store, synced, so that nobody's recovery writes the copy's dirty pages."""
    for path in sorted(source.rglob("*")):
        new = target / path.relative_to(source)
        if path.is_dir():
            new.mkdir(parents=True)
            continue
        new.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as old, new.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, path.stat().st_size))
            while block := old.read(COPY_BLOCK):
                file.write(block)
            file.truncate(path.stat().st_size)
            file.flush()
            os.fsync(file.fileno())
    return target


def table(figures: dict[str, Figures]) -> str:
    """The markdown table, with ours over Java's."""
    ours, java = figures["rmqha"].rows, figures["java"].rows
    rows = [
        [row, spread(ours[row]), spread(java[row]), ratio(ours[row], java[row])] for row in ours
    ]
    return markdown(["work", *KINDS, "rmqha/java"], rows)


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bin/bench store", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=700_000, help="beside 100 000 to warm up")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each row of durable puts")
    parser.add_argument("--version", default=DEFAULT_VERSION, help="of RocketMQ")
    parser.add_argument(
        "--folder", help="a folder on the disk to measure; the system's temporary one"
    )
    parser.add_argument("--json", help="keep the raw figures here")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
