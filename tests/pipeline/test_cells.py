"""A cell of a log as Parquet files, without Spark: what they hold, in which order, and what is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from rmqha.pipeline.commitlog import batches
from rmqha.pipeline.commitlog.arrow_reader import read
from rmqha.pipeline.commitlog.batches import Piece, Wanted
from rmqha.pipeline.commitlog.columns import SCHEMA
from rmqha.pipeline.commitlog.compare import log_end
from rmqha.pipeline.commitlog.splits import Part
from rmqha.pipeline.commitlog.store_folder import open_replica
from rmqha.pipeline.lake import cells
from rmqha.pipeline.lake.cells import DAY_US, CellWork, _damage, in_groups, write_cell
from rmqha.pipeline.lake.layout import SetName, topic_folder
from rmqha.pipeline.lake.parquet_out import CODEC
from rmqha.store.record import Record
from tests.pipeline.stores import messages, written
from tests.pipeline.synthetic import SyntheticStore
from tests.pipeline.test_reading import FILE_BYTES, flip

NAME = SetName("main", "broker-a")
LARGE = 1 << 27
LONG = "%RETRY%" + "g" * 245
"""A legal group's retry topic."""
NOT_COMPRESSED = {
    "replica", "brokerId", "epoch", "queueId", "storeHost", "flag", "sysFlag", "reconsumeTimes",
    "bodyCrc", "crcOk", "cluster", "brokerName",
}  # fmt: skip
"""Checksums, and what a dictionary makes short enough; texts, bodies and properties are compressed."""


def work_on(store: Path, out: Path, **changes: object) -> CellWork:
    """All of a store in one cell, unless that is changed."""
    replica = open_replica(str(store))
    asked: dict[str, object] = {
        "replica": replica, "name": NAME, "cell_bytes": LARGE, "topics": None, "bodies": True,
        "folder": str(out), **changes,
    }  # fmt: skip
    if "end" not in asked:
        asked["end"] = log_end(replica)
    return CellWork(**asked)  # type: ignore[arg-type]


def written_by(work: CellWork, held_bytes: int = LARGE) -> pa.Table:
    """What the cells' attempts tell, one attempt each."""
    return pa.Table.from_batches([write_cell(work, cell, held_bytes) for cell in work.cells])


def rename(root: Path, record: Record, topic: str) -> None:
    """Give a record of the log another topic, of as many bytes."""
    base = record.physical_offset // FILE_BYTES * FILE_BYTES
    path = root / "commitlog" / f"{base:020d}"
    data, start = path.read_bytes(), record.physical_offset - base
    at = data.rindex(record.topic.encode(), start, start + record.size)
    path.write_bytes(data[:at] + topic.encode() + data[at + len(topic.encode()) :])


def codecs(file: pq.ParquetFile) -> dict[str, str]:
    """Of each column of the first group, by its path in the file."""
    group = file.metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {one.path_in_schema: one.compression for one in columns}


