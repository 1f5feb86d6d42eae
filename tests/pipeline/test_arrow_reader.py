"""Commit logs read without Spark: by Arrow, DuckDB and Polars."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from rmqha.base.errors import ConfigInvalid, RmqhaError, StoreDamaged
from rmqha.pipeline import read
from rmqha.pipeline.commitlog import arrow_reader
from rmqha.pipeline.commitlog.arrow_reader import CommitLog
from rmqha.pipeline.commitlog.batches import Wanted, expired, read_part
from rmqha.pipeline.commitlog.columns import SCHEMA
from rmqha.pipeline.commitlog.splits import plan
from rmqha.pipeline.commitlog.store_folder import open_replica
from rmqha.runtime.aio.clock import SystemClock
from rmqha.store.record import Record
from tests.pipeline.stores import BORN_MS, TOPICS, messages, written
from tests.pipeline.synthetic import SyntheticStore

PAGE = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
SECTION = re.search(r"^## Without Spark\n.*?(?=^## )", PAGE, re.DOTALL | re.MULTILINE)
MEMORY = """
import json, sys
from pathlib import Path
from rmqha.pipeline import read

def kib(name):
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name))

log = read(sys.argv[1], columns=["topic", "queueId", "queueOffset", "body"])
log.to_table(columns=["topic"], topic="none")
Path("/proc/self/clear_refs").write_text("5")
before = kib("VmRSS")
rows = sum(batch.num_rows for batch in log.to_reader())
print(json.dumps([rows, (kib("VmHWM") - before) / 1024, "pyspark" in sys.modules]))
"""
FILE_BYTES = 16_384


class Ticking(SystemClock):
    """Each look at the wall clock finds it later: no two records of one millisecond."""

    def __init__(self) -> None:
        self._ms = itertools.count(BORN_MS, 7)

    def wall_ms(self) -> int:
        """Later than before."""
        return next(self._ms)


def offsets(log: CommitLog, **chosen: object) -> list[int]:
    """Where the rows stand."""
    table = log.to_table(columns=["physicalOffset"], **chosen)  # type: ignore[arg-type]
    found: list[int] = table.column("physicalOffset").to_pylist()
    return found


def moment(one: Record) -> datetime:
    """When a record was stored."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=one.store_timestamp)


def damage(root: Path, one: Record) -> None:
    """Turn the bits of a record's magic."""
    path = root / "commitlog" / f"{one.physical_offset // FILE_BYTES * FILE_BYTES:020d}"
    data = bytearray(path.read_bytes())
    data[one.physical_offset % FILE_BYTES + 5] ^= 0x55
    path.write_bytes(data)


@pytest.mark.costly
async def test_table_when_read_then_the_rows_that_tasks_of_spark_read(tmp_path: Path) -> None:
    """All columns with the body, and all but the body when none are named."""
    await written(tmp_path, messages(120))
    parts = plan(open_replica(str(tmp_path)))
    expected = pa.Table.from_batches(
        [batch for part in parts for batch in read_part(part, Wanted())], SCHEMA
    )
    log = read(tmp_path)
    assert log.to_table(columns=SCHEMA.names).equals(expected)
    assert log.to_table().equals(expected.drop_columns("body"))
    assert log.schema.names == [name for name in SCHEMA.names if name != "body"]
    assert log.to_reader(columns=["keys", "topic"]).schema.names == ["keys", "topic"]


