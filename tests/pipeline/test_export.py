"""Commit logs to a lake: every message, again without a change, damage set apart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from rmqha.cli.pipeline import main
from rmqha.pipeline.jobs import export
from tests.pipeline.stores import TOPICS, messages, written
from tests.pipeline.test_reading import FILE_BYTES, flip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


async def test_export_when_run_twice_then_the_lake_has_every_message_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By topic and day, bodies and properties included."""
    records = await written(tmp_path / "store", messages(90))
    out = tmp_path / "lake"
    for _ in range(2):
        done = CliRunner().invoke(main, ["export", str(tmp_path / "store"), "-o", str(out)])
        assert done.exit_code == 0, done.output
    assert f"{len(records)} messages, 0 damaged" in done.output
    found = spark.read.parquet(str(out)).collect()
    assert {(row.topic, row.queueId, row.queueOffset): bytes(row.body) for row in found} == {
        (one.topic, one.queue_id, one.queue_offset): one.body for one in records
    }
    assert len(found) == len(records)
    assert f"{len(records)} messages" in (out / export.REPORT).read_text()


async def test_export_when_a_record_is_damaged_then_it_is_set_apart(
    spark: SparkSession, tmp_path: Path
) -> None:
    """And ``--strict`` makes it the exit code."""
    records = await written(tmp_path / "store", messages(60))
    hurt = next(r for r in records[20:] if r.physical_offset % FILE_BYTES)
    flip(tmp_path / "store", hurt.physical_offset + 5)
    out = str(tmp_path / "lake")
    arguments = ["export", str(tmp_path / "store"), "-o", out, "--no-bodies", "-t", TOPICS[0]]
    done = CliRunner().invoke(main, [*arguments, "--strict"])
    assert done.exit_code == 1, done.output
    wanted = [r for r in records if r.topic == TOPICS[0] and r is not hurt]
    rows = spark.read.parquet(out)
    assert rows.count() == len(wanted)
    assert "body" not in rows.columns
    (gap,) = spark.read.parquet(f"{out}/{export.DAMAGE}").collect()
    assert (gap.physicalOffset, gap.size) == (hurt.physical_offset, hurt.size)


def test_export_when_the_path_is_no_store_then_said(tmp_path: Path) -> None:
    """Before Spark is started."""
    done = CliRunner().invoke(main, ["export", str(tmp_path), "-o", str(tmp_path / "lake")])
    assert done.exit_code == 2
    assert "commitlog" in done.output