def places(rows: pa.Table) -> Counter[tuple[object, ...]]:
    """Where each row's message stands."""
    names = ("queueId", "queueOffset", "physicalOffset", "bodyCrc")
    return Counter(zip(*(rows.column(name).to_pylist() for name in names), strict=True))


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize("cell_bytes", [LARGE, FILE_BYTES, FILE_BYTES // 2, 3000])
@pytest.mark.parametrize("held_bytes", [LARGE, 4096])
@pytest.mark.parametrize("group_bytes_min", [cells.GROUP_BYTES_MIN, 2000, 0])
async def test_cells_when_written_then_every_message_is_in_the_file_of_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell_bytes: int, held_bytes: int,
    group_bytes_min: int,
) -> None:  # fmt: skip
    """Whatever the size of cells, files and groups: by topic, day and cell, once, with its body.

    Groups of a file may be set aside, written at once, or some of them the one and some the other.
    """
    monkeypatch.setattr(cells, "GROUP_BYTES_MIN", group_bytes_min)
    records = await written(tmp_path / "store", messages(150))
    work = work_on(tmp_path / "store", tmp_path / "out", cell_bytes=cell_bytes)
    told = written_by(work, held_bytes).to_pylist()
    assert sum(one["messages"] for one in told) == len(records)
    assert sum(one["bytes"] for one in told) == sum(one.size for one in records)
    found = Counter[tuple[object, ...]]()
    for one in told:
        where = f"{topic_folder(one['topic'])}/day={one['day']}/cell={one['cell']}/"
        assert one["path"].startswith(where)
        file = pq.ParquetFile(tmp_path / "out" / one["path"])
        rows = file.read()
        assert len(rows) == one["messages"]
        assert set(rows.column("brokerName").to_pylist()) == {"broker-a"}
        for at, stored in zip(
            rows.column("physicalOffset").to_pylist(),
            rows.column("storeTimestamp").to_pylist(),
            strict=True,
        ):
            assert one["cell"] <= at < one["cell"] + cell_bytes
            assert f"{stored:%Y-%m-%d}" == one["day"]
        found.update((one["topic"], bytes(body)) for body in rows.column("body").to_pylist())
        plain = {name for name, codec in codecs(file).items() if codec == "UNCOMPRESSED"}
        assert plain == NOT_COMPRESSED
        assert set(codecs(file).values()) == {"UNCOMPRESSED", CODEC.upper()}
        for number in range(file.num_row_groups):
            group = file.read_row_group(number)
            order = list(
                zip(
                    *(group.column(name).to_pylist() for name in ("queueId", "queueOffset")),
                    strict=True,
                )
            )
            assert order == sorted(order), "a group is in the order of its queues"
    assert found == Counter((one.topic, one.body) for one in records)
    assert len({one["path"] for one in told}) == len(told)


@pytest.mark.costly
@pytest.mark.parametrize("group_bytes_min", [cells.GROUP_BYTES_MIN, 0])
async def test_columns_when_read_back_then_those_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_bytes_min: int
) -> None:
    """All of them, equal in value and type but for the ones that the folders' names have."""
    monkeypatch.setattr(cells, "GROUP_BYTES_MIN", group_bytes_min)
    await written(tmp_path / "store", messages(60))
    work = work_on(tmp_path / "store", tmp_path / "out")
    names = [one for one in SCHEMA.names if one not in ("topic", "_corrupt")]
    log = read(tmp_path / "store", columns=names, topic="orders").to_table()
    (path,) = (
        tmp_path / "out" / one["path"]
        for one in written_by(work).to_pylist()
        if one["topic"] == "orders"
    )
    lake = pq.ParquetFile(path).read()
    assert lake.column_names == [*names, "cluster", "brokerName"]
    by = [("physicalOffset", "ascending")]
    assert lake.select(names).sort_by(by).to_pylist() == log.sort_by(by).to_pylist()
    for name in names:
        assert lake.schema.field(name).type.id == log.schema.field(name).type.id


async def test_files_when_no_bodies_are_wanted_then_all_else_is_there(tmp_path: Path) -> None:
    """A lake for questions about times and queues needs no bodies."""
    await written(tmp_path / "store", messages(60))
    whole = written_by(work_on(tmp_path / "store", tmp_path / "whole"))
    told = written_by(work_on(tmp_path / "store", tmp_path / "out", bodies=False))
    assert sum(told.column("messages").to_pylist()) == 60
    for full, bare in zip(whole.to_pylist(), told.to_pylist(), strict=True):
        rows = pq.ParquetFile(tmp_path / "out" / bare["path"]).read()
        assert rows == pq.ParquetFile(tmp_path / "whole" / full["path"]).read().drop(["body"])


@pytest.mark.costly
@pytest.mark.parametrize(("apart", "least", "most"), [(LARGE, 8000, LARGE), (2000, 0, 4000)])
async def test_rows_when_their_bodies_are_too_far_apart_then_they_are_written_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: int, least: int, most: int
) -> None:
    """Arrow counts bytes in 31 bits, and of a topic chosen the bodies may lie anywhere in a file."""
    await written(tmp_path / "store", messages(150))
    # A batch a record, or the look comes too late.
    monkeypatch.setattr(batches, "BODIES_PER_BATCH", 1)
    monkeypatch.setattr(cells, "SPAN_PER_BATCH", apart)
    spans: list[int] = []
    add = cells.CellFiles.add

    def added(files: cells.CellFiles, held: cells.Held) -> None:
        spans.append(held.span)
        add(files, held)

    monkeypatch.setattr(cells.CellFiles, "add", added)
    written_by(work_on(tmp_path / "store", tmp_path / "out"))
    assert least < max(spans) < most


@pytest.mark.costly
async def test_attempts_when_two_write_one_cell_then_each_has_files_of_its_own(
    tmp_path: Path,
) -> None:
    """A task that is run again, or twice at once, may not write into a file that counts."""
    await written(tmp_path / "store", messages(90))
    work = work_on(tmp_path / "store", tmp_path / "out")
    first = write_cell(work, 0).to_pylist()
    before = {one["path"]: (tmp_path / "out" / one["path"]).read_bytes() for one in first}
    second = write_cell(work, 0).to_pylist()
    assert before.keys().isdisjoint(one["path"] for one in second)
    assert {path: (tmp_path / "out" / path).read_bytes() for path in before} == before
    assert [one["messages"] for one in second] == [one["messages"] for one in first]


