"""Exports whose tasks die or are Hadoop's: each message is in the lake once all the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.jobs import export
from rmqha.pipeline.lake import stage as stage_module
from rmqha.pipeline.lake.files import HadoopFiles
from rmqha.pipeline.lake.layout import Place
from rmqha.pipeline.lake.stage import staged
from tests.pipeline.conftest import SMALL
from tests.pipeline.stores import TOPICS, identify, messages, written
from tests.pipeline.synthetic import SyntheticStore
from tests.pipeline.test_cells import LONG, rename
from tests.pipeline.test_export import of, places
from tests.pipeline.test_reading import FILE_BYTES, flip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
LOG_MB = 120
NUL_TOPIC = "or\0ers"
BODY_BYTES = 2048
PROCESS_TIMEOUT_S = 280
PROGRAM = """
import json, shutil, sys, threading, time
from contextlib import suppress
from pathlib import Path
import psutil
from rmqha.pipeline import session
from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.jobs import export
from rmqha.pipeline.lake import stage as stage_module

store, out, settings = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
# Three more attempts for each task.
spark = session("kills", master="local[2,4]", settings=settings)
tracker = spark.sparkContext.statusTracker()

def workers():
    found = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            # The daemon's children are the workers.
            if "pyspark.daemon" in one.cmdline() and "pyspark.daemon" in one.parent().cmdline():
                found.append(one)
    return found

def kill_who_writes(done):
    while not done.is_set():
        if any(one.stat().st_size for one in out.glob("_exports/*/new/**/part-*.parquet")):
            for one in workers():
                with suppress(psutil.Error):
                    one.kill()
            return
        time.sleep(0.001)

def failed():
    jobs = tracker.getJobIdsForGroup()
    stages = {stage for job in jobs for stage in tracker.getJobInfo(job).stageIds}
    infos = [tracker.getStageInfo(stage) for stage in stages]
    return sum(info.numFailedTasks for info in infos if info is not None)

rows, tries = 0, 0
while not failed() and tries < 20:
    tries += 1
    shutil.rmtree(out, ignore_errors=True)
    done = threading.Event()
    killer = threading.Thread(target=kill_who_writes, args=(done,))
    killer.start()
    rows = export.run(spark, [store], str(out), cell_bytes=64 << 20).rows
    done.set()
    killer.join()
print("done", json.dumps([rows, failed(), tries]))
spark.stop()
"""


def test_tasks_when_killed_while_they_write_then_run_again_and_nothing_is_lost_or_doubled(
    tmp_path: Path,
) -> None:
    """With kill -9, when a part of their files is there; Spark gives the cells to other workers."""
    store = SyntheticStore(tmp_path / "store", 1 << 26)
    expected = Counter[tuple[str, int, int]]()
    while sum(expected.values()) * BODY_BYTES < LOG_MB << 20:
        number = sum(expected.values())
        one = store.add(f"topic{number % 3}", number % 4, number.to_bytes(BODY_BYTES))
        expected[one.topic, one.queue_id, one.at] += 1
    store.close()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"c/b={tmp_path / 'store'}", str(tmp_path / "lake"), json.dumps(SMALL)],
        capture_output=True, text=True, timeout=PROCESS_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [one for one in done.stdout.splitlines() if one.startswith("done")]
    rows, failed, _ = json.loads(line.removeprefix("done"))
    assert failed > 0, "no task was killed in time"
    lake = ds.dataset(tmp_path / "lake", partitioning="hive", ignore_prefixes=["_"])
    found = lake.to_table(columns=["topic", "queueId", "physicalOffset"]).to_pylist()
    assert Counter(tuple(one.values()) for one in found) == expected
    assert rows == sum(expected.values())
    assert [one.name for one in (tmp_path / "lake" / "_exports").iterdir()] == ["b@c.lock"]


async def test_lake_when_only_spark_can_write_to_it_then_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where workers cannot open the lake's file system: rows, files, sums and damage are equal."""
    made = messages(90)
    made[7:40:8] = [one._replace(topic=LONG) for one in made[7:40:8]]
    records = await written(tmp_path / "store", made)
    hurt = next(r for r in records[50:] if r.physical_offset % FILE_BYTES)
    flip(tmp_path / "store", hurt.physical_offset + 5)
    odd = next(one for one in records if one.topic == TOPICS[0])
    rename(tmp_path / "store", odd, NUL_TOPIC)
    records = [one for one in records if one not in (hurt, odd) and one.topic != LONG]
    store = str(identify(tmp_path / "store", "broker-a"))
    by_workers = export.run(spark, [store], str(tmp_path / "ours"), cell_bytes=FILE_BYTES)
    hadoop = HadoopFiles(spark._jvm, spark._jsc.hadoopConfiguration(), f"file:{tmp_path}/spark[1]")
    monkeypatch.setattr(export, "open_lake", lambda *_: hadoop)
    for replaced in (0, len(records)):
        by_spark = export.run(spark, [store], "", cell_bytes=FILE_BYTES)
        assert by_spark.sets[0].days == by_workers.sets[0].days
        assert (by_spark.damaged, by_spark.sets[0].replaced) == (1, replaced)
        assert by_spark.refused == by_workers.refused
        assert by_spark.sets[0].refused == ((LONG, 5), (NUL_TOPIC, 1))
    for name in ("ours", "spark[1]"):
        assert places(spark, tmp_path / name) == of(records)
    names = [
        sorted(str(one.relative_to(tmp_path / name)) for one in (tmp_path / name).glob("topic=*/*/*.parquet"))
        for name in ("ours", "spark[1]")
    ]  # fmt: skip
    assert names[0] == names[1]
    chosen = export.run(spark, [store], "", topics=TOPICS[:1], cell_bytes=FILE_BYTES)
    assert chosen.rows == sum(one.topic == TOPICS[0] for one in records)
    assert chosen.refused == []


