"""Exports that meet an earlier lake, a crash, or each other: no row is lost, and none comes twice."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from rmqha.cli.pipeline import main
from rmqha.pipeline import session
from rmqha.pipeline.jobs import export
from rmqha.pipeline.lake.files import WORK, HadoopFiles, LocalFiles, open_lake
from rmqha.pipeline.lake.layout import LakeBusy
from tests.pipeline.stores import identify, messages, written
from tests.pipeline.test_export import drop_files, of, places, run
from tests.pipeline.test_reading import FILE_BYTES, flip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


class PowerCut(BaseException):
    """Nothing catches it."""


def export_as_before(spark: SparkSession, store: str, out: Path, *, bodies: bool = True) -> None:
    """Write a lake as version 0.1.0 did until ADR 0020: Spark's names, and no word of the set."""
    reader = spark.read.format("rocketmq-commitlog").option("includeBody", str(bodies).lower())
    log = reader.load(store)
    writer = export.lake(log).write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy("topic", "day").parquet(str(out))
    export.damage(log).write.mode("overwrite").parquet(str(out / export.DAMAGE))


def contents(out: Path) -> dict[str, bytes]:
    """Every Parquet file that readers see."""
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in out.rglob("*.parquet")
        if WORK not in path.parts
    }


@pytest.mark.parametrize("bodies", [True, False])
async def test_lake_when_of_the_layout_before_then_kept_and_added_to(
    spark: SparkSession, tmp_path: Path, bodies: bool
) -> None:
    """Its files are not touched, rows that are read again are not doubled, those of deleted log files
    are read as before; another set joins it."""
    records = await written(tmp_path / "a", messages(90))
    hurt = next(r for r in records[60:] if r.physical_offset % FILE_BYTES)
    flip(tmp_path / "a", hurt.physical_offset + 5)
    records.remove(hurt)
    out = tmp_path / "lake"
    export_as_before(spark, f"broker-a={tmp_path / 'a'}", out, bodies=bodies)
    before = contents(out)
    assert places(spark, out) == of(records)
    begin = drop_files(tmp_path / "a", 1)
    more = await written(tmp_path / "a", messages(25, seed=2))
    added = [one for one in more if (of([one]).keys() - of(records).keys())]
    others = await written(tmp_path / "b", messages(30, seed=3))
    known = sum(one.physical_offset >= begin for one in records)
    for written_before in (0, len(added)):
        told = run(out, f"broker-a={tmp_path / 'a'}")
        assert f"{len(added)} rows written, {written_before} replaced, {known} kept" in told
        assert places(spark, out) == of(records) + of(added)
    run(out, f"broker-b={tmp_path / 'b'}")
    assert places(spark, out) == of(records) + of(added) + of(others)
    after = contents(out)
    assert {name: after[name] for name in before} == before
    gaps = spark.read.parquet(f"{out}/{export.DAMAGE}").collect()
    assert [gap.physicalOffset for gap in gaps] == [hurt.physical_offset]