@pytest.mark.parametrize("topics", [None, frozenset(["orders"])])
async def test_damage_when_in_a_cell_then_told_with_its_place(
    tmp_path: Path, topics: frozenset[str] | None
) -> None:
    """Also of other topics than those that are exported: ``--strict`` asks for it."""
    records = await written(tmp_path / "store", messages(90))
    hurt = next(r for r in records[30:] if r.physical_offset % FILE_BYTES and r.topic != "orders")
    flip(tmp_path / "store", hurt.physical_offset + 5)
    work = work_on(tmp_path / "store", tmp_path / "out", topics=topics)
    told = written_by(work).to_pylist()
    (gap,) = (one for one in told if one["path"] is None)
    assert (gap["physicalOffset"], gap["size"], gap["replica"]) == (
        hurt.physical_offset, hurt.size, "store",
    )  # fmt: skip
    wanted = [r for r in records if r is not hurt and (topics is None or r.topic in topics)]
    assert sum(one["messages"] or 0 for one in told) == len(wanted)


@pytest.mark.parametrize("topics", [None, frozenset(["orders"])])
async def test_file_when_it_has_expired_then_told_as_a_gap_that_the_lake_keeps(
    tmp_path: Path, topics: frozenset[str] | None
) -> None:
    """Since the log was listed; what counts as read is replaced in the lake by what was read."""
    records = await written(tmp_path / "store", messages(90))
    work = work_on(tmp_path / "store", tmp_path / "out", topics=topics)
    min((tmp_path / "store" / "commitlog").iterdir()).unlink()
    told = written_by(work).to_pylist()
    (gap,) = (one for one in told if one["path"] is None)
    assert (gap["physicalOffset"], gap["size"]) == (0, FILE_BYTES)
    left = [one for one in records if one.physical_offset >= FILE_BYTES]
    wanted = [one for one in left if topics is None or one.topic in topics]
    assert sum(one["messages"] or 0 for one in told) == len(wanted)


