"""One Spark session of bench_pipeline: every kind of work on one store, a JSON line after each.

Processor time is that of this process and of everything below it: the JVM with its compiler and
collector threads, and the Python workers, also those that have ended. Memory is what a Python
worker has resident at most, pages of mapped files among it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from rmqha.pipeline import session
from rmqha.pipeline.batches import Wanted, read_part
from rmqha.pipeline.columns import SCHEMA
from rmqha.pipeline.jobs import audit, export
from rmqha.pipeline.replica import open_replica
from rmqha.pipeline.splits import plan
from tests.bench.pipeline_rivals import FOUR, ROWS, RowsSource, whole_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KIB = 1024
HEAP = "3g"
FOUR_NAMES = tuple(field.split()[0] for field in FOUR.split(", "))
ALL_NAMES = tuple(name for name in SCHEMA.names if name != "body")
TOPIC = "topic3"


def main() -> None:
    """Run the cases that are asked for."""
    asked = json.loads(sys.argv[1])
    root = Path(asked["store"])
    spark = session(
        "bench", master=f"local[{asked['cores']}]", settings={"spark.driver.memory": HEAP}
    )
    spark.dataSource.register(RowsSource)
    cases = works(spark, root, Path(asked["other"]), Path(asked["out"]))
    found: dict[str, list[dict[str, float]]] = {}
    for name in asked["cases"]:
        work, times = cases[name]
        rows = work()  # compiles and fills caches; not counted
        found[name] = []
        for _ in range(asked["rounds"]):
            forget_peaks()
            began, before = time.perf_counter(), tree_cpu_s()
            if work() != rows:
                raise SystemExit(f"{name}: other rows than before")
            spent = {"cpu_s": spent_s(before), "wall_s": time.perf_counter() - began}
            found[name].append({**spent, "rows": rows, "times": times, "mb": peak_mb()})
        print(json.dumps(found), flush=True)
    spark.stop()


def works(
    spark: SparkSession, root: Path, other: Path, out: Path
) -> dict[str, tuple[Callable[[], int], int]]:
    """Every kind of work, and how many times it has the log before it."""

    def load(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("rocketmq-commitlog").options(**options)
        return (reader.schema(schema) if schema else reader).load(str(root))

    def exported() -> int:
        shutil.rmtree(out, ignore_errors=True)
        return export.run(spark, [str(root)], str(out)).rows

    def audited() -> int:
        done = audit.run(spark, [f"a={root}", f"b={other}"])
        if done.ranges_different:
            raise SystemExit("equal replicas differ")
        return done.ranges_compared

    return {
        "all columns but the body": (lambda: sunk(load()), 1),
        "four columns": (lambda: sunk(load(FOUR)), 1),
        "one topic of ten": (lambda: sunk(load(FOUR, topic=TOPIC)), 1),
        "one topic of ten, without queues": (
            lambda: sunk(load(FOUR, topic=TOPIC, useConsumeQueues="false")), 1,
        ),
        "audit of two replicas": (audited, 2),
        "export to Parquet": (exported, 1),
        "four columns, rows yielded": (
            lambda: sunk(spark.read.format(ROWS).load(str(root))), 1,
        ),
        "four columns, binaryFile": (lambda: sunk(whole_files(spark, str(root))), 1),
        "four columns, no Spark": (lambda: plain(root, FOUR_NAMES), 1),
        "all columns, no Spark": (lambda: plain(root, ALL_NAMES), 1),
    }  # fmt: skip


def sunk(rows: DataFrame) -> int:
    """Every row reaches Spark, and a writer that drops it."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    rows.observe(seen, f.count(f.lit(1)).alias("rows")).write.format("noop").mode(
        "overwrite"
    ).save()
    return int(seen.get["rows"])


def plain(root: Path, names: tuple[str, ...]) -> int:
    """The same batches without Spark, in this process."""
    wanted = Wanted(names)
    parts = plan(open_replica(str(root)))
    return sum(batch.num_rows for part in parts for batch in read_part(part, wanted))


def tree_cpu_s() -> dict[int, float]:
    """Processor seconds of this process and of each below, with those of children waited for."""
    found = {}
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[process.pid] = (
                times.user + times.system + times.children_user + times.children_system
            )
    return found


def spent_s(before: dict[int, float]) -> float:
    """Processor seconds since ``before``.

    Spark's daemons do not wait for their workers. One that has gone since was idle for a minute
    before it ended, so what it had used before must not be taken off.
    """
    return sum(now - before.get(pid, 0.0) for pid, now in tree_cpu_s().items())


def workers() -> list[Path]:
    """Where the kernel tells of each Python worker."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "python" in process.name():
                found.append(Path(f"/proc/{process.pid}"))
    return found


def forget_peaks() -> None:
    """Have the kernel count the most resident memory anew (proc(5), clear_refs)."""
    for worker in workers():
        with suppress(OSError):
            (worker / "clear_refs").write_text("5")


def peak_mb() -> float:
    """The most that any worker had resident since ``forget_peaks``; 0 without workers."""
    found = [0.0]
    for worker in workers():
        with suppress(OSError):
            lines = (worker / "status").read_text().splitlines()
            found += [int(line.split()[1]) * KIB for line in lines if line.startswith("VmHWM:")]
    return max(found) / 1e6


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[2]))
    main()
