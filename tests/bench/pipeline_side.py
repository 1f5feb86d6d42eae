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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import duckdb
import psutil

from rmqha.pipeline import read, session
from rmqha.pipeline.commitlog.batches import Wanted, read_part
from rmqha.pipeline.commitlog.columns import SCHEMA
from rmqha.pipeline.commitlog.compare import log_end
from rmqha.pipeline.commitlog.splits import plan
from rmqha.pipeline.commitlog.store_folder import open_replica
from rmqha.pipeline.jobs import audit, export
from rmqha.pipeline.lake.cells import CellWork, write_cell
from rmqha.pipeline.lake.files import LocalFiles
from rmqha.pipeline.lake.layout import CELL_BYTES, SetName
from tests.bench.pipeline_rivals import FOUR, ROWS, RowsSource, whole_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KIB = 1024
HEAP = "3g"
FOUR_NAMES = tuple(field.split()[0] for field in FOUR.split(", "))
BODY_NAMES = (*FOUR_NAMES[:3], "body")
ALL_NAMES = tuple(name for name in SCHEMA.names if name != "body")
TOPIC = "topic3"

Work = Callable[[bool], int]
"""Runs once; whether it should count the rows, and how many there were."""


def main() -> None:
    """Run the cases that are asked for."""
    asked = json.loads(sys.argv[1])
    root = Path(asked["store"])
    spark = session(
        "bench", master=f"local[{asked['cores']}]", settings={"spark.driver.memory": HEAP}
    )
    spark.dataSource.register(RowsSource)
    cases = works(spark, root, Path(asked["other"]), Path(asked["out"]))
    names: list[str] = asked["cases"]
    found: dict[str, list[dict[str, float]]] = {}
    for group in [names] if asked["in_turn"] else [[name] for name in names]:
        timed(cases, group, asked, found)
    spark.stop()


def timed(
    cases: dict[str, tuple[Work, int]],
    names: list[str],
    asked: dict[str, Any],
    found: dict[str, list[dict[str, float]]],
) -> None:
    """Warm all of the group up, time it round by round, and see that it still reads the same.

    A line of JSON with everything found so far goes out after each round.
    """
    rows = {name: cases[name][0](True) for name in names}
    for name in names * (asked["warm_up"] - 1):
        cases[name][0](False)
    for _ in range(asked["rounds"]):
        for name in names:
            work, times = cases[name]
            forget_peaks()
            began, before = time.perf_counter(), tree_cpu_s()
            work(False)
            spent = {"cpu_s": spent_s(before), "wall_s": time.perf_counter() - began}
            found.setdefault(name, []).append(
                {**spent, "rows": rows[name], "times": times, "mb": peak_mb()}
            )
        print(json.dumps(found), flush=True)
    for name in names:
        if cases[name][0](True) != rows[name]:
            raise SystemExit(f"{name}: other rows than before")


def works(spark: SparkSession, root: Path, other: Path, out: Path) -> dict[str, tuple[Work, int]]:
    """Every kind of work, and how many times it has the log before it."""

    def load(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("rocketmq-commitlog").options(**options)
        return (reader.schema(schema) if schema else reader).load(str(root))

    def exported(_count: bool) -> int:
        shutil.rmtree(out, ignore_errors=True)
        return export.run(spark, [f"bench={root}"], str(out)).rows

    def exported_by_spark(_count: bool) -> int:
        shutil.rmtree(out, ignore_errors=True)
        with by_sparks_writer():
            return export.run(spark, [f"bench={root}"], str(out)).rows

    def audited(_count: bool) -> int:
        done = audit.run(spark, [f"a={root}", f"b={other}"])
        if done.ranges_different:
            raise SystemExit("equal replicas differ")
        return done.ranges_compared

    def scan(schema: str | None = None, **options: str) -> Work:
        return lambda count: sunk(load(schema, **options), count)

    def rows(count: bool) -> int:
        return sunk(spark.read.format(ROWS).load(str(root)), count)

    return {
        "all columns but the body": (scan(), 1),
        "four columns": (scan(FOUR), 1),
        "one topic of ten": (scan(FOUR, topic=TOPIC), 1),
        "one topic of ten, without queues": (scan(FOUR, topic=TOPIC, useConsumeQueues="false"), 1),
        "audit of two replicas": (audited, 2),
        "export to Parquet": (exported, 1),
        "export to Parquet, by Spark's writer": (exported_by_spark, 1),
        "export to Parquet, no Spark": (lambda _: cells_written(root, out), 1),
        "four columns, rows yielded": (rows, 1),
        "four columns, binaryFile": (lambda count: sunk(whole_files(spark, str(root)), count), 1),
        "four columns, no Spark": (lambda _: plain(root, FOUR_NAMES), 1),
        "all columns, no Spark": (lambda _: plain(root, ALL_NAMES), 1),
        "four columns, read": (lambda _: streamed(root, FOUR_NAMES), 1),
        "four columns with bodies, read": (lambda _: streamed(root, BODY_NAMES), 1),
        "four columns, read by DuckDB": (lambda _: queried(root, FOUR_NAMES), 1),
    }


def sunk(rows: DataFrame, count: bool) -> int:
    """Every row reaches Spark, and a writer that drops it; how many, when they are to be counted.

    Counting is work of Spark's on every row, so what is timed does without.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    if count:
        rows = rows.observe(seen, f.count(f.lit(1)).alias("rows"))
    rows.write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"]) if count else 0


def plain(root: Path, names: tuple[str, ...]) -> int:
    """The same batches without Spark, in this process."""
    wanted = Wanted(names)
    parts = plan(open_replica(str(root)))
    return sum(batch.num_rows for part in parts for batch in read_part(part, wanted))


@contextmanager
def by_sparks_writer() -> Iterator[None]:
    """Exports as they are into file systems that only Spark can open, and as all were before."""
    made = LocalFiles.__init__

    def init(files: LocalFiles, root: str) -> None:
        made(files, root)
        files.for_workers = None

    with patch.object(LocalFiles, "__init__", init):
        yield


def cells_written(root: Path, out: Path) -> int:
    """A lake's files, written by this process alone and not published."""
    shutil.rmtree(out, ignore_errors=True)
    replica = open_replica(str(root))
    name = SetName("", "bench")
    work = CellWork(replica, name, log_end(replica), CELL_BYTES, None, True, str(out))
    told = [write_cell(work, cell) for cell in work.cells]
    return sum(sum(filter(None, one.column("messages").to_pylist())) for one in told)


def streamed(root: Path, names: tuple[str, ...]) -> int:
    """By ``rmqha.pipeline.read``, and dropped."""
    return sum(batch.num_rows for batch in read(root, columns=names).to_reader())


def queried(root: Path, names: tuple[str, ...]) -> int:
    """The same in SQL that looks at each column."""
    log = read(root, columns=names)  # noqa: F841 - SQL names it
    each = ", ".join(f"max({name})" for name in names)
    ((count, *_),) = duckdb.sql(f"SELECT count(*), {each} FROM log").fetchall()
    return int(count)


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
