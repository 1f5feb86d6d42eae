"""How fast does Spark read a topic from a running broker, ours and Java's?

Question: megabytes of log a second, and processor time of the reading and of the broker's side, for
four columns and for bodies, of one topic with four queues; beside one reader without Spark, and the
same with one pull at a time (what it was before it asked ahead).

Recipe: ``bin/bench live --mb 1000 --rounds 5``. Each broker stands alone on a store of its own that
the project's record encoder has written, bodies from half to one and a half times the size named;
both run all the time and take turns in every round. Everything is read once before it is timed. The
reader shares the cores with the broker that it reads from; nothing but loopback lies between.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from rmqha.client.aio.master_client import MasterClient
from rmqha.client.routes import QueueKey
from rmqha.pipeline import session
from rmqha.pipeline.live import pulling
from rmqha.pipeline.live.offsets import QueueRange
from rmqha.pipeline.live.options import read_options
from rmqha.store.consume_queue import UNIT
from rmqha.testing.real import wire
from rmqha.testing.real.processes import wait_until
from tests.bench.bench_clients import full_compiler
from tests.bench.ending import end_children_when_terminated
from tests.bench.pipeline_rivals import FOUR
from tests.bench.pipeline_side import HEAP, sunk, tree_cpu_s
from tests.bench.tables import machine, markdown, ratio, spread, write_json
from tests.interop.alone import BROKER, Alone, is_active, new_topic
from tests.pipeline.synthetic import SyntheticStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ("python", "java")
TOPIC = "Live"
QUEUES = 4
FILE_BYTES = 1 << 30
QUEUE_UNITS = 300_000
POOL_BYTES = 1 << 20
START_TIMEOUT_S = 60.0
FOUR_NAMES = tuple(field.split()[0] for field in FOUR.split(", "))
BODIES = (*FOUR_NAMES, "body")
FIGURES = ("MB a second", "reading, CPU-s a GB", "broker, CPU-s a GB")


class Side(NamedTuple):
    """A broker, and what it has."""

    pair: Alone
    size_mb: float

    @property
    def pids(self) -> tuple[int, int]:
        """Of the broker and its name server."""
        return self.pair.broker.child.pid, self.pair.name_server.child.pid


def main() -> None:
    """Write stores, run the rounds and print the table."""
    end_children_when_terminated()
    options = _options()
    found: dict[str, dict[str, list[float]]] = {}
    folder = Path(tempfile.mkdtemp(prefix="bench-live-", dir=options.folder))
    try:
        with ExitStack() as stack:
            sides = {kind: stack.enter_context(side(kind, folder, options)) for kind in KINDS}
            spark = session(
                "bench", master=f"local[{options.cores}]", settings={"spark.driver.memory": HEAP}
            )
            stack.callback(spark.stop)
            _rounds(spark, sides, options, found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{machine()}; {options.mb} MB in bodies of about {options.body} bytes\n")
    print(_table(found))
    if options.json:
        write_json(Path(options.json), {"machine": machine(), "figures": found})


def _rounds(
    spark: SparkSession,
    sides: dict[str, Side],
    options: argparse.Namespace,
    found: dict[str, dict[str, list[float]]],
) -> None:
    works = {kind: _works(spark, side.pair.servers) for kind, side in sides.items()}
    for kind in KINDS:
        counts = {name: work(True) for name, work in works[kind].items()}
        if len(set(counts.values())) != 1:
            raise SystemExit(f"{kind}: not the same messages by every way: {counts}")
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", flush=True)
        for name in works[KINDS[0]]:
            for kind, side in sides.items():
                figures = _timed(works[kind][name], side, sides.values())
                print(f"  {kind}, {name}: {figures[0]:.0f} MB/s", flush=True)
                for row, value in zip(FIGURES, figures, strict=True):
                    found.setdefault(f"{name}: {row}", {}).setdefault(kind, []).append(value)


def _timed(
    work: Callable[[bool], int], side: Side, sides: Iterable[Side]
) -> tuple[float, float, float]:
    """The figures of ``FIGURES``."""
    theirs = {pid for one in sides for pid in one.pids}
    before, broker_before = _reading_s(theirs), _broker_s(side)
    began = time.perf_counter()
    work(False)
    wall_s = time.perf_counter() - began
    reading_s, broker_s = _reading_s(theirs) - before, _broker_s(side) - broker_before
    return side.size_mb / wall_s, reading_s / side.size_mb * 1000, broker_s / side.size_mb * 1000


def _broker_s(side: Side) -> float:
    times = psutil.Process(side.pair.broker.child.pid).cpu_times()
    return float(times.user + times.system)


def _reading_s(theirs: set[int]) -> float:
    """Processor seconds of this process and of what it has started, but for brokers."""
    return sum(spent for pid, spent in tree_cpu_s().items() if pid not in theirs)


def _works(spark: SparkSession, servers: str) -> dict[str, Callable[[bool], int]]:
    def scan(schema: str, count: bool) -> int:
        reader = spark.read.format("rocketmq").options(nameServer=servers, topic=TOPIC)
        return sunk(reader.schema(schema).load(), count)

    return {
        "Spark, four columns": partial(scan, FOUR),
        "Spark, four columns and bodies": partial(scan, f"{FOUR}, body binary"),
        "one reader, with bodies": lambda _: _plain(servers, pulling.PULLS_AT_ONCE),
        "one reader, one pull at a time": lambda _: _plain(servers, 1),
    }


def _plain(servers: str, pulls_at_once: int) -> int:
    """The reader of one task, for all queues in turn."""
    known = pulling.PULLS_AT_ONCE
    pulling.PULLS_AT_ONCE = pulls_at_once
    try:
        options = read_options({"nameServer": servers, "topic": TOPIC})
        with MasterClient(
            [servers], timeout_ms=3_000, failover_timeout_ms=10_000, group="B"
        ) as one:
            reader = pulling.RangeReader(one, options, BODIES, print)
            edges = one.edges(QueueKey(TOPIC, BROKER, number) for number in range(QUEUES))
            return sum(
                batch.num_rows
                for queue, edge in edges.items()
                for batch in reader.read(QueueRange(queue, edge.low, edge.high))
            )
    finally:
        pulling.PULLS_AT_ONCE = known


@contextmanager
def side(kind: str, folder: Path, options: argparse.Namespace) -> Iterator[Side]:
    """A broker on a filled store, and the megabytes in it."""
    root = folder / kind / "store"
    size_mb = _write(root, options.mb, options.body)
    pair = Alone(
        kind, folder / kind, storePathRootDir=root, storePathCommitLog=root / "commitlog",
        mappedFileSizeCommitLog=FILE_BYTES, mappedFileSizeConsumeQueue=QUEUE_UNITS * UNIT.size,
    )  # fmt: skip
    if kind == "java":
        pair.broker.child.command = full_compiler(pair.broker.child.command)
    with pair:
        with wire.Connection(pair.broker.address) as connection:
            wait_until(partial(is_active, connection), START_TIMEOUT_S, f"the {kind} broker")
        new_topic(pair.broker, pair.servers, TOPIC, QUEUES)
        yield Side(pair, size_mb)


def _write(root: Path, size_mb: int, body_bytes: int) -> float:
    chance = random.Random(body_bytes)
    pool = chance.randbytes(POOL_BYTES)
    store = SyntheticStore(root, FILE_BYTES, QUEUE_UNITS)
    total = number = 0
    while total < size_mb * 1_000_000:
        size = chance.randrange(body_bytes // 2, body_bytes * 3 // 2)
        at = chance.randrange(POOL_BYTES - size)
        total += store.add(TOPIC, number % QUEUES, pool[at : at + size]).size
        number += 1
    store.close(grown=True)
    return total / 1e6


def _table(found: dict[str, dict[str, list[float]]]) -> str:
    rows = [
        [name, *(spread(values[kind]) for kind in KINDS), ratio(values["python"], values["java"])]
        for name, values in found.items()
    ]
    return markdown(["read", "from ours", "from Java's", "ours/java"], rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mb", type=int, default=1000, help="of log in each store")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body, about")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2, help="of Spark")
    parser.add_argument("--folder", default=os.environ.get("TMPDIR"), help="where stores are made")
    parser.add_argument("--json", help="keep the raw figures in this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