@pytest.mark.costly
async def test_rows_when_chosen_then_only_these(tmp_path: Path) -> None:
    """Topics and times, by ``read`` and by each query, of both what both allow."""
    records = await written(tmp_path, messages(100), Ticking())
    since, until = records[30], records[70]
    between = [r for r in records if since.store_timestamp <= r.store_timestamp]
    between = [r for r in between if r.store_timestamp < until.store_timestamp]
    assert len(between) == 40
    expected = [one.physical_offset for one in between]
    log = read(tmp_path, since=moment(since), until=until.store_timestamp)
    assert offsets(log) == expected
    assert offsets(read(tmp_path), since=since.store_timestamp, until=moment(until)) == expected
    behind = [moment(records[n]).replace(tzinfo=None) + timedelta(microseconds=1) for n in (29, 69)]
    assert offsets(read(tmp_path), since=behind[0], until=behind[1]) == expected
    assert offsets(log, since=moment(until)) == []
    named = [one.physical_offset for one in between if one.topic in TOPICS[:2]]
    assert offsets(log, topic=f"{TOPICS[0]},{TOPICS[1]}") == named
    assert (
        offsets(read(tmp_path, topic=TOPICS[:2]), since=moment(since), until=moment(until)) == named
    )
    assert offsets(read(tmp_path, topic=TOPICS[0]), topic=TOPICS[1]) == []


@pytest.mark.costly
async def test_duckdb_when_it_queries_then_as_the_store_says(tmp_path: Path) -> None:
    """As a variable in SQL, more than once, and as a stream of chosen rows."""
    records = await written(tmp_path, messages(90))
    log = read(tmp_path)
    for _ in range(2):
        found = duckdb.sql(
            "SELECT topic, count(*), max(queueOffset) FROM log GROUP BY 1"
        ).fetchall()
        assert sorted(found) == sorted(
            (topic, len(of), max(of))
            for topic in TOPICS
            if (of := [one.queue_offset for one in records if one.topic == topic])
        )
    cities = duckdb.sql(
        "SELECT DISTINCT properties['city'] FROM log WHERE tags = 'tag1'"
    ).fetchall()
    assert cities == [("Köln",)]
    orders = log.to_reader(columns=["body", "storeTimestamp"], topic=TOPICS[0])  # noqa: F841 - SQL names it
    bodies = duckdb.sql("SELECT body, epoch_ms(storeTimestamp) FROM orders").fetchall()
    assert bodies == [(r.body, r.store_timestamp) for r in records if r.topic == TOPICS[0]]


async def test_polars_when_it_reads_then_as_the_store_says(tmp_path: Path) -> None:
    """All columns, maps and times among them."""
    records = await written(tmp_path, messages(90))
    frame = pl.DataFrame(read(tmp_path, columns=SCHEMA.names))
    assert frame["physicalOffset"].to_list() == [one.physical_offset for one in records]
    assert frame["body"].to_list() == [one.body for one in records]
    assert frame["storeTimestamp"].dt.epoch("ms").to_list() == [r.store_timestamp for r in records]
    counts = frame.group_by("topic").len().rows()
    assert dict(counts) == {t: sum(r.topic == t for r in records) for t in TOPICS}
    assert frame["properties"].to_list() == [one.property_map() for one in records]


async def test_stores_when_several_then_a_column_says_which(tmp_path: Path) -> None:
    """In Spark's manner, and as a dictionary."""
    await written(tmp_path / "one", messages(20))
    await written(tmp_path / "two", messages(10))
    one, two = tmp_path / "one", tmp_path / "two"
    for log, second in ((read(f"{one},b={two}"), "b"), (read({"": one, "c": two}), "c")):
        names = log.to_table(columns=["replica"]).column("replica").to_pylist()
        assert names == ["one"] * 20 + [second] * 10


@pytest.mark.costly
async def test_damage_when_met_then_as_the_mode_says(tmp_path: Path) -> None:
    """A row, nothing, or the end with one line; of a broken header and of broken inner lengths."""
    records = await written(tmp_path, messages(60))
    hurt = next(r for r in records[20:] if r.physical_offset % FILE_BYTES)
    damage(tmp_path, hurt)
    rest = [one.physical_offset for one in records if one is not hurt]
    table = read(tmp_path).to_table()
    (row,) = [one for one in table.to_pylist() if one["_corrupt"] is not None]
    assert (row["physicalOffset"], row["size"]) == (hurt.physical_offset, hurt.size)
    assert table.num_rows == len(records)
    assert offsets(read(tmp_path, mode="dropmalformed")) == rest
    reader = read(tmp_path, mode="FAILFAST").to_reader()
    with pytest.raises(StoreDamaged, match=f"at offset {hurt.physical_offset}") as caught:
        reader.read_all()
    assert "\n" not in str(caught.value)
    log = read(tmp_path, mode="FAILFAST")
    with pytest.raises(duckdb.Error, match=f"at offset {hurt.physical_offset}"):
        duckdb.sql("SELECT count(*) FROM log").fetchall()
    assert log is not None