async def test_power_when_cut_while_publishing_then_every_row_is_there_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever file was the last to be renamed: each is the old or the new one."""
    old = await written(tmp_path / "store", messages(60))
    store = str(identify(tmp_path / "store", "broker-a"))
    out = tmp_path / "lake"
    export.run(spark, [store], str(out), cell_bytes=FILE_BYTES)
    drop_files(tmp_path / "store", 1)
    grown = await written(tmp_path / "store", messages(40, seed=2))
    new = of(old) | of(grown)
    replace, renamed = LocalFiles.replace, Counter[str]()

    def fail_at(number: int) -> None:
        def until(files: LocalFiles, source: str, target: str) -> None:
            if renamed["now"] == number:
                raise PowerCut
            renamed["now"] += 1
            replace(files, source, target)

        renamed.clear()
        monkeypatch.setattr(LocalFiles, "replace", until)

    seen = []
    files = len({(one.topic, one.physical_offset // FILE_BYTES) for one in grown})
    for number in (0, 1, files - 2):
        fail_at(number)
        with pytest.raises(PowerCut):
            export.run(spark, [store], str(out), cell_bytes=FILE_BYTES)
        seen.append(places(spark, out))
        assert of(old) <= seen[-1] <= new, "a row is lost, or there twice"
    assert seen[0] == of(old)
    assert of(old) < seen[2] < new, "it was cut in the middle"
    monkeypatch.setattr(LocalFiles, "replace", replace)
    export.run(spark, [store], str(out), cell_bytes=FILE_BYTES)
    assert places(spark, out) == new
    assert [one.name for one in (out / WORK).iterdir()] == ["broker-a@main.lock"]


async def test_sets_when_exported_at_once_then_neither_loses_a_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Every set has a nightly job of its own, and all begin at the same hour."""
    expected = of([])
    for number, name in enumerate("abc"):
        expected += of(await written(tmp_path / name, messages(50 + number, seed=number)))
        identify(tmp_path / name, f"broker-{name}")
    out = tmp_path / "lake"

    def work(name: str) -> int:
        return export.run(session(), [str(tmp_path / name)], str(out)).rows

    with ThreadPoolExecutor(3) as pool:
        for _ in range(2):
            assert sorted(pool.map(work, "abc")) == [50, 51, 52]
            assert places(spark, out) == expected


async def test_set_when_exported_twice_at_once_then_the_second_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody can be kept out, who is late notices that the files are not those it knew."""
    records = await written(tmp_path / "store", messages(40))
    store = identify(tmp_path / "store", "broker-a")
    out = tmp_path / "lake"
    run(out, store)
    with LocalFiles(str(out)).alone("broker-a@main"):
        done = CliRunner().invoke(main, ["export", str(store), "-o", str(out)])
    assert done.exit_code == 2
    assert "another export of broker-a@main is under way" in done.output
    topics = LocalFiles.topics
    listed = Counter[str]()

    def changed(files: LocalFiles, *given: object) -> object:
        listed["now"] += 1
        if listed["now"] == 2:
            path = next(out.glob("topic=*/day=*/log-*"))
            shutil.copy(path, tmp_path / "copy")
            os.replace(tmp_path / "copy", path)
        return topics(files, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalFiles, "topics", changed)
    with pytest.raises(LakeBusy, match="changed by somebody else"):
        export.run(spark, [str(store)], str(out))
    assert places(spark, out) == of(records)


def test_files_when_of_another_file_system_then_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Hadoop's interface, on this machine's disk: listed, renamed over, deleted as here."""
    lake = open_lake(spark, f"file://{tmp_path}/lake")
    assert isinstance(lake, LocalFiles)
    hadoop = HadoopFiles(spark._jvm, spark._jsc.hadoopConfiguration(), f"file:{tmp_path}/lake")
    local = LocalFiles(str(tmp_path / "lake"))
    for name, data in (("a", b"one"), ("b", b"two!")):
        path = tmp_path / "lake" / WORK / "x" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        hadoop.replace(f"{WORK}/x/{name}", "topic=%25RETRY%25g/day=d/f.parquet")
        assert (tmp_path / "lake/topic=%25RETRY%25g/day=d/f.parquet").read_bytes() == data
    for topics, count in (((), 1), (("%RETRY%g",), 1), (("t",), 0)):
        found = [(one.path, one.size) for one in hadoop.topics(topics)]
        assert found == [(one.path, one.size) for one in local.topics(topics)]
        assert len(found) == count
    assert hadoop.below("none") == []
    with hadoop.alone("a@b"):
        hadoop.delete("topic=%25RETRY%25g/day=d/f.parquet")
        hadoop.delete("topic=%25RETRY%25g/day=d/f.parquet")
    assert hadoop.topics(()) == []
    hadoop.clear(WORK)
    assert not (tmp_path / "lake" / WORK).exists()