async def test_log_when_it_expires_while_only_spark_can_write_then_nothing_is_published(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read twice, for damage and for rows: the lake would lose its rows of what went between."""
    records = await written(tmp_path / "store", messages(90))
    store = str(identify(tmp_path / "store", "broker-a"))
    lake = f"file:{tmp_path}/lake"
    hadoop = HadoopFiles(spark._jvm, spark._jsc.hadoopConfiguration(), lake)
    monkeypatch.setattr(export, "open_lake", lambda *_: hadoop)
    export.run(spark, [store], "", cell_bytes=FILE_BYTES)
    first = min((tmp_path / "store" / "commitlog").iterdir())
    by_spark = stage_module.write_by_spark

    def expiring(*asked: Any) -> Any:
        first.unlink()
        return by_spark(*asked)

    monkeypatch.setattr(stage_module, "write_by_spark", expiring)
    with pytest.raises(ConfigInvalid, match="expired"):
        export.run(spark, [store], "", cell_bytes=FILE_BYTES)
    assert places(spark, tmp_path / "lake") == of(records)
    monkeypatch.setattr(stage_module, "write_by_spark", by_spark)
    again = export.run(spark, [store], "", cell_bytes=FILE_BYTES)
    assert again.sets[0].kept == sum(one.physical_offset < FILE_BYTES for one in records)
    assert places(spark, tmp_path / "lake") == of(records)


def test_files_when_told_by_one_attempt_then_only_those_count(spark: SparkSession) -> None:
    """And two for one cell would mean that Spark has taken two attempts at a task: a stop."""
    from rmqha.base.errors import InvariantBroken
    from rmqha.pipeline.lake.cells import MANIFEST

    nothing = dict.fromkeys(MANIFEST.names)
    row = {**nothing, "topic": "t", "day": "2026-01-02", "cell": 0, "messages": 3, "bytes": 30}
    rows = [{**row, "path": "a"}, {**row, "cell": 64, "path": "b"}]
    gap = {**nothing, "replica": "r", "physicalOffset": 7, "size": 2, "_corrupt": "why"}
    schema = "topic string, day string, cell bigint, path string, messages bigint, bytes bigint, replica string, physicalOffset bigint, size int, _corrupt string"
    found = staged(spark.createDataFrame([*rows, gap], schema).collect(), "w")
    assert found.files == {
        Place("topic=t/day=2026-01-02", at): f"w/{name}" for at, name in ((0, "a"), (64, "b"))
    }
    assert found.sums(found.files) == {("t", "2026-01-02"): (6, 60)}
    assert found.damage == [("r", 7, 2, "why")]
    with pytest.raises(InvariantBroken):
        staged(spark.createDataFrame([rows[0], rows[0]], schema).collect(), "w")
