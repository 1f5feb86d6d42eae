"""Commit logs to a lake: every message once, what is not read again stays, damage set apart."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from rmqha.cli.pipeline import main
from rmqha.pipeline.jobs import export
from rmqha.pipeline.lake.cells import ROTTEN
from rmqha.pipeline.lake.rows import without_replaced
from rmqha.pipeline.spark.paths import literal
from rmqha.store.record import Record
from tests.pipeline.stores import TOPICS, identify, messages, written
from tests.pipeline.test_cells import LONG
from tests.pipeline.test_reading import FILE_BYTES, flip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
CELLS = pytest.mark.parametrize("cell_bytes", [FILE_BYTES, 1 << 27], ids=["a file", "all"])
"""A cell is a file of the log, as with a broker's own sizes nearly; or all of the log is one."""

Place = tuple[str, str, int, int, int]


def run(lake: Path, *arguments: str | Path) -> str:
    """Export by the command; what it says."""
    done = CliRunner().invoke(main, ["export", *map(str, arguments), "-o", str(lake)])
    assert done.exit_code == 0, done.output
    return done.output


def places(lake: SparkSession, out: Path) -> Counter[Place]:
    """How often each message is in a lake, by where its log has it."""
    found = lake.read.option("mergeSchema", True).parquet(literal(str(out)))
    names = ("storeHost", "topic", "queueId", "queueOffset", "physicalOffset", "bodyCrc")
    return Counter(tuple(row) for row in found.select(*names).collect())


def of(records: Iterable[Record]) -> Counter[Place]:
    """As ``places``, of records."""
    from tests.pipeline.test_reading import host

    return Counter(
        (host(r.store_host), r.topic, r.queue_id, r.queue_offset, r.physical_offset, r.body_crc)
        for r in records
    )


def drop_files(store: Path, count: int) -> int:
    """Delete the oldest files of a log, as retention does; where the log begins now."""
    files = sorted((store / "commitlog").iterdir())
    for path in files[:count]:
        path.unlink()
    return int(files[count].name)


async def test_export_when_run_twice_then_the_lake_has_every_message_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By topic and day, bodies and properties included."""
    records = await written(tmp_path / "store", messages(90))
    identify(tmp_path / "store", "broker-a")
    out, count = tmp_path / "lake", len(records)
    assert "90 rows written, 0 replaced, 0 kept" in run(out, tmp_path / "store")
    told = run(out, tmp_path / "store")
    assert "broker set broker-a of main: 90 rows written, 90 replaced, 0 kept" in told
    assert f"{count} messages, 0 damaged" in told
    found = spark.read.parquet(str(out)).collect()
    assert {(row.topic, row.queueId, row.queueOffset): bytes(row.body) for row in found} == {
        (one.topic, one.queue_id, one.queue_offset): one.body for one in records
    }
    assert len(found) == count
    assert {(row.cluster, row.brokerName) for row in found} == {("main", "broker-a")}
    assert "90 replaced" in (out / export.REPORT).read_text()
    assert sorted(one.name for one in (out / "_exports").iterdir()) == ["broker-a@main.lock"]


async def test_export_when_a_record_is_damaged_then_it_is_set_apart(
    spark: SparkSession, tmp_path: Path
) -> None:
    """And ``--strict`` makes it the exit code."""
    records = await written(tmp_path / "store", messages(60))
    hurt = next(r for r in records[20:] if r.physical_offset % FILE_BYTES)
    flip(tmp_path / "store", hurt.physical_offset + 5)
    out = str(tmp_path / "lake")
    arguments = ["export", f"a={tmp_path / 'store'}", "-o", out, "--no-bodies", "-t", TOPICS[0]]
    done = CliRunner().invoke(main, [*arguments, "--strict"])
    assert done.exit_code == 1, done.output
    wanted = [r for r in records if r.topic == TOPICS[0] and r is not hurt]
    rows = spark.read.parquet(out)
    assert rows.count() == len(wanted)
    assert "body" not in rows.columns
    (gap,) = spark.read.parquet(f"{out}/{export.DAMAGE}").collect()
    assert (gap.physicalOffset, gap.size) == (hurt.physical_offset, hurt.size)
    assert (gap.cluster, gap.brokerName) == (None, "a")


async def test_sets_when_exported_into_one_lake_then_both_are_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One set's export deleted the other's rows of the same topics and days."""
    first = await written(tmp_path / "a", messages(80, seed=1))
    second = await written(tmp_path / "b", messages(60, seed=2))
    for name in "ab":
        identify(tmp_path / name, f"broker-{name}")
    out = tmp_path / "lake"
    for name in "ab":
        run(out, tmp_path / name)
    assert places(spark, out) == of(first) + of(second)
    assert "80 rows written, 80 replaced" in (told := run(out, tmp_path / "a", tmp_path / "b"))
    assert "60 rows written, 60 replaced" in told
    assert places(spark, out) == of(first) + of(second)
    counts = spark.read.parquet(str(out)).groupBy("brokerName").count().collect()
    assert {row.brokerName: row["count"] for row in counts} == {"broker-a": 80, "broker-b": 60}


