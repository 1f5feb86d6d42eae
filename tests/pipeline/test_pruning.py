"""What is not opened: files whose offsets and times cannot be wanted."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqha.pipeline import read
from rmqha.pipeline.commitlog import pruning, store_folder
from rmqha.pipeline.commitlog.batches import Bounds, Wanted
from rmqha.pipeline.commitlog.pages import mapped
from rmqha.pipeline.commitlog.pruning import CLOCK_MS, file_times, plan_wanted
from rmqha.pipeline.commitlog.splits import plan, plan_range
from rmqha.pipeline.commitlog.store_folder import LogFile, StoreFolder, open_replica
from tests.pipeline.synthetic import SyntheticStore
from tests.store.harness import BORN_MS

FILE_BYTES = 1 << 20
HOUR = 3_600_000


@pytest.fixture
def hourly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten files, an hour of log each."""
    monkeypatch.setattr("tests.pipeline.synthetic.BORN_MS", Hours())
    store = SyntheticStore(tmp_path, FILE_BYTES)
    at = 0
    while at < 10 * FILE_BYTES - 100_000:
        at = store.add("orders", 0, bytes(30_000)).at
    store.close(grown=True)
    return tmp_path


class Hours:
    """Added to a record's offset: the time at which it is stored."""

    def __add__(self, at: int) -> int:
        return BORN_MS + at * HOUR // FILE_BYTES