async def test_log_when_it_grows_then_the_next_query_sees_it(tmp_path: Path) -> None:
    """A running broker's store: each query plans anew."""
    await written(tmp_path, messages(20))
    log = read(tmp_path)
    assert len(offsets(log)) == 20
    await written(tmp_path, messages(60))
    assert len(offsets(log)) == 80


async def test_file_when_it_expires_between_plan_and_reading_then_a_gap_in_its_place(
    tmp_path: Path,
) -> None:
    """Retention deletes the oldest files of a running store: hours of reading ended with an error."""
    records = await written(tmp_path, messages(60))
    names = ["physicalOffset", "size", "_corrupt"]
    readers = [
        read(tmp_path, mode=mode, columns=names).to_reader()
        for mode in ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
    ]
    first = min((tmp_path / "commitlog").iterdir())
    size = first.stat().st_size
    first.unlink()
    left = [one.physical_offset for one in records if one.physical_offset >= size]
    gap, *rows = readers[0].read_all().to_pylist()
    assert (gap["physicalOffset"], gap["size"]) == (0, size)
    assert "expired" in gap["_corrupt"]
    assert [row["physicalOffset"] for row in rows] == left
    assert readers[1].read_all().column("physicalOffset").to_pylist() == left
    with pytest.raises(StoreDamaged, match="expired"):
        readers[2].read_all()