@CELLS
async def test_files_when_deleted_by_retention_then_the_lake_has_their_messages_still(
    spark: SparkSession, tmp_path: Path, cell_bytes: int
) -> None:
    """The same command every night: it deleted what the log no longer had. Topics may be called what
    is no text to Spark, or no name to a directory."""
    odd = {"orders": "%RETRY%g", "t": "007"}
    made = [one._replace(topic=odd.get(one.topic, one.topic)) for one in messages(120)]
    records = await written(tmp_path / "store", made)
    store = str(identify(tmp_path / "store", "broker-a"))
    out = tmp_path / "lake"
    export.run(spark, [store], str(out), cell_bytes=cell_bytes)
    begin = drop_files(tmp_path / "store", 2)
    left = [one for one in records if one.physical_offset >= begin]
    assert 0 < len(left) < 110
    more = await written(tmp_path / "store", messages(30, seed=3))
    added = [one for one in more if one.physical_offset > records[-1].physical_offset]
    done = export.run(spark, [store], str(out), cell_bytes=cell_bytes)
    assert places(spark, out) == of(records) + of(added)
    (one,) = done.sets
    kept = len(records) - len(left)
    assert (one.written, one.replaced, one.kept) == (len(left) + len(added), len(left), kept)


async def test_topic_when_exported_alone_then_the_others_stay(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also when their log files are gone."""
    records = await written(tmp_path / "store", messages(90))
    store = identify(tmp_path / "store", "broker-a")
    out = tmp_path / "lake"
    run(out, store)
    drop_files(store, 1)
    run(out, store, "-t", TOPICS[1])
    assert places(spark, out) == of(records)


@CELLS
async def test_lake_when_its_path_looks_like_a_pattern_then_it_alone_is_read(
    spark: SparkSession, tmp_path: Path, cell_bytes: int
) -> None:
    """The second night found no path; or the rows of a lake beside it, and kept these."""
    records = await written(tmp_path / "store", messages(90))
    hurt = next(r for r in records[70:] if r.physical_offset % FILE_BYTES)
    flip(tmp_path / "store", hurt.physical_offset + 5)
    store = str(identify(tmp_path / "store", "broker-a"))
    beside, out = tmp_path / "lake-1", tmp_path / r"lake*{a,b}[1]?\\"
    for lake in (beside, out):
        export.run(spark, [store], str(lake), cell_bytes=cell_bytes)
    begin = drop_files(tmp_path / "store", 2)
    (done,) = export.run(spark, [store], str(out), cell_bytes=cell_bytes).sets
    kept = sum(one.physical_offset < begin for one in records)
    assert (done.written, done.kept, done.damaged) == (89 - kept, kept, 1)
    assert places(spark, out) == of(records) - of([hurt])


async def test_topics_when_the_store_lacks_them_then_said(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A name with a letter too many exported nothing, every night, without a word."""
    made = [one._replace(topic="orders" if one.topic == TOPICS[0] else "t") for one in messages(40)]
    records = await written(tmp_path / "store", made)
    store, out = str(identify(tmp_path / "store", "broker-a")), tmp_path / "lake"
    done = CliRunner().invoke(
        main, ["export", store, "-o", str(out), "-t", "nix", "-t", " ordres,"]
    )
    assert done.exit_code == 2
    lines = [one for one in done.stderr.splitlines() if one.startswith("pipeline: ")]
    assert lines == [
        "pipeline: topic nix: the stores have no message and no queue of it, and the lake neither",
        "pipeline: topic ordres: the stores have no message and no queue of it, and the lake neither",
    ]
    assert "pipeline: topic nix: " in run(out, store, "-t", "orders, t,nix")
    assert places(spark, out) == of(records)
    # A topic without a message today is not one that was mistyped.
    (tmp_path / "store" / "consumequeue" / "quiet").mkdir()
    assert "pipeline: " not in run(out, store, "-t", "quiet")
    drop_files(tmp_path / "store", len(list((tmp_path / "store" / "commitlog").iterdir())) - 1)
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    assert "pipeline: " not in run(out, store, "-t", "orders,t")
    nothing = CliRunner().invoke(main, ["export", store, "-o", str(out), "-t", ","])
    assert (nothing.exit_code, "names none" in nothing.stderr) == (2, True)


@pytest.mark.parametrize("named", [True, False], ids=["by identity", "by content"])
async def test_replicas_when_given_together_then_refused(tmp_path: Path, named: bool) -> None:
    """Every row came twice. Nothing is written, and Spark is not started."""
    await written(tmp_path / "a", messages(30))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    stores = [f"{name}={tmp_path / name}" for name in "ab"]
    if named:
        for number, name in enumerate("ab", 1):
            identify(tmp_path / name, "broker-a", number)
    done = CliRunner().invoke(main, ["export", *stores, "-o", str(tmp_path / "lake")])
    assert done.exit_code == 2
    why = "both of broker set broker-a of main" if named else "the same record at 0"
    assert why in done.output
    assert "give one of them" in done.output
    assert not (tmp_path / "lake").exists()


async def test_replica_when_exported_after_the_other_then_its_rows_take_their_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It is behind: what it does not have yet stays."""
    await written(tmp_path / "a", messages(50))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    records = await written(tmp_path / "a", messages(40, seed=2))
    out = tmp_path / "lake"
    run(out, identify(tmp_path / "a", "broker-a", 1))
    told = run(out, identify(tmp_path / "b", "broker-a", 2))
    assert "50 rows written, 50 replaced, 40 kept" in told
    assert places(spark, out) == of(records)


@CELLS
async def test_log_when_cut_and_grown_again_then_the_lake_has_the_new_messages(
    spark: SparkSession, tmp_path: Path, cell_bytes: int
) -> None:
    """What was exported before it was confirmed, and never was, gives way to what stands there."""
    await written(tmp_path / "a", messages(40))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    await written(tmp_path / "a", messages(30, seed=2))
    records = await written(tmp_path / "b", [one._replace(topic="t") for one in messages(60, 3)])
    out = str(tmp_path / "lake")
    for number, name in enumerate("ab", 1):
        store = str(identify(tmp_path / name, "broker-a", number))
        done = export.run(spark, [store], out, cell_bytes=cell_bytes)
    assert places(spark, Path(out)) == of(records)
    (one,) = done.sets
    assert (one.written, one.replaced, one.kept) == (100, 70, 0)


async def test_record_when_damaged_since_then_the_lake_keeps_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A range that cannot be read any more is not one that was read."""
    records = await written(tmp_path / "store", messages(60))
    store = identify(tmp_path / "store", "broker-a")
    out = tmp_path / "lake"
    run(out, store)
    hurt = next(r for r in records[20:] if r.physical_offset % FILE_BYTES)
    flip(store, hurt.physical_offset + 5)
    told = run(out, store)
    assert "59 rows written, 59 replaced, 1 kept" in told
    assert "1 damaged" in told
    assert places(spark, out) == of(records)


async def test_store_when_it_does_not_say_whose_it_is_then_asked(tmp_path: Path) -> None:
    """Outside of controller mode; by the name of a directory two sets would be one."""
    await written(tmp_path / "store", messages(3))
    out = tmp_path / "lake"
    done = CliRunner().invoke(main, ["export", str(tmp_path / "store"), "-o", str(out)])
    assert done.exit_code == 2
    assert "broker-a=" in done.output
    assert not out.exists()


async def test_times_when_python_has_no_dates_for_them_then_exported_every_night(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One producer that gave its time in another unit made every export but the first one fail."""
    odd = (1_700_000_000_000_000, 2**63 - 1, -(2**63), -(10**14))
    records = []
    for number, name in enumerate("ab"):
        made = messages(40, seed=number)
        made[:4] = [one._replace(born_timestamp=ms) for one, ms in zip(made, odd, strict=False)]
        records += await written(tmp_path / name, made)
        identify(tmp_path / name, f"broker-{name}")
    out = tmp_path / "lake"
    for replaced in (0, 40):
        told = run(out, tmp_path / "a", tmp_path / "b")
        assert told.count(f"40 rows written, {replaced} replaced, 0 kept") == 2
    drop_files(tmp_path / "b", 1)
    run(out, tmp_path / "b")
    assert places(spark, out) == of(records)
    born = "count_if(unix_millis(bornTimestamp) = {0}) AS n".format
    for ms in (odd[0], 9_223_372_036_854_775, -9_223_372_036_854_775, odd[3]):
        assert spark.read.parquet(str(out)).selectExpr(born(ms)).first() == (2,)


async def test_set_when_another_log_has_its_name_then_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A name that is given twice must not replace one set's history by another's."""
    records = await written(tmp_path / "a", messages(40, seed=1))
    await written(tmp_path / "b", messages(50, seed=2))
    out = tmp_path / "lake"
    run(out, f"c/x={tmp_path / 'a'}")
    done = CliRunner().invoke(main, ["export", f"c/x={tmp_path / 'b'}", "-o", str(out)])
    assert done.exit_code == 2
    assert "another log as broker set x of c" in done.output
    assert places(spark, out) == of(records)


async def test_log_when_the_lake_has_it_under_another_name_then_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two nights, two replicas, two names, as when a store is named after its machine."""
    await written(tmp_path / "a", messages(40, seed=1))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    records = await written(tmp_path / "a", messages(20, seed=2))
    other = await written(tmp_path / "c", messages(30, seed=3))
    out = tmp_path / "lake"
    run(out, f"main/a={tmp_path / 'a'}", f"c={tmp_path / 'c'}")
    done = CliRunner().invoke(main, ["export", f"b={tmp_path / 'b'}", "-o", str(out)])
    assert done.exit_code == 2
    assert "has this log as broker set a of main already" in done.output
    assert places(spark, out) == of(records) + of(other)


@pytest.mark.parametrize(
    ("out", "what"),
    [
        ("s3a://bucket/lake", "S3AFileSystem not found"),
        ("nix://lake", 'No FileSystem for scheme "nix"'),
        ("nix:", "nix:"),
        ("", "empty"),
    ],
)
async def test_lake_when_spark_cannot_open_it_then_said_in_one_line(
    spark: SparkSession, tmp_path: Path, out: str, what: str
) -> None:
    """Java's frames say nothing to whoever has no connector, or has mistyped a path."""
    await written(tmp_path / "store", messages(5))
    done = CliRunner().invoke(main, ["export", f"a={tmp_path / 'store'}", "-o", out])
    assert done.exit_code == 2, done.output
    (line,) = (one for one in done.stderr.splitlines() if not one.startswith("export: "))
    assert line.startswith("pipeline: ")
    assert what in line


def test_export_when_the_path_is_no_store_then_said(tmp_path: Path) -> None:
    """Before Spark is started."""
    done = CliRunner().invoke(main, ["export", str(tmp_path), "-o", str(tmp_path / "lake")])
    assert done.exit_code == 2
    assert "commitlog" in done.output


def rot(store: Path, record: Record) -> bytes:
    """Turn a bit of a message's body on the disk; what the file was before."""
    path = store / "commitlog" / f"{record.physical_offset // FILE_BYTES * FILE_BYTES:020d}"
    before = path.read_bytes()
    data = bytearray(before)
    at = data.index(record.body, record.physical_offset % FILE_BYTES)
    data[at + len(record.body) // 2] ^= 0x10
    path.write_bytes(data)
    return before


@pytest.mark.parametrize("cell_bytes", [1 << 27, 4096])
async def test_body_when_it_has_rotted_since_then_the_lake_keeps_the_good_one_and_it_is_told(
    spark: SparkSession, tmp_path: Path, cell_bytes: int
) -> None:
    """The last whole copy was written over by an export that found no damage. Cells of a single record
    are read by nobody when that one is rotten."""
    records = await written(tmp_path / "store", messages(30))
    identify(tmp_path / "store", "broker-a")
    out, store = tmp_path / "lake", str(tmp_path / "store")
    export.run(spark, [store], str(out), cell_bytes=cell_bytes)
    victims = [one for one in records if len(one.body) > 500][:2]
    for one in victims:
        rot(tmp_path / "store", one)
    for _ in range(2):
        (done,) = export.run(spark, [store], str(out), cell_bytes=cell_bytes).sets
        assert (done.written, done.replaced, done.kept, done.damaged) == (28, 28, 2, 2)
        rows = spark.read.parquet(str(out)).collect()
        assert len(rows) == 30
        assert all(row.crcOk for row in rows)
        assert {row.physicalOffset: bytes(row.body) for row in rows} == {
            one.physical_offset: one.body for one in records
        }
        hurt = spark.read.parquet(str(out / "_corrupt")).collect()
        assert {(row.physicalOffset, row["_corrupt"]) for row in hurt} == {
            (one.physical_offset, ROTTEN) for one in victims
        }
    if cell_bytes == 1 << 27:
        strict = CliRunner().invoke(main, ["export", store, "-o", str(out), "--strict"])
        assert (strict.exit_code, "2 damaged" in strict.output) == (1, True)


async def test_body_when_it_was_rotten_at_first_then_a_whole_one_takes_its_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A rotten one is better than none, and worse than any."""
    records = await written(tmp_path / "store", messages(30))
    identify(tmp_path / "store", "broker-a")
    out = tmp_path / "lake"
    victim = next(one for one in records if len(one.body) > 500)
    before = rot(tmp_path / "store", victim)
    path = tmp_path / "store" / "commitlog"
    path /= f"{victim.physical_offset // FILE_BYTES * FILE_BYTES:020d}"

    def bad() -> list[int]:
        rows = spark.read.parquet(str(out)).collect()
        assert len(rows) == 30
        return [row.physicalOffset for row in rows if not row.crcOk]

    for _ in range(2):
        assert "1 damaged" in run(out, tmp_path / "store")
        assert bad() == [victim.physical_offset]
    path.write_bytes(before)
    assert "0 damaged" in run(out, tmp_path / "store", "--strict")
    assert bad() == []
    assert spark.read.parquet(str(out / "_corrupt")).count() == 0


async def test_log_when_all_that_was_read_is_rotten_then_the_lake_keeps_what_it_had(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The second night ended with an IndexError. Another log is refused as ever."""
    lakes = [tmp_path / name for name in ("first", "later")]
    stores = []
    for number, name in enumerate("ab"):
        records = await written(tmp_path / name, messages(1, seed=number))
        stores.append(identify(tmp_path / name, "broker-a"))
        assert records[0].body
        if name == "a":
            run(lakes[1], stores[0])
        rot(tmp_path / name, records[0])
    for _ in range(2):
        assert "1 damaged" in run(lakes[0], stores[0])
        assert spark.read.parquet(str(lakes[0])).collect()[0].crcOk is False
        assert "0 rows written, 0 replaced, 1 kept" in run(lakes[1], stores[0])
        assert spark.read.parquet(str(lakes[1])).collect()[0].crcOk is True
    done = CliRunner().invoke(main, ["export", str(stores[1]), "-o", str(lakes[1])])
    assert (done.exit_code, "another log as broker set" in done.stderr) == (2, True)
    assert spark.read.parquet(str(lakes[1])).collect()[0].crcOk is True


async def test_topic_when_its_folders_name_would_be_too_long_then_said_and_the_others_exported(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The retry topic of one group kept the whole store out of the lake; it was an OSError."""
    made = messages(40)
    made[5] = made[5]._replace(topic=LONG)
    records = await written(tmp_path / "store", made)
    store, out = identify(tmp_path / "store", "broker-a"), tmp_path / "lake"
    line = (
        f"topic {LONG}: a folder of its name would be longer than 255 bytes, so 1 messages of"
        " broker set broker-a of main are not in the lake"
    )
    for replaced in (0, 39):
        done = CliRunner().invoke(main, ["export", str(store), "-o", str(out)])
        assert done.exit_code == 1, done.output
        assert f"pipeline: {line}" in done.stderr.splitlines()
        assert f"39 rows written, {replaced} replaced, 0 kept" in done.output
    assert f"{line}." in (out / export.REPORT).read_text()
    assert places(spark, out) == of(one for one in records if one.topic != LONG)
    alone = CliRunner().invoke(main, ["export", str(store), "-o", str(out), "-t", LONG])
    assert (alone.exit_code, line in alone.stderr) == (1, True)
    assert "no message and no queue" not in alone.stderr
    assert "pipeline: " not in run(out, store, "-t", ",".join(TOPICS))


def test_place_when_another_record_stands_there_now_then_the_old_one_is_not_kept(
    spark: SparkSession,
) -> None:
    """A log was cut and written anew, and what was written has rotted: what was cut is no better."""
    day = datetime(2026, 3, 1, tzinfo=UTC)
    schema = (
        "queueId int, queueOffset bigint, physicalOffset bigint, size int, storeTimestamp timestamp,"
        " storeHost string, bornTimestamp timestamp, bodyCrc int"
    )
    old = [
        (0, 1, 100, 50, day, "h", day, 7),
        (0, 2, 150, 50, day, "h", day, 8),
        (0, 3, 200, 50, day, "h", day, 9),
    ]
    hurt = [old[0], (1, 2, 150, 50, day, "h", day, 8)]
    frames = [spark.createDataFrame(one, schema) for one in (old, hurt)]
    found = without_replaced(*frames).select("physicalOffset").collect()
    assert sorted(row.physicalOffset for row in found) == [100, 200]


async def test_cell_when_its_only_record_is_rotten_then_the_lake_keeps_what_it_had_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nothing of the cell counts as read, and yet it has a new file: that took the old one's place."""
    records = await written(tmp_path / "store", messages(12))
    identify(tmp_path / "store", "broker-a")

    def fitting(one: Record) -> int:
        """The largest cell that has nothing but bytes of a record."""
        sizes = range(1, one.size + 1 if one.body else 0)
        return max((size for size in sizes if one.physical_offset % size == 0), default=0)

    victim = max(records[1:], key=lambda one: (len(one.body) > 8, fitting(one)))
    cell_bytes = fitting(victim)
    assert cell_bytes > 30, "few enough cells"
    out, store = tmp_path / "lake", str(tmp_path / "store")
    export.run(spark, [store], str(out), cell_bytes=cell_bytes)
    rot(tmp_path / "store", victim)
    (done,) = export.run(spark, [store], str(out), cell_bytes=cell_bytes).sets
    assert (done.written, done.kept, done.damaged) == (11, 1, 1)
    rows = (
        spark.read.parquet(str(out)).where(f"physicalOffset = {victim.physical_offset}").collect()
    )
    assert [(row.crcOk, bytes(row.body)) for row in rows] == [(True, victim.body)]


async def test_topic_when_exported_alone_then_other_topics_damage_stays(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its bodies alone were looked at, and all that had rotted elsewhere was forgotten."""
    records = await written(tmp_path / "store", messages(30))
    store, out = identify(tmp_path / "store", "broker-a"), tmp_path / "lake"
    victims = [next(one for one in records if one.topic == topic and len(one.body) > 50)
               for topic in TOPICS[:2]]  # fmt: skip
    before = [rot(tmp_path / "store", one) for one in victims]
    run(out, store)
    path = tmp_path / "store" / "commitlog"
    path /= f"{victims[1].physical_offset // FILE_BYTES * FILE_BYTES:020d}"
    path.write_bytes(before[1])

    def told() -> set[int]:
        return {row.physicalOffset for row in spark.read.parquet(str(out / "_corrupt")).collect()}

    assert told() == {one.physical_offset for one in victims}
    assert "0 damaged" in run(out, store, "-t", TOPICS[2])
    assert told() == {one.physical_offset for one in victims}
    assert "0 damaged" in run(out, store, "-t", TOPICS[1])
    assert told() == {victims[0].physical_offset}


async def test_topic_when_all_of_it_was_cut_then_exported_if_another_topic_tells_whose_log_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A rare topic whose only message was lost in a crash stood still for good."""
    kept = [one._replace(topic="orders") for one in messages(20)]
    await written(tmp_path / "old", kept)
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    for seed, name in ((5, "old"), (6, "new")):
        await written(tmp_path / name, [messages(1, seed=seed)[0]._replace(topic="x")])
    lakes = [tmp_path / "both", tmp_path / "alone"]
    for lake in lakes:
        arguments = ["-t", "x"] if lake.name == "alone" else []
        run(lake, f"a={tmp_path / 'old'}", *arguments)
    assert "1 rows written, 1 replaced" in run(lakes[0], f"a={tmp_path / 'new'}", "-t", "x")
    done = CliRunner().invoke(
        main, ["export", f"a={tmp_path / 'new'}", "-t", "x", "-o", str(lakes[1])]
    )
    assert done.exit_code == 2, "nothing in the lake tells"
    assert "delete *a@* of these topics in the lake" in done.stderr
