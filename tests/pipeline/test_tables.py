"""Tables that are kept from run to run: a run that dies loses no row, and writes what has changed."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.jobs import tables
from rmqha.pipeline.jobs.tables import kept_rows, named_paths, source_paths, write_parts
from rmqha.pipeline.lake.files import WORK, HadoopFiles, LocalFiles
from tests.pipeline.test_export_crash import PowerCut

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore")
SEGMENTS = 6
NAME = "entries"


def rows_of(spark: SparkSession, night: int, segments: int = SEGMENTS) -> DataFrame:
    """Three rows of each segment, in tasks that share them; those of the last one say which night."""
    told = f"IF(id % {segments} = {segments - 1}, {night}L, 0L) AS night"
    rows = spark.range(0, 3 * segments, 1, 4)
    return rows.selectExpr(
        "'n0' AS replica", f"concat('s', id % {segments}) AS segment", "id", told
    )


def kept(spark: SparkSession, out: Path) -> Counter[tuple[str, int, int]]:
    rows = spark.read.parquet(str(out / NAME)).select("segment", "id", "night").collect()
    return Counter(tuple(row) for row in rows)


def of(spark: SparkSession, night: int) -> Counter[tuple[str, int, int]]:
    rows = rows_of(spark, night).select("segment", "id", "night").collect()
    return Counter(tuple(row) for row in rows)


def write(spark: SparkSession, out: Path, night: int) -> None:
    write_parts(rows_of(spark, night), str(out), NAME, "replica", "segment")


def write_as_before(spark: SparkSession, out: Path, night: int) -> None:
    """As version 0.1.0 did at first: Spark's names, and a file of each task."""
    writer = rows_of(spark, night).write.mode("overwrite").partitionBy("replica", "segment")
    writer.parquet(str(out / NAME))


def files_of(out: Path) -> dict[str, int]:
    return {str(one.relative_to(out)): one.stat().st_ino for one in out.rglob("*.parquet")}


@pytest.mark.spark
def test_table_when_written_again_then_only_the_partitions_that_changed_are_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What nobody else has any more is not touched each night; other partitions stay."""
    write(spark, tmp_path, 1)
    before = files_of(tmp_path)
    assert len(before) == SEGMENTS
    changed = rows_of(spark, 2).where("segment <> 's0'").orderBy("night", "id")
    write_parts(changed, str(tmp_path), NAME, "replica", "segment")
    after = files_of(tmp_path)
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {
        f"{NAME}/replica=n0/segment=s{SEGMENTS - 1}/{tables.FILE}"
    }
    assert kept(spark, tmp_path) == of(spark, 2)
    assert [one.name for one in (tmp_path / WORK).iterdir()] == [f"{NAME}.lock"]


@pytest.mark.spark
@pytest.mark.parametrize("is_of_before", [False, True])
def test_power_when_cut_while_a_table_is_published_then_no_row_is_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_of_before: bool
) -> None:
    """Wherever it is cut each partition is the old or the new one; those that Spark named may be there
    twice until the next run."""
    first = tmp_path / "first"
    (write_as_before if is_of_before else write)(spark, first, 1)
    old, new = of(spark, 1), of(spark, 2)
    changes = Counter[str]()

    def until(change: str, number: int) -> None:
        done = getattr(LocalFiles, change)

        def cut(files: LocalFiles, *paths: str) -> None:
            if changes[change] == number:
                raise PowerCut
            changes[change] += 1
            done(files, *paths)

        changes.clear()
        monkeypatch.setattr(LocalFiles, change, cut)

    for change, number in (("replace", 0), ("replace", 1), ("delete", 0), ("delete", 3)):
        if is_of_before or (change, number) == ("replace", 0):
            out = tmp_path / f"{change}{number}"
            shutil.copytree(first, out)
            with monkeypatch.context():
                until(change, number)
                with pytest.raises(PowerCut):
                    write(spark, out, 2)
            monkeypatch.undo()
            found = kept(spark, out)
            assert all(found[one] or found[(*one[:2], 2)] for one in old)
            known = kept_rows(rows_of(spark, 2), str(out), NAME)
            assert known is not None
            told = Counter(tuple(row) for row in known.select("segment", "id", "night").collect())
            assert {one[:2] for one in told} == {one[:2] for one in new}
            assert set(told.values()) == {1}, "a row comes twice"
            write(spark, out, 2)
            assert kept(spark, out) == new


@pytest.mark.spark
def test_table_when_only_spark_can_write_there_then_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables go wherever Spark can write: by Hadoop's interface, on this machine's disk."""
    hadoop = HadoopFiles(spark._jvm, spark._jsc.hadoopConfiguration(), f"file:{tmp_path}/t[1]")
    monkeypatch.setattr(tables, "open_lake", lambda *_: hadoop)
    out = tmp_path / "t[1]"
    before: dict[str, int] = {}
    for night in (1, 2):
        write(spark, out, night)
        after = files_of(out)
        assert len(after) == SEGMENTS
        if before:
            assert sum(after[name] != before[name] for name in after) == 1
        before = after
    known = kept_rows(rows_of(spark, 2), "", NAME)
    assert known is not None
    assert known.count() == 3 * SEGMENTS


@pytest.mark.spark
def test_table_when_it_gets_no_row_then_it_is_there_all_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Whoever reads it with its columns finds nothing in it, and no error."""
    rows = rows_of(spark, 1)
    assert kept_rows(rows, str(tmp_path), NAME) is None
    write_parts(rows.where("false"), str(tmp_path), NAME, "replica", "segment")
    known = kept_rows(rows, str(tmp_path), NAME)
    assert known is not None
    assert known.count() == 0


def test_stores_when_a_directory_has_an_equals_sign_then_the_source_is_told_its_path(
    tmp_path: Path,
) -> None:
    """What stands before the sign would be taken for the name."""
    for name in ("shard=1", "~b", "c"):
        (tmp_path / name).mkdir()
    named = named_paths([f"{tmp_path}/shard=1", f"{tmp_path}/~b", f"x={tmp_path}/c"])
    assert named == [
        ("shard=1", f"{tmp_path}/shard=1"),
        ("~b", f"{tmp_path}/~b"),
        ("x", f"{tmp_path}/c"),
    ]
    told = f"{tmp_path}/shard=1,{tmp_path}/~b,x={tmp_path}/c"
    assert source_paths(named) == told
    with pytest.raises(ConfigInvalid, match="comma"):
        named_paths([os.path.join(tmp_path, "a,b")])
