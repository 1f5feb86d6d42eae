"""Times in the files of a lake: the same for every reader, whoever wrote the file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING

import duckdb
import pyarrow.parquet as pq
import pytest

from rmqha.pipeline.jobs import export
from rmqha.pipeline.spark.times import AS_MICROS, as_micros
from tests.pipeline.stores import identify, messages, written
from tests.pipeline.test_export import drop_files
from tests.pipeline.test_reading import FILE_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
OLD_MS = (-62_135_596_800_000, -12_219_292_800_001, -2_208_988_800_001, 253_402_300_800_000)
"""Before the calendars of old, before time zones, and behind Python's last year."""
THEIRS = {
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.session.timeZone": "Asia/Tokyo",
}
"""What a session may have that somebody else made, and ``register`` was called for."""


async def test_times_when_an_export_merges_files_then_as_workers_write_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark wrote INT96, which DuckDB takes for local times and that has no statistics."""
    made = messages(90)
    for place, ms in enumerate(OLD_MS):
        made[place] = made[place]._replace(born_timestamp=ms)
    records = await written(tmp_path / "store", made)
    store, lake = str(identify(tmp_path / "store", "broker-a")), tmp_path / "lake"
    before = {name: spark.conf.get(name) for name in THEIRS}
    try:
        for name, value in THEIRS.items():
            spark.conf.set(name, value)
        export.run(spark, [store], str(lake), cell_bytes=4 * FILE_BYTES)
        drop_files(tmp_path / "store", 1)
        (done,) = export.run(spark, [store], str(lake), cell_bytes=4 * FILE_BYTES).sets
        assert done.kept > 0, "nothing was merged"
        assert {name: spark.conf.get(name) for name in THEIRS} == THEIRS
    finally:
        for name, text in before.items():
            spark.conf.set(name, text)
    paths = [str(one) for one in lake.glob("topic=*/day=*/*.parquet")]
    for path in paths:
        file = pq.ParquetFile(path)
        for name in ("storeTimestamp", "bornTimestamp"):
            at = file.schema.names.index(name)
            assert file.schema.column(at).physical_type == "INT64"
            assert file.schema_arrow.field(name).type.tz == "UTC"
            groups = range(file.num_row_groups)
            assert all(file.metadata.row_group(n).column(at).is_stats_set for n in groups)
    duckdb.sql("SET TimeZone = 'America/New_York'")
    names = "physicalOffset, epoch_ms(storeTimestamp), epoch_ms(bornTimestamp)"
    found = duckdb.sql(f"SELECT {names} FROM read_parquet({paths!r})").fetchall()
    assert Counter(found) == Counter(
        (one.physical_offset, one.store_timestamp, one.born_timestamp) for one in records
    )


def test_session_when_it_is_ours_then_it_writes_such_times_for_good(spark: SparkSession) -> None:
    """Exports of several threads need not wait for each other."""
    assert {name: spark.conf.get(name) for name in AS_MICROS} == AS_MICROS
    with as_micros(spark), as_micros(spark):
        pass


def test_session_when_it_is_somebody_elses_then_its_settings_come_back_and_no_other_one_waits(
    spark: SparkSession,
) -> None:
    """Also when a write fails in it; a block within a block, as two of its threads that follow each other."""
    theirs, another = spark.newSession(), spark.newSession()
    for session in (theirs, another):
        for name, value in THEIRS.items():
            session.conf.set(name, value)

    def settings(of: SparkSession) -> dict[str, str | None]:
        return {name: of.conf.get(name) for name in AS_MICROS}

    before = settings(theirs)
    for _ in range(2):
        done: list[bool] = []
        with pytest.raises(ValueError, match="no disk"):
            _fail(theirs, [another, spark], done)
        assert settings(theirs) == settings(another) == before


def _fail(theirs: SparkSession, others: list[SparkSession], done: list[bool]) -> None:
    with as_micros(theirs), as_micros(theirs):
        assert {name: theirs.conf.get(name) for name in AS_MICROS} == AS_MICROS
        for one in (*others, theirs):
            Thread(target=_written, args=(one, done), daemon=True).start()
        until = monotonic() + 10
        while len(done) < len(others) and monotonic() < until:
            sleep(0.01)
        sleep(0.1)
        assert len(done) == len(others), "its own threads write one after the other"
        raise ValueError("no disk")


def _written(spark: SparkSession, done: list[bool]) -> None:
    with as_micros(spark):
        done.append(True)
