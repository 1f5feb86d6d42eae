"""How long until a whole cluster takes writes, and how much memory does it need, ours beside Java's?

Question: seconds from the start to the first acknowledged write and to three replicas in sync,
and memory (PSS: pages that are shared count in parts) once it is so, of three controllers, a name
server and three replicas with ``allAckInSyncStateSet``. In one process as the pytest fixture makes
it, as child processes, and as Java processes (DLedger controllers).

Seconds of the first row begin before the first import, of a process that had imported nothing;
"again" is a further cluster of the same process. Memory of the fixture is the whole process, the
test's own part included; of processes it is all nodes and the launcher that they were forked from.
Java's replicas join one after another, as its brokers want it, with the lowered periods of the
interop tests and small heaps (brokers -Xmx384m, controllers -Xmx256m, name server -Xmx128m).

Recipe: ``bin/bench cluster --rounds 5 --java-rounds 2 --json figures.json``. Noise: seven
processes start on the same cores as whoever asks them.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

import rmqha
from tests.bench.choosing import some_of
from tests.bench.ending import end_children_when_terminated
from tests.bench.tables import machine, markdown, spread, write_json

MIB = 1 << 20
KINDS = ("in-process", "processes", "java")
FIRST_ACK, IN_SYNC, MEMORY = "first_ack_s", "in_sync_s", "memory_mib"
ROWS = (
    (FIRST_ACK, "first acknowledged write, s"),
    (IN_SYNC, "three replicas in sync, s"),
    (f"again_{FIRST_ACK}", "first acknowledged write, again, s"),
    (f"again_{IN_SYNC}", "three replicas in sync, again, s"),
    (MEMORY, "memory (PSS), MiB"),
)
TIMEOUT_S = 120.0
Figures = dict[str, float]


def main() -> None:
    """Measure what was asked for and print the table."""
    end_children_when_terminated()
    options = _options()
    if options.worker:
        print(json.dumps(_WORKERS[options.worker](Path(options.folder))))
        return
    kinds: list[str] = options.kinds.split(",")
    # Whoever installs the package has its bytecode, too; here it may be older than the source.
    compileall.compile_dir(str(Path(rmqha.__file__).parent), quiet=2)
    found: dict[str, list[Figures]] = {kind: [] for kind in kinds}
    for number in range(max(options.rounds, options.java_rounds)):
        for kind in kinds:
            if number < (options.java_rounds if kind == "java" else options.rounds):
                found[kind].append(_fresh(kind))
                print(kind, found[kind][-1], file=sys.stderr, flush=True)
    print(f"{machine()}; {options.rounds} rounds ({options.java_rounds} of Java)\n")
    print(markdown(["", *kinds], [_row(key, text, found) for key, text in ROWS]))
    if options.json is not None:
        write_json(options.json, found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--java-rounds", type=int, default=2)
    parser.add_argument(
        "--kinds", type=some_of(KINDS), default=",".join(KINDS), help="of " + ", ".join(KINDS)
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


def _row(key: str, text: str, found: dict[str, list[Figures]]) -> list[str]:
    return [text, *(spread([one[key] for one in runs if key in one]) for runs in found.values())]


def _fresh(kind: str) -> Figures:
    """One round in an interpreter of its own."""
    folder = tempfile.mkdtemp(prefix="rmqha-bench-")
    command = [sys.executable, "-m", "tests.bench.bench_cluster", "--worker", kind]
    try:
        done = subprocess.run(
            [*command, "--folder", folder],
            check=True,
            stdout=subprocess.PIPE,
            timeout=TIMEOUT_S * 2,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def _ours(folder: Path, *, processes: bool) -> Figures:
    """Two clusters after each other; the memory is the first one's."""
    began = time.monotonic()
    first = _cluster(folder / "first", processes, began)
    again = _cluster(folder / "again", processes, time.monotonic())
    return {**first, f"again_{FIRST_ACK}": again[FIRST_ACK], f"again_{IN_SYNC}": again[IN_SYNC]}


def _cluster(folder: Path, processes: bool, began: float) -> Figures:
    from rmqha.testing.cluster import RmqCluster

    cluster = RmqCluster(folder, processes=processes)
    try:
        in_sync, first_ack = cluster._call(_start(cluster._core))
        return {
            FIRST_ACK: first_ack - began, IN_SYNC: in_sync - began, MEMORY: _memory(_ids(cluster)),
        }  # fmt: skip
    finally:
        cluster.close()


async def _start(core: Any) -> tuple[float, float]:
    """Start the cluster, and send from the beginning: when it was in sync, when one was taken."""

    async def started() -> float:
        await core.start(TIMEOUT_S)
        return time.monotonic()

    async def brokers_run() -> bool:
        return any(node.is_alive for node in core.of_kind("broker"))

    async def acknowledged() -> float:
        # Before that, questions of who is master would only take processor time from the start.
        await core.client.until(brokers_run, "broker process", TIMEOUT_S)
        await core.produce(1, "Bench", 1, TIMEOUT_S)
        return time.monotonic()

    return await asyncio.gather(started(), acknowledged())


def _ids(cluster: Any) -> list[int]:
    if not cluster.processes:
        return [psutil.Process().pid]
    from rmqha.testing.processes import launcher

    return [launcher().process.pid, *(node.pid for node in cluster.nodes)]


def _memory(ids: list[int]) -> float:
    return sum(psutil.Process(pid).memory_full_info().pss for pid in ids) / MIB


def _java(folder: Path) -> Figures:
    from rmqha.testing.real.cluster import Cluster
    from rmqha.testing.real.producer import Producer

    cluster = Cluster(folder, "dledger")
    began = time.monotonic()
    producer = Producer(cluster.name_server.address, "Bench", cluster.broker_name, pause_s=0.05)
    try:
        producer.start()
        cluster.start()
        in_sync = time.monotonic()
        producer.wait_for_acks(1, TIMEOUT_S)
        return {
            FIRST_ACK: producer.acked[0].acked_at - began, IN_SYNC: in_sync - began,
            MEMORY: _memory([child.pid for child in cluster.children]),
        }  # fmt: skip
    finally:
        producer.stop()
        for child in reversed(cluster.children):
            child.kill()


_WORKERS: dict[str, Callable[[Path], Figures]] = {
    "in-process": lambda folder: _ours(folder, processes=False),
    "processes": lambda folder: _ours(folder, processes=True),
    "java": _java,
}


if __name__ == "__main__":
    main()