def test_hour_when_asked_then_only_files_of_that_hour_are_gone_through(
    hourly: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those a clock's step away; of the others no more than the first record is looked at."""
    opened = []

    @contextmanager
    def seen(path: str, **how: Any) -> Iterator[memoryview]:
        if how["bytes_max"] is None:
            opened.append(int(Path(path).name) // FILE_BYTES)
        with mapped(path, **how) as buffer:
            yield buffer

    monkeypatch.setattr(store_folder, "mapped", seen)
    whole = read(hourly).to_table(columns=["storeTimestamp", "physicalOffset"])
    assert sorted(opened) == list(range(10))
    opened.clear()
    since, until = BORN_MS + 4 * HOUR + HOUR // 4, BORN_MS + 5 * HOUR - HOUR // 4
    found = read(hourly).to_table(columns=["physicalOffset"], since=since, until=until)
    assert opened == [4]
    stored = whole.column("storeTimestamp").cast("int64").to_pylist()
    expected = [
        at
        for at, us in zip(whole.column("physicalOffset").to_pylist(), stored, strict=True)
        if since <= us // 1000 < until
    ]
    assert len(expected) > 10
    assert found.column("physicalOffset").to_pylist() == expected
    opened.clear()
    read(hourly, until=BORN_MS - HOUR).to_table()
    assert opened == []


def test_offsets_when_asked_then_no_other_file_is_looked_at(
    hourly: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even its first record."""
    looked = []

    @contextmanager
    def seen(path: str, **how: Any) -> Iterator[memoryview]:
        looked.append(int(Path(path).name) // FILE_BYTES)
        with mapped(path, **how) as buffer:
            yield buffer

    monkeypatch.setattr(store_folder, "mapped", seen)
    wanted = Wanted(
        physical_offset=Bounds(3 * FILE_BYTES, 5 * FILE_BYTES - 1),
        store_timestamp=Bounds(BORN_MS + 3 * HOUR),
    )
    parts = plan_wanted(open_replica(str(hourly)), wanted)
    assert [part.file.base // FILE_BYTES for part in parts] == [3, 4]
    assert looked == [3, 4]


def test_clock_when_set_back_then_the_files_around_keep_both_times(
    hourly: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that begins later than the next one may hold all between, and more."""
    firsts = iter([0, 5 * HOUR, 2 * HOUR, None, 9 * HOUR, None])
    monkeypatch.setattr(pruning, "_first_ms", lambda file: next(firsts))
    times = file_times([LogFile("", base, 1) for base in range(6)])
    step = CLOCK_MS
    assert [(one.low, one.high) for one in times.values()] == [
        (-step, 5 * HOUR + step),
        (2 * HOUR - step, 5 * HOUR + step),
        (2 * HOUR - step, 9 * HOUR + step),
        (2 * HOUR - step, 9 * HOUR + step),
        (9 * HOUR - step, Bounds().high),
        (9 * HOUR - step, Bounds().high),
    ]


def test_file_when_its_beginning_is_damaged_then_it_is_gone_through(hourly: Path) -> None:
    """When it begins nobody knows; only that it is behind the one before."""
    path = hourly / "commitlog" / f"{4 * FILE_BYTES:020d}"
    with path.open("r+b") as file:
        file.write(b"\xff" * 8)
    late = Wanted(
        store_timestamp=Bounds(BORN_MS + 4 * HOUR + HOUR // 2, BORN_MS + 4 * HOUR + HOUR // 2)
    )
    parts = plan_wanted(open_replica(str(hourly)), late)
    assert [part.file.base // FILE_BYTES for part in parts] == [3, 4]


def test_parts_when_a_log_has_thousands_then_each_is_small() -> None:
    """10 TB are 80,000 parts; with every file's name in each of them a plan was gigabytes."""
    files = tuple(
        LogFile(f"/store/commitlog/{n << 30:020d}", n << 30, 1 << 30) for n in range(1000)
    )
    replica = StoreFolder("a", "/store", 1, files, ((0, 1),), ())
    parts = plan(replica)
    assert len(parts) == 8000
    assert max(len(pickle.dumps(part)) for part in parts) < 1000


def chosen(store: StoreFolder, low: int, high: int) -> set[tuple[int, int]]:
    """The parts that are read for a range of offsets: file and first byte."""
    wanted = Wanted(("physicalOffset",), physical_offset=Bounds(low, high))
    return {(one.file.base, one.start) for one in plan_wanted(store, wanted, 100_000)}


def test_part_when_only_its_first_or_last_byte_is_wanted_then_it_is_read(hourly: Path) -> None:
    """One byte less loses a row; one more opens a file for nothing."""
    store = open_replica(str(hourly))
    parts = plan(store, 100_000)
    assert len(parts) > 20
    for part in parts:
        mine = part.file.base, part.start
        first, last = part.file.base + part.start, part.file.base + part.stop - 1
        assert chosen(store, first, first) == {mine}
        assert chosen(store, last, last) == {mine}
        assert mine in chosen(store, 0, first)
        assert mine not in chosen(store, 0, first - 1)
        assert mine not in chosen(store, last + 1, last + 1_000_000)


def test_hole_when_offsets_inside_of_it_are_wanted_then_it_is_told(hourly: Path) -> None:
    """A file is gone: whoever asks for what it had must not take nothing for an answer."""
    gone = hourly / "commitlog" / f"{3 * FILE_BYTES:020d}"
    gone.unlink()
    inside = 3 * FILE_BYTES + 1000
    table = read(str(hourly), columns=["physicalOffset", "_corrupt"]).to_table()
    (hole,) = (one for one in table.to_pylist() if one["_corrupt"] is not None)
    assert hole["physicalOffset"] == 3 * FILE_BYTES
    store = open_replica(str(hourly))
    parts = plan(store, 100_000)
    (before,) = (one for one in parts if one.missing)
    assert chosen(store, inside, inside) == {(before.file.base, before.start)}


def test_range_when_it_ends_inside_a_file_before_a_hole_then_nothing_is_missing(
    hourly: Path,
) -> None:
    """The hole belongs to whoever reads up to it."""
    (hourly / "commitlog" / f"{3 * FILE_BYTES:020d}").unlink()
    store = open_replica(str(hourly))
    inside = plan_range(store, (0, 3 * FILE_BYTES - 1), 100_000)
    assert [one.missing for one in inside if one.missing] == []
    up_to = plan_range(store, (0, 3 * FILE_BYTES), 100_000)
    assert [one.missing for one in up_to if one.missing] == [FILE_BYTES]