async def test_file_when_it_expires_between_rows_and_damage_then_it_was_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With topics a part is read twice: rows beside a gap would stand twice in the lake."""
    records = await written(tmp_path / "store", messages(90))
    work = work_on(tmp_path / "store", tmp_path / "out", topics=frozenset(["orders"]))
    first = min((tmp_path / "store" / "commitlog").iterdir())
    read_pieces = cells.read_pieces

    def expiring(part: Part, wanted: Wanted, *more: Any, **others: Any) -> Iterator[Piece]:
        yield from read_pieces(part, wanted, *more, **others)
        first.unlink(missing_ok=True)

    monkeypatch.setattr(cells, "read_pieces", expiring)
    told = written_by(work).to_pylist()
    assert all(one["path"] is not None for one in told)
    assert sum(one["messages"] for one in told) == sum(one.topic == "orders" for one in records)
    assert not first.exists()


@pytest.mark.costly
async def test_log_when_it_has_grown_since_then_read_up_to_where_it_ended(tmp_path: Path) -> None:
    """Tasks begin at other times: each would see another end, and a second attempt, too."""
    records = await written(tmp_path / "store", messages(50))
    work = work_on(tmp_path / "store", tmp_path / "out", cell_bytes=FILE_BYTES)
    await written(tmp_path / "store", messages(50, seed=2))
    told = written_by(work).to_pylist()
    assert sum(one["messages"] for one in told) == len(records)
    assert all(one["path"] is not None for one in told), "what came later is no damage"


@pytest.mark.parametrize("gib", [1, 3])
def test_files_when_counted_then_two_a_gigabyte(tmp_path: Path, gib: int) -> None:
    """Of a topic and day: a cell has one, and a GiB two cells."""
    from rmqha.pipeline.lake.layout import CELL_BYTES

    folder = tmp_path / "store" / "commitlog"
    folder.mkdir(parents=True)
    for number in range(gib):
        with (folder / f"{number << 30:020d}").open("wb") as file:
            file.write(b"something, or it was only made ahead")
            file.truncate(1 << 30)
    work = work_on(tmp_path / "store", tmp_path, cell_bytes=CELL_BYTES, end=gib << 30)
    assert len(work.cells) == 2 * gib
    parts = [part for cell in work.cells for part in work.parts(cell)]
    assert sum(part.stop - part.start for part in parts) == gib << 30


@pytest.mark.slow
def test_topics_when_there_are_thousands_then_each_file_is_written_in_one_go(
    tmp_path: Path,
) -> None:
    """A group costs milliseconds, however few its rows are, and a process may have 1024 files open."""
    import resource

    store = SyntheticStore(tmp_path / "store", 1 << 24, queue_units=64)
    for number in range(18_000):
        store.add(f"topic{number % 1500}", number % 2, b"x" * 100)
    store.close()
    work = work_on(tmp_path / "store", tmp_path / "out")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        told = written_by(work, 1 << 18).to_pylist()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(told) == 1500
    assert {one["messages"] for one in told} == {12}
    assert [one.name for one in (tmp_path / "out").iterdir() if not one.is_dir()] == []
    for one in told[::300]:
        file = pq.ParquetFile(tmp_path / "out" / one["path"])
        assert file.num_row_groups == 1
        rows = file.read(["queueId", "queueOffset"])
        order = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        assert order == sorted(order)


@pytest.mark.costly
def test_groups_when_large_then_written_as_they_come(tmp_path: Path) -> None:
    """A file of any size takes the memory of a group."""
    store = SyntheticStore(tmp_path / "store", 1 << 26)
    for number in range(80):
        store.add(f"topic{number % 2}", 0, bytes([number]) * (1 << 19))
    store.add("small", 0, b"")
    store.close()
    told = written_by(work_on(tmp_path / "store", tmp_path / "out"), 4 << 20).to_pylist()
    sums = Counter[str]()
    for one in told:
        sums[one["topic"]] += one["messages"]
    assert sums == {"topic0": 40, "topic1": 40, "small": 1}
    files = [pq.ParquetFile(tmp_path / "out" / one["path"]) for one in told]
    assert max(file.num_row_groups for file in files) > 1
    for file, one in zip(files, told, strict=True):
        assert file.metadata.num_rows == one["messages"]


async def test_topic_when_no_folder_can_have_its_name_then_counted_and_the_others_written(
    tmp_path: Path,
) -> None:
    """One group with a long name had made the export of a store impossible."""
    made = messages(60)
    made[::7] = [one._replace(topic=LONG) for one in made[::7]]
    records = await written(tmp_path / "store", made)
    others = Counter((one.topic, one.body) for one in records if one.topic != LONG)
    told = written_by(work_on(tmp_path / "store", tmp_path / "out"), 4096).to_pylist()
    files = [one for one in told if one["path"] is not None]
    assert sum(one["messages"] for one in files) == sum(others.values())
    found = Counter[tuple[object, ...]]()
    for one in files:
        rows = pq.ParquetFile(tmp_path / "out" / one["path"]).read(["body"])
        found.update((one["topic"], bytes(body)) for body in rows.column("body").to_pylist())
    assert found == others
    (refused,) = (one for one in told if one["path"] is None)
    expected = dict.fromkeys(cells.MANIFEST.names) | {"topic": LONG, "messages": len(made[::7])}
    assert refused == expected


async def test_topic_when_it_has_a_null_character_then_counted_and_the_others_written(
    tmp_path: Path,
) -> None:
    """One such record, and no export of all topics ended any more."""
    records = await written(tmp_path / "store", messages(60))
    hurt = next(one for one in records if one.topic == "orders")
    rename(tmp_path / "store", hurt, "or\0ers")
    told = written_by(work_on(tmp_path / "store", tmp_path / "out")).to_pylist()
    assert sum(one["messages"] for one in told if one["path"] is not None) == 59
    refused = [(one["topic"], one["messages"]) for one in told if one["path"] is None]
    assert refused == [("or\0ers", 1)]


async def test_damage_when_it_begins_at_the_end_that_was_seen_then_it_is_not_told(
    tmp_path: Path,
) -> None:
    """It came later, and belongs to the next run."""
    rows = [
        {"replica": "a", "physicalOffset": at, "size": 1, "_corrupt": "x"} for at in (9, 10, 11)
    ]
    batch = pa.RecordBatch.from_pylist(rows)
    assert [one["physicalOffset"] for one in _damage(batch, 10)] == [9]


async def test_cell_when_a_file_before_a_hole_is_empty_then_somebody_reads_it(
    tmp_path: Path,
) -> None:
    """Who reads it tells the hole."""
    await written(tmp_path / "store", messages(90))
    work = work_on(tmp_path / "store", tmp_path / "out", cell_bytes=FILE_BYTES)
    first, second, *rest = work.replica.files
    hurt = replace(
        work, replica=replace(work.replica, files=(first, replace(second, size=0), *rest))
    )
    assert hurt.cells == work.cells
    part = hurt.parts(second.base)[-1]
    assert (part.start, part.stop, part.missing) == (0, 0, FILE_BYTES)


def test_rows_when_stored_before_1970_then_in_the_day_that_it_was() -> None:
    """A clock that was not set: its last moment before that year is of the year before."""
    at = [-DAY_US - 1, -DAY_US, -1, 0, DAY_US - 1]
    rows = pa.table(
        {
            "topic": ["t"] * len(at),
            "storeTimestamp": pa.array(at, pa.timestamp("us", "UTC")),
            "queueId": pa.array([0] * len(at), pa.int32()),
        }
    )
    _, groups, _ = in_groups(rows)
    assert [(one.day, one.stop - one.start) for one in groups] == [(-2, 1), (-1, 2), (0, 2)]
