"""Controllers' stores as tables: damaged ones, and run after run (real ones: test_docs.py)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from rmqha.cli.pipeline import main
from rmqha.controller.raft import wal_layout as layout
from rmqha.pipeline.jobs.controller_history import entries, rows_of, states
from rmqha.pipeline.spark.paths import literal
from tests.pipeline.test_controller_log import (
    STORY,
    entry,
    frame,
    opening,
    state_at,
    story_frames,
    write_segment,
    write_snapshot,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["controller-history", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


def test_history_when_run_again_after_compaction_then_it_reaches_further_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Rows of a segment that is gone stay; the others are there once. The path is none of Spark's patterns."""
    store, out = tmp_path / "n0", tmp_path / "out[1]"
    whole = story_frames()
    write_segment(store, whole[:4])
    write_segment(store, [frame(5, opening()), frame(6, entry(4, 1, STORY[3]))], first_seq=5)
    run(store, "-o", out)
    first = store / f"{1:020d}.wal"
    first.unlink()
    write_snapshot(store, 3)
    told = run(store, "-o", out, "--at", 2, "--from", 2, "--to", 4)
    assert "n0 at 2: broker-a masterBrokerId = -" in told
    assert "n0: broker-a masterEpoch 0 -> 1" in told
    assert "n0: broker-a broker 2 - -> 127.0.0.1:20" in told
    assert "clusterName" not in told.split("n0: broker-a", 1)[1]
    rows = spark.read.parquet(literal(str(out / "entries")))
    found = rows.where("kind NOT IN ('Open', 'Snapshot')").orderBy("logIndex").collect()
    assert [(row.logIndex, row.kind) for row in found] == [
        (1, "Leader"), (2, "ApplyBrokerId"), (3, "ElectMaster"), (4, "ApplyBrokerId"),
    ]  # fmt: skip
    state = spark.read.parquet(literal(str(out / "state")))
    state = state.where("at = 2 AND key = 'broker 1'").collect()
    assert [row.value for row in state] == ["127.0.0.1:10"]
    assert "masterEpoch" in (out / "_report.html").read_text()


