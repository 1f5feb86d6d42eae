"""What a person sees who waits for a job: how far it is, of a real session, and nothing of it in a file."""

from __future__ import annotations

import io
import re
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from rmqha.pipeline.commitlog.store_folder import open_replica
from rmqha.pipeline.spark import progress
from rmqha.pipeline.spark.progress import Tasks, log_bytes, running, shown
from tests.pipeline.stores import messages, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
TASKS = 6


def test_share_when_tasks_are_done_then_so_much() -> None:
    """Nothing runs before the job and between its stages."""
    assert Tasks().of(700) == 0
    assert [Tasks(7, done).of(700) for done in (0, 3, 7)] == [0, 300, 700]


async def test_bytes_when_the_last_file_was_never_filled_then_not_counted(tmp_path: Path) -> None:
    """A broker makes its files whole, of zeros that are on no disk."""
    records = await written(tmp_path / "store", messages(40))
    used = sum(one.size for one in records)
    last = max((tmp_path / "store" / "commitlog").iterdir())
    with last.open("ab") as file:
        file.truncate(1 << 30)
    assert used <= log_bytes([open_replica(str(tmp_path / "store"))]) < 1 << 24


@pytest.mark.parametrize("unit", [None, "ranges"])
def test_bar_when_a_job_runs_then_it_moves(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: str | None
) -> None:
    """Tasks wait for a file each, so the tracker is seen with some done and some not."""
    gates = tmp_path / "gates"
    gates.mkdir()
    seen: list[Tasks] = []
    two_done = Event()
    real = progress.running

    def noted(tracker: object) -> Tasks:
        found = real(tracker)
        seen.append(found)
        if found.done >= 2:
            two_done.set()
        # Tasks go on when it was seen that those before them are done.
        for number in range(2 + found.done):
            (gates / str(number)).touch()
        if two_done.is_set():
            for number in range(TASKS):
                (gates / str(number)).touch()
        return found

    monkeypatch.setattr(progress, "running", noted)
    monkeypatch.setattr(progress, "POLL_S", 0.02)
    folder = str(gates)

    def wait(batches: object) -> object:
        import os
        import time

        for batch in batches:  # type: ignore[attr-defined]
            number = batch.column(0)[0].as_py()
            while not os.path.exists(os.path.join(folder, str(number))):
                time.sleep(0.01)
            yield batch

    # A notebook's: it ended long ago, and nobody watched it.
    before = progress.row_count(spark)
    before.add(5_000)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=140)
    with shown(spark, "export", 6_000_000, console, unit=unit):
        work = progress.row_count(spark).of(wait)  # type: ignore[arg-type]
        assert spark.range(0, TASKS, 1, TASKS).mapInArrow(work, "id bigint").count() == TASKS
    assert any(one.all == TASKS and 0 < one.done < TASKS for one in seen)
    text = out.getvalue()
    assert "export" in text
    assert "/6.0 MB" in text
    assert "left" in text
    # By the job's own count, or by what Spark says that its stages read.
    assert re.search(rf"\W[2-{TASKS}] {unit or 'rows'}", text)
    assert before.value == 5_000
    assert not progress._shown
    assert running(spark.sparkContext.statusTracker()) == Tasks()


def test_line_when_nobody_watches_then_one(spark: SparkSession) -> None:
    """In a log file a bar would be thousands of lines."""
    out = io.StringIO()
    with shown(spark, "export", 12_345_678, Console(file=out)):
        spark.range(5).count()
    assert out.getvalue() == "export: 12.3 MB to read\n"
