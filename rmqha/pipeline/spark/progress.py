"""How far a Spark job is, for the person who waits: a bar in a terminal, one line anywhere else.

Spark tells of tasks; of a log's bytes as many are told to be done as of its tasks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from rmqha.pipeline.commitlog.elsewhere import is_elsewhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqha.pipeline.commitlog.store_folder import StoreFolder

POLL_S = 0.2
_BLOCK = 512


class Tasks(Struct, frozen=True):
    """Of the stages that run now: how many tasks they have, and how many are done."""

    all: int = 0
    done: int = 0

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
    known = [Tasks(one.numTasks, one.numCompletedTasks) for one in infos if one is not None]
    return max(known, key=lambda one: one.all, default=Tasks())


@contextmanager
def shown(
    spark: SparkSession, title: str, total: int, console: Console | None = None
) -> Iterator[None]:
    """Show how far the jobs of the block are.

    Args:
        title: of the job.
        total: bytes that it reads.
        console: where; standard error when it is not given.
    """
    console = Console(file=sys.stderr) if console is None else console
    tracker = _tracker(spark)
    if not console.is_terminal or tracker is None:
        console.print(f"{title}: {total / 1e6:.1f} MB to read", highlight=False, soft_wrap=True)
        yield
        return
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        console=console, transient=True,
    )  # fmt: skip
    ended = Event()
    with bar:
        watcher = Thread(target=_watch, args=(bar, tracker, title, total, ended), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _watch(bar: Progress, tracker: Any, title: str, total: int, ended: Event) -> None:
    task = bar.add_task(title, total=total)
    most = 0
    while not ended.wait(POLL_S):
        # Small jobs before and after the large one do not set it back.
        most = max(most, running(tracker).of(total))
        bar.update(task, completed=most)


def _tracker(spark: SparkSession) -> Any:
    """None on Spark Connect, which has none."""
    from pyspark.errors import PySparkException

    try:
        return spark.sparkContext.statusTracker()
    except (PySparkException, AttributeError, NotImplementedError):
        return None
