"""Tables that are kept from run to run: a run that dies loses no row, and writes what has changed."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.jobs import tables
from rmqha.pipeline.jobs.tables import kept_table, named_paths, source_paths, write_parts
from rmqha.pipeline.lake.files import WORK, HadoopFiles, LocalFiles, table_label
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


def kept_rows(rows: DataFrame, out: str) -> DataFrame | None:
    """As a run gets them, and adds to."""
    with kept_table(rows.sparkSession, out, NAME) as table:
        return table.rows(rows.schema)


def hidden(out: Path) -> list[str]:
    """What is below the folder of unfinished work."""
    return sorted(one.name for one in (out / WORK).iterdir())


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
    changed_part = f"{NAME}/replica=n0/segment=s{SEGMENTS - 1}/rows-0000000"
    assert len(after) == SEGMENTS
    for gone, number in ((before.keys() - after.keys(), 1), (after.keys() - before.keys(), 2)):
        (name,) = gone
        assert name.startswith(f"{changed_part}{number}-")
    assert all(after[name] == before[name] for name in before.keys() & after.keys())
    assert kept(spark, tmp_path) == of(spark, 2)
    assert hidden(tmp_path) == [f"{table_label(NAME)}.lock"]
    assert (tmp_path / NAME / "_SUCCESS").exists()


@pytest.mark.spark
@pytest.mark.parametrize("is_of_before", [False, True])
def test_power_when_cut_while_a_table_is_published_then_no_row_is_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_of_before: bool
) -> None:
    """Wherever it is cut each partition is the old or the new one; one may be there twice until the next
    run, which takes the new one."""
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
        if is_of_before or number == 0:
            out = tmp_path / f"{change}{number}"
            shutil.copytree(first, out)
            with monkeypatch.context():
                until(change, number)
                with pytest.raises(PowerCut):
                    write(spark, out, 2)
            monkeypatch.undo()
            found = kept(spark, out)
            assert all(found[one] or found[(*one[:2], 2)] for one in old)
            assert is_of_before or change == "replace" or max(kept(spark, out).values()) == 1
            known = kept_rows(rows_of(spark, 2), str(out))
            assert known is not None
            told = Counter(tuple(row) for row in known.select("segment", "id", "night").collect())
            assert {one[:2] for one in told} == {one[:2] for one in new}
            assert set(told.values()) == {1}, "a row comes twice"
            assert is_of_before or told == (new if change == "delete" else old)
            write(spark, out, 2)
            assert kept(spark, out) == new
            left = [one.name for one in out.rglob("*") if WORK not in one.parts]
            assert not any("part-" in name for name in left), "Spark's, or Hadoop's checksums"
            assert sum(name.endswith(".parquet") for name in left) == SEGMENTS


@pytest.mark.spark
def test_table_when_a_partition_is_replaced_then_the_new_one_is_on_the_disk_before_the_old_is_gone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system may keep the deletion alone when power is cut."""
    write(spark, tmp_path, 1)
    calls: list[str] = []

    def noting(name: str) -> None:
        done = getattr(LocalFiles, name)

        def noted(files: LocalFiles, *paths: str) -> None:
            calls.append(name)
            done(files, *paths)

        monkeypatch.setattr(LocalFiles, name, noted)

    for name in ("replace", "delete", "settle"):
        noting(name)
    write(spark, tmp_path, 2)
    at = calls.index("replace")
    assert calls[at:] == ["replace", "settle", "delete", "settle"]


@pytest.mark.spark
def test_reader_when_a_partition_it_has_listed_has_grown_then_it_fails_and_does_not_miss_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark reads of a file what began within the length that it had: row groups further on were in no
    task, and of a file that had grown much there was no row at all."""

    def write_rows(count: int) -> None:
        names = ("'n0' AS replica", "'s0' AS segment", "id", "sha2(string(id), 512) AS text")
        rows = spark.range(0, count, 1, 4).selectExpr(*names)
        write_parts(rows, str(tmp_path), NAME, "replica", "segment")

    write_rows(100)
    listed = spark.read.parquet(str(tmp_path / NAME)).select("id", "text")
    write_rows(400)
    with pytest.raises(Exception, match="FILE_NOT_EXIST"):
        listed.collect()
    assert spark.read.parquet(str(tmp_path / NAME)).count() == 400


@pytest.mark.spark
def test_runs_when_they_add_to_one_table_then_the_second_one_waits_and_reads_what_the_first_wrote(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Both read, then both wrote: what the first had found was lost, and may have been nowhere else."""
    first, second = (rows_of(spark, 1).where(f"id % 3 = {number}") for number in (0, 1))
    done: list[str] = []

    def add() -> None:
        try:
            with kept_table(spark, str(tmp_path), NAME) as table:
                known = table.rows(second.schema)
                assert known is not None
                table.write(known.unionByName(second), "replica", "segment")
            done.append("added")
        except BaseException as error:  # noqa: BLE001 - told below
            done.append(repr(error))

    other = Thread(target=add)
    with kept_table(spark, str(tmp_path), NAME) as table:
        assert table.rows(first.schema) is None
        other.start()
        other.join(1)
        assert done == []
        table.write(first, "replica", "segment")
    other.join(60)
    assert done == ["added"]
    assert {row.id for row in spark.read.parquet(str(tmp_path / NAME)).collect()} == {
        number for number in range(3 * SEGMENTS) if number % 3 < 2
    }


@pytest.mark.spark
def test_table_when_spark_fails_then_nothing_is_left_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """And the lock is free."""
    from pyspark.sql import functions as f

    rows = rows_of(spark, 1).withColumn("id", f.expr("IF(id > 7, raise_error('no rows'), id)"))
    # With it Spark makes its folder only when all rows are there.
    adaptive = "spark.sql.adaptive.enabled"
    spark.conf.set(adaptive, value=False)
    try:
        with pytest.raises(Exception, match="no rows"):
            write_parts(rows, str(tmp_path), NAME, "replica", "segment")
    finally:
        spark.conf.unset(adaptive)
    assert hidden(tmp_path) == [f"{table_label(NAME)}.lock"]
    assert not (tmp_path / NAME).exists()
    write(spark, tmp_path, 1)


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
            assert len(after.keys() - before.keys()) == 1
            assert len(hidden(out)) == 0
        before = after
    known = kept_rows(rows_of(spark, 2), "")
    assert known is not None
    assert known.count() == 3 * SEGMENTS


@pytest.mark.spark
def test_table_when_it_gets_no_row_then_it_is_there_all_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Whoever reads it with its columns finds nothing in it, and no error."""
    rows = rows_of(spark, 1)
    assert kept_rows(rows, str(tmp_path)) is None
    write_parts(rows.where("false"), str(tmp_path), NAME, "replica", "segment")
    known = kept_rows(rows, str(tmp_path))
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
