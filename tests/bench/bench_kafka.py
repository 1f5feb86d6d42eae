"""How does Spark read the same messages from RocketMQ by this source, and from Kafka by Spark's own?

Question: rows a second, rows a CPU-second of the reading (drivers, JVM and Python workers; no
broker), and how long a plan takes, for four columns and for bodies, of one topic with four queues.

Recipe: ``bin/bench kafka --mb 500 --rounds 4``. Our broker stands on a store that was written for it,
and Spark copies its bodies queue by queue into the partitions of a real Kafka. Both brokers run all
the time and take turns in every round. Everything is read once before it is timed. Kafka's broker and
Spark's connector come from Maven Central; the connector is the newest that there is.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rmqha.pipeline import session
from rmqha.testing.real import maven
from rmqha.testing.real.processes import allocate_ports, free_ports, port_is_open, wait_until
from tests.bench import bench_live
from tests.bench.ending import end_children_when_terminated
from tests.bench.pipeline_rivals import FOUR
from tests.bench.pipeline_side import HEAP, sunk, tree_cpu_s
from tests.bench.tables import machine, markdown, ratio, spread, write_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BROKER = ("org.apache.kafka", "kafka_2.13", "3.9.1")
CONNECTOR = ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0")
NEEDED = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
"""Of the connector's class path; Spark has the rest."""
KINDS = ("ours", "kafka")
FIGURES = ("rows a second", "rows a CPU-second", "ms to plan")
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAg"
START_TIMEOUT_S = 60.0
ROUND_MS = 1000


def main() -> None:
    """Fill both, run the rounds and print the table."""
    end_children_when_terminated()
    options = _options()
    jars = [
        jar
        for jar in maven.classpath_of("spark-kafka", CONNECTOR).split(os.pathsep)
        if Path(jar).name.startswith(NEEDED)
    ]
    found: dict[str, dict[str, list[float]]] = {}
    folder = Path(tempfile.mkdtemp(prefix="bench-kafka-", dir=options.folder))
    try:
        with ExitStack() as stack:
            ours = stack.enter_context(bench_live.side("python", folder, options))
            servers, pid = stack.enter_context(_kafka(folder / "kafka"))
            settings = {"spark.driver.memory": HEAP, "spark.jars": ",".join(jars)}
            spark = session("bench", master=f"local[{options.cores}]", settings=settings)
            stack.callback(spark.stop)
            works = _works(spark, ours.pair.servers, servers)
            _copy(works["ours"]["four columns and bodies"](), servers)
            _rounds(works, {*ours.pids, pid}, options.rounds, found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{machine()}; {options.mb} MB in bodies of about {options.body} bytes\n")
    rows = [
        [name, *(spread(values[kind]) for kind in KINDS), ratio(values["ours"], values["kafka"])]
        for name, values in found.items()
    ]
    print(markdown(["read", "ours", "Spark's Kafka source", "ours/Kafka's"], rows))
    if options.json:
        write_json(Path(options.json), {"machine": machine(), "figures": found})


def _works(
    spark: SparkSession, servers: str, kafka: str
) -> dict[str, dict[str, Callable[[], DataFrame]]]:
    def ours(schema: str) -> DataFrame:
        reader = spark.read.format("rocketmq").options(nameServer=servers, topic=bench_live.TOPIC)
        return reader.schema(schema).load()

    def theirs(*columns: str) -> DataFrame:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka)
        return reader.option("subscribe", bench_live.TOPIC).load().select(*columns)

    four = ("topic", "partition", "offset", "timestamp")
    return {
        "ours": {
            "four columns": partial(ours, FOUR),
            "four columns and bodies": partial(ours, f"{FOUR}, body binary"),
        },
        "kafka": {
            "four columns": partial(theirs, *four),
            "four columns and bodies": partial(theirs, *four, "value"),
        },
    }


def _copy(rows: DataFrame, servers: str) -> None:
    """A queue's messages into the partition of its number."""
    chosen = rows.selectExpr("topic", "queueId AS partition", "body AS value")
    chosen.write.format("kafka").option("kafka.bootstrap.servers", servers).save()


def _rounds(
    works: dict[str, dict[str, Callable[[], DataFrame]]],
    brokers: set[int],
    rounds: int,
    found: dict[str, dict[str, list[float]]],
) -> None:
    counts = {
        (k, n): sunk(make(), count=True) for k, some in works.items() for n, make in some.items()
    }
    if len(set(counts.values())) != 1:
        raise SystemExit(f"not the same messages by every way: {counts}")
    (rows,) = set(counts.values())
    for number in range(rounds):
        for name in works["ours"]:
            for kind in KINDS:
                figures = _timed(works[kind][name], brokers, rows)
                print(f"round {number + 1}: {kind}, {name}: {figures[0]:.0f} rows/s", flush=True)
                for row, value in zip(FIGURES, figures, strict=True):
                    found.setdefault(f"{name}: {row}", {}).setdefault(kind, []).append(value)


def _timed(make: Callable[[], DataFrame], brokers: set[int], rows: int) -> tuple[float, ...]:
    """The figures of ``FIGURES``."""
    began = time.perf_counter()
    make().rdd.getNumPartitions()
    planned_s = time.perf_counter() - began
    before, began = _reading_s(brokers), time.perf_counter()
    sunk(make(), count=False)
    wall_s = time.perf_counter() - began
    return rows / wall_s, rows / (_reading_s(brokers) - before), planned_s * ROUND_MS


def _reading_s(brokers: set[int]) -> float:
    return sum(spent for pid, spent in tree_cpu_s().items() if pid not in brokers)


@contextmanager
def _kafka(folder: Path) -> Iterator[tuple[str, int]]:
    """A Kafka broker that is its own controller: its address and process."""
    folder.mkdir()
    block = allocate_ports()
    port, other = block[:2]
    (folder / "server.properties").write_text(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={folder / 'logs'}\n"
        f"controller.quorum.voters=1@127.0.0.1:{other}\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{other}\n"
        f"num.partitions={bench_live.QUEUES}\noffsets.topic.replication.factor=1\n"
    )
    java = [maven.java(), "-Xmx1g", "-cp", maven.classpath_of("kafka", BROKER)]
    configured = str(folder / "server.properties")
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", configured],
        check=True, capture_output=True,
    )  # fmt: skip
    with (folder / "log").open("w") as log:
        child = subprocess.Popen([*java, "kafka.Kafka", configured], stdout=log, stderr=log)
    try:
        wait_until(partial(port_is_open, port), START_TIMEOUT_S, "Kafka's broker")
        yield f"127.0.0.1:{port}", child.pid
    finally:
        child.terminate()
        child.wait()
        free_ports(block)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mb", type=int, default=500, help="of log in our store")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body, about")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--cores", type=int, default=2, help="of Spark")
    parser.add_argument("--folder", default=os.environ.get("TMPDIR"), help="where stores are made")
    parser.add_argument("--json", help="keep the raw figures in this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