def test_entries_when_a_later_leader_cut_them_then_they_do_not_count(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What a lost leader wrote alone is shown as cut, and is no part of any state."""
    store, out = tmp_path / "n0", tmp_path / "out"
    lost = frame(6, entry(5, 1, STORY[4]), entry(6, 1, STORY[5]))
    write_segment(store, [*story_frames()[:5], lost, frame(7, entry(5, 2))])
    told = run(store, "-o", out, "--at", 5)
    assert "n0 at 5: broker-a syncStateSet = [1]" in told
    rows = spark.read.parquet(str(out / "entries")).where("status = 'cut'").orderBy("logIndex")
    assert [(row.logIndex, row.term, row.kind) for row in rows.collect()] == [
        (5, 1, "AlterSyncStateSet"), (6, 1, "ElectMaster"),
    ]  # fmt: skip


def test_stores_when_damaged_and_torn_then_told_and_the_good_one_answers(
    spark: SparkSession, tmp_path: Path
) -> None:
    """``--strict`` makes damage the exit code; a torn tail is none."""
    whole, out = story_frames(), tmp_path / "out"
    path = write_segment(tmp_path / "bad", whole)
    data = bytearray(path.read_bytes())
    data[sum(map(len, whole[:4])) + layout.ALIGNMENT] ^= 1
    path.write_bytes(data)
    write_segment(tmp_path / "good", [*whole, frame(8, entry(7))[: layout.ALIGNMENT + 3]])
    stores = (tmp_path / "bad", tmp_path / "good")
    told = run(*stores, "-o", out, "--at", 6, "--strict", "--from", 2, "--to", 6, code=1)
    assert "bad at 6: entry 4 is missing" in told
    assert "good: broker-a masterBrokerId - -> 2" in told
    assert "bad: broker-a" not in told  # at 2 it is known, at 6 it is not: that is no difference
    assert "good at 6: broker-a masterBrokerId = 2" in told
    assert "1 damaged places, 1 torn tails\n" in told
    (hurt,) = spark.read.parquet(str(out / "_corrupt")).where("replica = 'bad'").collect()
    assert hurt.position == sum(map(len, whole[:4]))
    (out / "_report.html").unlink()
    (out / "_report.html").mkdir()
    told = run(tmp_path / "good", "-o", out, "--strict", "--at", 9, code=2)
    assert "good at 9: the log ends at 6" in told
    assert "the state at 9 is not known" in told
    assert told.splitlines()[-1].endswith("_report.html'"), (
        "a page that cannot be written hides none"
    )


def test_arguments_when_wrong_then_said_before_spark_starts(tmp_path: Path) -> None:
    """No store, two of one name, half a pair of indexes."""
    assert "no such directory" in run(tmp_path / "none", "-o", tmp_path, code=2)
    write_segment(tmp_path / "a" / "store", story_frames())
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    same = [tmp_path / "a" / "store", tmp_path / "b" / "store"]
    assert "two stores are called store" in run(*same, "-o", tmp_path, code=2)
    assert "go together" in run(same[0], "-o", tmp_path, "--from", 1, code=2)


def test_entry_when_it_was_cut_and_then_compacted_between_two_runs_then_it_is_no_election(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It was only logged on the first night; the segment that says so is gone on the second."""
    store, out = tmp_path / "n0", tmp_path / "out"
    first = write_segment(store, story_frames())
    run(store, "-o", out)
    write_segment(store, [frame(8, opening(), entry(6, 2, None), entry(7, 2, None))], 8)
    first.unlink()
    write_snapshot(store, 7, state_at(5))
    run(store, "-o", out)
    rows = spark.read.parquet(str(out / "entries")).where("logIndex IN (5, 6)")
    found = rows.orderBy("logIndex", "term").select("logIndex", "term", "status").collect()
    assert [tuple(row) for row in found] == [
        (5, 1, "committed"),
        (6, 1, "cut"),
        (6, 2, "committed"),
    ]


def test_table_when_the_store_is_a_new_one_of_that_name_then_what_it_has_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A controller's disk was replaced: the old one's last segments say nothing of it."""
    store, out = tmp_path / "n0", tmp_path / "out"
    write_segment(store, story_frames())
    write_segment(store, [frame(8, opening(), entry(2, 3, None))], 8)
    run(store, "-o", out)
    shutil.rmtree(store)
    write_segment(store, story_frames())
    run(store, "-o", out)
    rows = spark.read.parquet(str(out / "entries")).where("term < 3 AND logIndex > 0").collect()
    assert {row.status for row in rows} == {"logged"}


def test_entries_when_a_snapshot_was_installed_then_what_it_holds_is_not_called_cut(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of another node, which was ahead: a state of before was known, and was no more. Entry 5 of the
    snapshot is of another term than this log's."""
    store = tmp_path / "n0"
    reset = frame(8, (layout.RESET, 5, 2), entry(6, 2))
    write_segment(store, [*story_frames(), reset])
    write_snapshot(store, 3)
    write_snapshot(store, 5, state_at(2))
    files = spark.createDataFrame([("n0", str(store))], "replica string, path string")
    found = entries(rows_of(files)).cache()
    told = {
        (row.logIndex, row.term): row.status
        for row in found.where("kind NOT IN ('Open', 'Snapshot', 'Reset')").collect()
    }
    assert told == {
        (1, 1): "committed", (2, 1): "committed", (3, 1): "committed", (4, 1): "logged",
        (5, 1): "cut", (6, 1): "cut", (6, 2): "logged",
    }  # fmt: skip
    facts = states(found, [2, 4, 5, 6]).collect()
    assert {row.at for row in facts} == {2, 4, 5, 6}
    assert {row._unknown for row in facts} == {None}
    found.unpersist()
