"""How far a Spark job is, for the person who waits: a bar in a terminal, one line anywhere else.

Spark tells of tasks; of a log's bytes as many are told to be done as of its tasks. Rows are those that
Spark's stages have read, or what a job's own tasks have counted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from rmqha.pipeline.commitlog.elsewhere import is_elsewhere
from rmqha.pipeline.spark.worker import RowCount

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqha.pipeline.commitlog.store_folder import StoreFolder

POLL_S = 0.2
_BLOCK = 512


class Tasks(Struct, frozen=True):
    """Of the largest stage that runs now: how many tasks it has, how many are done, and its number."""

    all: int = 0
    done: int = 0
    stage: int | None = None

    def of(self, total: int) -> int:
        """As much of something as tasks are done."""
        return total * self.done // self.all if self.all else 0


def stored_bytes(paths: Iterable[str]) -> int:
    """Bytes of files, without what was never written of a log's last one."""
    found = 0
    for path in paths:
        if os.path.exists(path):
            status = os.stat(path)
            found += min(status.st_size, status.st_blocks * _BLOCK)
    return found


def folder_bytes(folders: Iterable[str]) -> int:
    """Bytes of all files below some directories."""
    return stored_bytes(
        os.path.join(where, name)
        for folder in folders
        for where, _, names in os.walk(folder)
        for name in names
    )


def log_bytes(stores: Iterable[StoreFolder]) -> int:
    """Bytes of some stores' logs."""
    found = 0
    for store in stores:
        away = [one for one in store.files if is_elsewhere(one.path)]
        found += sum(one.size for one in away)
        found += stored_bytes(one.path for one in store.files if one not in away)
    return found


def running(tracker: Any) -> Tasks:
    """What Spark's status tracker says of the largest stage that runs: that one reads the log."""
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [
        Tasks(one.numTasks, one.numCompletedTasks, one.stageId) for one in infos if one is not None
    ]
    return max(known, key=lambda one: one.all, default=Tasks())


_shown: list[list[RowCount]] = []
"""The counts of the jobs that are shown, the innermost last; those of other jobs are nobody's."""


def row_count(spark: SparkSession) -> RowCount:
    """A count for a job's own tasks, which the bar shows if there is one."""
    from pyspark.errors import PySparkException

    try:
        made = RowCount(spark.sparkContext.accumulator(0))
    except (PySparkException, AttributeError, NotImplementedError):
        return RowCount(None)
    if _shown:
        _shown[-1].append(made)
    return made


def rows_read(spark: SparkSession, stage: int | None) -> int:
    """Rows that a stage has read so far, by the metrics of its tasks."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    if stage is None:
        return 0
    try:
        # Python is told of tasks alone; this is what Spark's own pages show.
        store: Any = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001
        return int(store.lastStageAttempt(stage).inputRecords())
    except Py4JError:
        # The stage is not known yet, or no more.
        return 0


@contextmanager
def shown(
    spark: SparkSession,
    title: str,
    total: int,
    console: Console | None = None,
    *,
    unit: str | None = "rows",
) -> Iterator[None]:
    """Show how far the jobs of the block are.

    Args:
        title: of the job.
        total: bytes that it reads.
        console: where; standard error when it is not given.
        unit: what its stages read; None when only its own counters tell.
    """
    console = Console(file=sys.stderr) if console is None else console
    tracker = _tracker(spark)
    if not console.is_terminal or tracker is None:
        console.print(f"{title}: {total / 1e6:.1f} MB to read", highlight=False, soft_wrap=True)
        yield
        return
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        TextColumn("{task.fields[rows]}"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        console=console, transient=True,
    )  # fmt: skip
    ended = Event()
    with bar, _counts() as counts:
        task = bar.add_task(title, total=total, rows="")
        watched = _Watched(spark, tracker, total, unit, counts)
        watcher = Thread(target=watched.watch, args=(bar, task, ended), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


@contextmanager
def _counts() -> Iterator[list[RowCount]]:
    """What is counted in the block, and nothing that was counted before it."""
    found: list[RowCount] = []
    _shown.append(found)
    try:
        yield found
    finally:
        _shown.pop()


class _Watched:
    """What is known of a job that runs; it never goes back, for small jobs follow the large one."""

    def __init__(
        self,
        spark: SparkSession,
        tracker: Any,
        total: int,
        unit: str | None,
        counts: Sequence[RowCount],
    ) -> None:
        self._spark = spark
        self._tracker = tracker
        self._total = total
        self._unit = unit
        self._counts = counts
        self._most = self._rows = 0

    def watch(self, bar: Progress, task: TaskID, ended: Event) -> None:
        """Look, now and then, until the job has ended."""
        while not ended.wait(POLL_S):
            now = running(self._tracker)
            self._most = max(self._most, now.of(self._total))
            self._rows = max(self._rows, sum(one.value for one in tuple(self._counts)))
            if self._unit is not None:
                self._rows = max(self._rows, rows_read(self._spark, now.stage))
            rows = f"{self._rows:,} {self._unit or 'rows'}" if self._rows else ""
            bar.update(task, completed=self._most, rows=rows)


def _tracker(spark: SparkSession) -> Any:
    """None on Spark Connect, which has none."""
    from pyspark.errors import PySparkException

    try:
        return spark.sparkContext.statusTracker()
    except (PySparkException, AttributeError, NotImplementedError):
        return None
