"""How fast is a group of three controllers, ours next to Java's?

Question: requests a second and latency of the controller's requests, seconds from process start to
a leader, memory of a node. Same generator, same scripted brokers, same machine, one group at a
time, the kinds in turn in every round so that drift hits all of them.

Recipe: ``.venv/bin/python -m tests.bench.bench_controller --rounds 3 --json figures.json``
(``--kinds rmqha,dledger,jraft``). Java nodes run with -Xmx512m and otherwise default JVM options.
Noise: the generator takes up to one core; on two cores the group has the other one and what is left.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
import uvloop

from rmqha.testing.real.controllers import KINDS, Controllers
from tests.bench.agents import Agents
from tests.bench.choosing import beginning_of, some_of
from tests.bench.ending import end_children_when_terminated
from tests.bench.load import Constant, Flip, Growing, Result, Worker, measure
from tests.bench.tables import machine, markdown, number, ratio, spread, write_json

BENCH_JVM = ("-Xmx512m",)
# Java's own default; the tests use small files.
MAPPED_FILE_SIZE = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Work:
    """One row: who asks what, on how many connections."""

    name: str
    connections: int
    workers: Callable[[Agents], list[Worker]]


@dataclass(slots=True)
class Figures:
    """Everything measured of one kind, one entry a round."""

    start_s: list[float] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)
    rss_idle_mib: list[float] = field(default_factory=list)
    results: dict[str, list[Result]] = field(default_factory=dict)


def _replica_info(agents: Agents) -> list[Worker]:
    count = len(agents.names)
    return [Constant(1004, {"brokerName": agents.names[i % count]}) for i in range(256)]


def _heartbeats(agents: Agents) -> list[Worker]:
    count = len(agents.names)
    return [Constant(904, agents.heartbeat(agents.names[i % count], 2)) for i in range(256)]


def _busy_heartbeats(agents: Agents) -> list[Worker]:
    count = len(agents.names)
    return [Growing(904, agents.heartbeat(agents.names[i % count], 2)) for i in range(256)]


def _metadata(_: Agents) -> list[Worker]:
    return [Constant(1005, {}) for _ in range(256)]


def _flip_all(agents: Agents) -> list[Worker]:
    return [Flip(name, master_epoch=1) for name in agents.names]


def _flip_one(agents: Agents) -> list[Worker]:
    return [Flip(agents.names[0], master_epoch=1)]


WORKS = (
    Work("1004, 4 x 64 in flight", 4, _replica_info),
    Work("904 as a request, 4 x 64 in flight", 4, _heartbeats),
    Work("904 with growing offsets, 4 x 64 in flight", 4, _busy_heartbeats),
    Work("1005, 4 x 64 in flight", 4, _metadata),
    Work("1001, one in flight a set", 4, _flip_all),
    Work("1001, one in flight", 1, _flip_one),
)


def main() -> None:
    """Run the rounds and print the table."""
    end_children_when_terminated()
    options = _options()
    kinds: list[str] = options.kinds.split(",")
    figures = {kind: Figures() for kind in kinds}
    for number_of_round in range(1, options.rounds + 1):
        for kind in kinds:
            print(f"round {number_of_round} of {options.rounds}: {kind}", flush=True)
            _measure_group(kind, figures[kind], options)
    print()
    print(machine() + f"; {options.sets} broker sets, medians of {options.rounds} (min-max)")
    print()
    print(table(figures))
    if options.json:
        content = {"machine": machine(), "figures": {k: asdict(f) for k, f in figures.items()}}
        write_json(Path(options.json), content)


def table(figures: dict[str, Figures]) -> str:
    """The markdown table, with ours over each Java kind."""
    kinds = list(figures)
    rivals = [kind for kind in kinds if kind != "rmqha"] if "rmqha" in kinds else []
    head = ["work", *kinds, *(f"rmqha/{rival}" for rival in rivals)]
    rows: list[list[str]] = []

    def add(name: str, values: dict[str, list[float]], shown: dict[str, str]) -> None:
        ratios = [ratio(values["rmqha"], values[rival]) for rival in rivals]
        rows.append([name, *(shown[kind] for kind in kinds), *ratios])

    for work in WORKS:
        results = {kind: figures[kind].results.get(work.name, []) for kind in kinds}
        if not any(results.values()):
            continue
        rates = {kind: [r.rate for r in found] for kind, found in results.items()}
        add(f"{work.name}, per s", rates, {kind: spread(rates[kind]) for kind in kinds})
        for label, column in (("p50 ms", "p50_ms"), ("p99 ms", "p99_ms")):
            values = {kind: [getattr(r, column) for r in results[kind]] for kind in kinds}
            shown = {kind: spread(values[kind]) for kind in kinds}
            add(f"{work.name}, {label}", values, shown)
    plain = (
        ("start of 3 nodes to a leader, s", "start_s"),
        ("RSS a node after start, MiB", "rss_idle_mib"),
        ("RSS a node after load, MiB", "rss_mib"),
    )
    for label, column in plain:
        values = {kind: list(getattr(figures[kind], column)) for kind in kinds}
        add(label, values, {kind: spread(values[kind]) for kind in kinds})
    return markdown(head, rows)


def _measure_group(kind: str, figures: Figures, options: argparse.Namespace) -> None:
    folder = Path(tempfile.mkdtemp(prefix=f"rmqha-bench-{kind}-", dir=options.folder))
    group = Controllers(kind, folder, settings={"mappedFileSize": MAPPED_FILE_SIZE}, jvm=BENCH_JVM)
    try:
        started = time.perf_counter()
        for node in group.nodes:
            node.start()
        group.wait_for_leader()
        figures.start_s.append(time.perf_counter() - started)
        leader = group.addresses[group.wait_for_agreement()]
        figures.rss_idle_mib += _rss_mib(group)
        uvloop.run(_measure_works(group, leader, figures, options))
        figures.rss_mib += _rss_mib(group)
    except BaseException:
        for node in group.nodes:
            print(node.tail())
        raise
    finally:
        group.close()
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


async def _measure_works(
    group: Controllers, leader: str, figures: Figures, options: argparse.Namespace
) -> None:
    async with Agents(group.addresses, leader, options.sets) as agents:
        for work in WORKS:
            if options.only and not work.name.startswith(options.only):
                continue
            result = await measure(
                leader,
                work.workers(agents),
                connections=work.connections,
                warm_up_s=options.warm_up,
                run_s=options.seconds,
            )
            figures.results.setdefault(work.name, []).append(result)
            print(
                f"  {work.name}: {number(result.rate)}/s, p50 {number(result.p50_ms)} ms, "
                f"p99 {number(result.p99_ms)} ms, {result.errors} refused, "
                f"generator {result.generator_cpu:.0%} of a core",
                flush=True,
            )


def _rss_mib(group: Controllers) -> list[float]:
    """Resident memory of every node, with whatever processes it started."""
    found = []
    for node in group.nodes:
        process = psutil.Process(node.pid)
        total = 0
        for part in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += part.memory_info().rss
        found.append(total / MIB)
    return [statistics.median(found)]


def _options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_controller", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--kinds", type=some_of(KINDS), default=",".join(KINDS), help="which groups, in this order"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measured interval")
    parser.add_argument("--warm-up", type=float, default=3.0, help="seconds before each interval")
    parser.add_argument("--sets", type=int, default=100, help="broker sets of two replicas")
    parser.add_argument(
        "--only", type=beginning_of([work.name for work in WORKS]), default="",
        help="only works whose name starts so",
    )  # fmt: skip
    parser.add_argument("--folder", default=None, help="where state goes (default: temporary)")
    parser.add_argument("--keep", action="store_true", help="keep state and logs")
    parser.add_argument("--json", default="", help="write the raw figures here")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
