"""Where a log ends, for the audit's plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqha.pipeline.commitlog import compare
from rmqha.pipeline.commitlog.compare import Range, log_end, records_of
from rmqha.pipeline.commitlog.store_folder import open_replica
from rmqha.store.consume_queue import UNIT
from tests.pipeline.synthetic import SyntheticStore, Written

FILE_BYTES = 8192


def store(root: Path, *, undispatched: int = 0) -> tuple[list[Written], int]:
    """Two files and some, the last in its full size; its records and its end."""
    made = SyntheticStore(root, FILE_BYTES, 16)
    records = [
        made.add("t", 0, bytes(number), dispatched=number < 70 - undispatched)
        for number in range(70)
    ]
    return records, made.close(grown=True)


@pytest.mark.parametrize("undispatched", [0, 5, 70])
def test_end_when_queues_lag_then_behind_the_last_record(tmp_path: Path, undispatched: int) -> None:
    """The queues only say where to begin."""
    _, end = store(tmp_path, undispatched=undispatched)
    assert log_end(open_replica(str(tmp_path))) == end


def test_end_when_dispatched_then_the_file_is_not_gone_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of a gigabyte takes a second else."""
    records, end = store(tmp_path)
    starts: list[int] = []
    read_part = compare.read_part
    monkeypatch.setattr(
        compare,
        "read_part",
        lambda part, *rest: starts.append(part.start) or read_part(part, *rest),
    )
    assert log_end(open_replica(str(tmp_path))) == end
    assert starts == [records[-1].at % FILE_BYTES]


def test_end_when_a_queue_names_what_is_not_there_then_the_log_says(tmp_path: Path) -> None:
    """A unit that points behind the end, as a power cut may leave one."""
    records, end = store(tmp_path)
    folder = tmp_path / "consumequeue" / "other" / "0"
    folder.mkdir(parents=True)
    for at in (end + 500, records[-1].at + 10):
        (folder / f"{0:020d}").write_bytes(UNIT.pack(at, 300, 0))
        assert log_end(open_replica(str(tmp_path))) == end


def test_end_when_the_last_file_is_empty_then_where_it_begins(tmp_path: Path) -> None:
    """Reserved ahead, nothing in it yet."""
    store(tmp_path)
    (tmp_path / "commitlog" / f"{10 * FILE_BYTES:020d}").write_bytes(bytes(FILE_BYTES))
    assert log_end(open_replica(str(tmp_path))) == 10 * FILE_BYTES


@pytest.mark.parametrize("into", [1, 60, 110])
def test_range_when_a_record_crosses_its_beginning_then_that_is_seen_too(
    tmp_path: Path, into: int
) -> None:
    """Bytes that differ behind the edge are of a message that begins before it."""
    made = SyntheticStore(tmp_path, 1 << 20, 16)
    records = [made.add("t", 0, bytes(100)) for _ in range(9)]
    made.add("t", 0, bytes(300_000))
    made.add("t", 0, b"last")
    made.close()
    replica = open_replica(str(tmp_path))
    (file,) = replica.files
    for chosen, stop in ((records[4], records[7].at), (records[8], records[8].at + 150)):
        one = Range(0, None, chosen.at + into, stop, file.path, file.base)
        assert next(records_of(replica, one)).physical_offset == chosen.at
        edge = Range(0, None, chosen.at, stop, file.path, file.base)
        assert next(records_of(replica, edge)).physical_offset == chosen.at
    inside = Range(0, None, records[8].at + 250_000, records[8].at + 260_000, file.path, file.base)
    assert [
        (seen.physical_offset, seen.size > 300_000) for seen in records_of(replica, inside)
    ] == [(records[8].at + records[8].size, True)], (
        "a message longer than a range is found from its middle"
    )