async def test_file_when_it_expires_before_times_are_asked_then_all_others_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the listing and the plan, where the first record of each file is looked at."""
    records = await written(tmp_path, messages(60))
    first = min((tmp_path / "commitlog").iterdir())
    size, listed = first.stat().st_size, open_replica(str(tmp_path))
    first.unlink()
    monkeypatch.setattr(arrow_reader, "open_replica", lambda root, name="": listed)
    found = read(tmp_path, since=0).to_table(columns=["physicalOffset", "_corrupt"]).to_pylist()
    assert [one["physicalOffset"] for one in found if one["_corrupt"] is None] == [
        one.physical_offset for one in records if one.physical_offset >= size
    ]


async def test_file_when_gone_between_others_then_one_line_names_it(tmp_path: Path) -> None:
    """That is no retention: somebody has taken it away while it was to be read."""
    await written(tmp_path, messages(60))
    reader = read(tmp_path).to_reader()
    path = sorted((tmp_path / "commitlog").iterdir())[1]
    path.unlink()
    with pytest.raises(FileNotFoundError, match=path.name) as caught:
        reader.read_all()
    assert "\n" not in str(caught.value)


async def test_file_when_packed_between_plan_and_reading_then_one_line_names_it(
    tmp_path: Path,
) -> None:
    """A nightly job took the first one: it has not expired, and to leave it out would be a lie."""
    await written(tmp_path, messages(60))
    reader = read(tmp_path).to_reader()
    path = min((tmp_path / "commitlog").iterdir())
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    with pytest.raises(FileNotFoundError, match=path.name):
        reader.read_all()


async def test_part_when_it_was_empty_and_has_expired_then_nothing_is_missing(
    tmp_path: Path,
) -> None:
    """A gap of no bytes would be a row of damage."""
    await written(tmp_path, messages(60))
    part, *_ = plan(open_replica(str(tmp_path)))
    assert list(expired(replace(part, stop=part.start), Wanted())) == []
    (gap,) = expired(part, Wanted())
    assert gap.batch.column("size").to_pylist() == [part.stop]


async def test_log_when_it_is_gone_as_a_whole_then_said(tmp_path: Path) -> None:
    """The store was moved meanwhile."""
    await written(tmp_path / "store", messages(60))
    reader = read(tmp_path / "store").to_reader()
    for path in (tmp_path / "store" / "commitlog").iterdir():
        path.unlink()
    with pytest.raises(ConfigInvalid, match="store/commitlog"):
        reader.read_all()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"columns": ["topic", "city"]}, "no column city"),
        ({"columns": []}, "columns names none"),
        ({"topic": " , "}, "topic names none"),
        ({"topic": []}, "topic names none"),
        ({"since": "yesterday"}, "since='yesterday'"),
        ({"until": True}, "until=True"),
        ({"mode": "strict"}, "mode=strict must be one of PERMISSIVE, DROPMALFORMED, FAILFAST"),
        ({"mode": None}, "mode=None must be one of"),
        ({"topic": [1]}, r"topic=\[1\] must be a text, or texts"),
        ({"topic": 5}, "topic=5 must be a text, or texts"),
        ({"since": 10, "until": 5}, "since=10 is behind until=5"),
        ({"up_to": "9" * 5000}, "upTo=999"),
    ],
)
async def test_argument_when_wrong_then_named(
    tmp_path: Path, arguments: dict[str, object], what: str
) -> None:
    """In one line, before anything is read."""
    await written(tmp_path, messages(1))
    with pytest.raises(ConfigInvalid, match=what) as caught:
        read(tmp_path, **arguments)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


async def test_times_when_they_are_one_then_no_row_and_no_error(tmp_path: Path) -> None:
    """Windows that follow each other may be empty."""
    await written(tmp_path, messages(1))
    assert read(tmp_path, since=5, until=5).to_table().num_rows == 0


def test_store_when_it_is_given_twice_then_said(tmp_path: Path) -> None:
    """By one path, or by another that leads to it."""
    (tmp_path / "commitlog").mkdir()
    for path in (f"{tmp_path},{tmp_path}", {"a": tmp_path, "b": tmp_path / "commitlog" / ".."}):
        with pytest.raises(ConfigInvalid, match="is given twice"):
            read(path)


def test_path_when_no_store_then_said(tmp_path: Path) -> None:
    """Where it is named, and not at the first query."""
    with pytest.raises(RmqhaError, match="no commitlog directory"):
        read(tmp_path)
    with pytest.raises(ConfigInvalid, match="needs a path"):
        read(",")


async def test_examples_when_run_then_they_show_what_is_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of docs/pipeline.md, as they stand there."""
    records = await written(tmp_path / "store", messages(40))
    assert SECTION is not None
    examples = re.findall(r"```python\n(.*?)```", SECTION[0], re.DOTALL)
    assert len(examples) == 3
    scope: dict[str, object] = {}
    for example in examples:
        here = example.replace('"store"', repr(str(tmp_path / "store")))
        exec(here.replace('"orders.parquet"', repr(str(tmp_path / "orders.parquet"))), scope)
    shown = capsys.readouterr().out
    for topic in TOPICS:
        assert topic in shown
    table = pq.read_table(tmp_path / "orders.parquet")
    orders = [one for one in records if one.topic == "orders"]
    assert table.column("body").to_pylist() == [one.body for one in orders]
    sums = scope["sums"]
    assert isinstance(sums, pl.DataFrame)
    assert sums["bytes"].sum() == sum(len(one.body) for one in orders)


@pytest.mark.slow
def test_log_when_large_then_memory_and_imports_stay_small(tmp_path: Path) -> None:
    """Batches go as they come, without Spark."""
    store = SyntheticStore(tmp_path / "store", 150 << 20)
    count = (120 << 20) // (4096 + 220)
    for number in range(count):
        store.add(f"topic{number % 10}", number // 10 % 4, bytes(4096))
    store.close()
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "store")],
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    rows, most_mb, has_spark = json.loads(done.stdout)
    assert rows == count
    assert most_mb < 100, "the bodies alone are 114 MB, all in one part"
    assert not has_spark
