"""Where a log ends, for the audit's plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqha.pipeline import read
from rmqha.pipeline.commitlog import compare
from rmqha.pipeline.commitlog.compare import (
    Difference,
    Range,
    Span,
    alone,
    differences,
    hash_of,
    log_end,
    nameless,
    plan_ranges,
    records_of,
)
from rmqha.pipeline.commitlog.store_folder import open_replica
from rmqha.pipeline.jobs.audit import Audit, Hashed, different, report
from rmqha.store.consume_queue import UNIT
from tests.pipeline.synthetic import SyntheticStore, Written

FILE_BYTES = 8192


def store(root: Path, *, undispatched: int = 0, count: int = 70) -> tuple[list[Written], int]:
    """Two files and some, the last in its full size; its records and its end."""
    made = SyntheticStore(root, FILE_BYTES, 16)
    records = [
        made.add("t", 0, bytes(number), dispatched=number < count - undispatched)
        for number in range(count)
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


def ahead(root: Path, number: int, data: bytes = b"") -> Path:
    """A file that was made before anything was written to it, or with something in it."""
    path = root / "commitlog" / f"{number * FILE_BYTES:020d}"
    path.write_bytes(data.ljust(FILE_BYTES, b"\0"))
    return path


@pytest.mark.parametrize("sparse", [True, False])
def test_end_when_next_files_were_made_ahead_then_behind_the_last_record(
    tmp_path: Path, *, sparse: bool
) -> None:
    """Java makes two ahead, and writes zeros to them when it warms them up. Taken for the log's end
    they made damage of the rest of the file before, and replicas that agree differed."""
    _, end = store(tmp_path)
    files = open_replica(str(tmp_path)).files
    last = files[-1].base // FILE_BYTES
    for number in (last + 1, last + 2):
        path = ahead(tmp_path, number)
        if sparse:
            path.write_bytes(b"")
            with path.open("r+b") as file:
                file.truncate(FILE_BYTES)
    replica = open_replica(str(tmp_path))
    assert replica.files == files
    assert replica.foreign == ()
    assert log_end(replica) == end
    rows = read(str(tmp_path), columns=["_corrupt"]).to_table().column(0).to_pylist()
    assert rows == [None] * 70


def test_end_when_the_last_file_has_something_at_its_very_end_then_it_is_one_of_the_log(
    tmp_path: Path,
) -> None:
    """Its first records may be what was lost."""
    store(tmp_path)
    last = open_replica(str(tmp_path)).files[-1]
    path = ahead(tmp_path, last.base // FILE_BYTES + 1, bytes(FILE_BYTES - 1) + b"x")
    assert open_replica(str(tmp_path)).files[-1].path == str(path)


def test_store_when_all_its_files_are_empty_then_the_first_is_its_log(tmp_path: Path) -> None:
    """A broker that has just been set up."""
    SyntheticStore(tmp_path, FILE_BYTES)
    ahead(tmp_path, 0), ahead(tmp_path, 1)
    replica = open_replica(str(tmp_path))
    assert [one.base for one in replica.files] == [0]
    assert log_end(replica) == 0


def audited(*roots: Path) -> tuple[int, list[tuple[int, int]], list[int]]:
    """How many ranges were compared, which differ, and at which offsets messages do."""
    replicas = [open_replica(str(one)) for one in roots]
    plan = plan_ranges(replicas, range_bytes=FILE_BYTES // 2)
    hashed = (
        Hashed(one.start, one.stop, one.epoch, hash_of(one, b"s" * 16)) for one in plan.ranges
    )
    count, bad = different(hashed)
    offsets = set()
    for start, _ in bad:
        chosen = [one for one in plan.ranges if one.start == start]
        seen = [item for one in chosen for item in records_of(replicas[one.replica], one)]
        names, present = [one.name for one in replicas], [one.replica for one in chosen]
        offsets |= {one.physical_offset for one in differences(seen, names, present)}
    return count, bad, sorted(offsets)


def test_audit_when_a_replica_lacks_a_file_or_its_end_then_that_differs(tmp_path: Path) -> None:
    """Ranges that one of two lacks were dropped, and the audit said that the replicas are equal."""
    records, _ = store(tmp_path / "a", count=120)
    store(tmp_path / "b", count=120)
    whole, bad, _ = audited(tmp_path / "a", tmp_path / "b")
    assert (bad, whole) == ([], audited(tmp_path / "b", tmp_path / "a")[0])
    files = sorted((tmp_path / "b" / "commitlog").iterdir())
    assert len(files) > 3
    with files[1].open("r+b") as file:
        file.truncate(1000)
    short = FILE_BYTES + 1000
    there = [one for one in records if FILE_BYTES <= one.at < 2 * FILE_BYTES]
    lost = [one.at for one in there]
    _, bad, offsets = audited(tmp_path / "a", tmp_path / "b")
    assert (bad[0][0], bad[-1][1]) == (short, 2 * FILE_BYTES)
    assert offsets == [one.at for one in there if one.at + one.size > short], "one of them is cut"
    files[1].unlink()
    for order in (("a", "b"), ("b", "a")):
        _, bad, offsets = audited(*(tmp_path / one for one in order))
        assert (bad[0][0], bad[-1][1]) == (FILE_BYTES, 2 * FILE_BYTES)
        assert offsets == lost


def test_audit_when_a_replica_begins_later_or_ends_earlier_then_that_is_no_difference(
    tmp_path: Path,
) -> None:
    """Its first files have expired; its slave has not got the last bytes yet."""
    store(tmp_path / "a", count=120)
    store(tmp_path / "b", count=120)
    first, *_, last = sorted((tmp_path / "b" / "commitlog").iterdir())
    first.unlink(), last.unlink()
    assert audited(tmp_path / "a", tmp_path / "b")[1:] == ([], [])


def test_audit_when_files_expire_while_it_runs_then_that_is_no_difference(tmp_path: Path) -> None:
    """Hashing takes hours, and retention goes on; what two stores still have is compared."""
    roots = [tmp_path / name for name in "abc"]
    for root in roots:
        store(root, count=120)
    replicas = [open_replica(str(one)) for one in roots]
    plan = plan_ranges(replicas, range_bytes=FILE_BYTES // 2)
    for count, root in enumerate(roots):
        for path in sorted((root / "commitlog").iterdir())[:count]:
            path.unlink()
    hashed = [
        Hashed(one.start, one.stop, one.epoch, hash_of(one, b"s" * 16)) for one in plan.ranges
    ]
    compared, bad = different(hashed)
    assert bad == []
    places = {(one.start, one.stop) for one in plan.ranges}
    assert compared == sum(start >= FILE_BYTES for start, _ in places) < len(places)
    seen = [one for range_ in plan.ranges for one in records_of(replicas[range_.replica], range_)]
    gone = {(one.replica, one.physical_offset) for one in seen if one.corrupt}
    assert (1, 0) in gone
    assert not any(replica == 0 for replica, _ in gone)


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


def test_range_when_nothing_begins_where_a_record_ends_then_that_record_is_not_named(
    tmp_path: Path,
) -> None:
    """Two replicas that differ behind the last record of a file would be said to differ in it."""
    records, end = store(tmp_path)
    replica = open_replica(str(tmp_path))
    file = replica.files[-1]
    behind = Range(0, None, end, end + 50, file.path, file.base)
    assert list(records_of(replica, behind)) == []
    last = Range(0, None, end - 1, end + 50, file.path, file.base)
    assert [one.physical_offset for one in records_of(replica, last)] == [records[-1].at]


A, B, C = (0, 100), (100, 200), (200, 300)


@pytest.mark.parametrize(
    ("spans", "lonely"),
    [
        ([[A, B], [A, B]], []),
        ([[A, B], [A, B], []], [2]),
        ([[A, B], [C], [B]], [1]),
        ([[A], [B], [C]], [0, 1, 2]),
        ([[A, A], [B, C], [C]], [0]),
        ([[], []], [0, 1]),
    ],
)
def test_replica_when_it_shares_no_range_with_another_then_named(
    spans: list[list[Span]], lonely: list[int]
) -> None:
    """A mount that was missing: the others were equal, and so it was said of all three."""
    assert alone(spans) == lonely


def test_plan_when_a_store_is_empty_then_it_has_nothing_in_common(tmp_path: Path) -> None:
    """The plan of the other two says so."""
    for name in "ab":
        store(tmp_path / name)
    (tmp_path / "c" / "commitlog").mkdir(parents=True)
    plan = plan_ranges([open_replica(str(tmp_path / name)) for name in "abc"])
    assert {one.replica for one in plan.ranges} == {0, 1}


def differing(at: int, size: int) -> Difference:
    return Difference(at, size, None, None, None, (), "")


@pytest.mark.parametrize(
    ("places", "left"),
    [
        ([], [A, B]),
        ([(0, 100)], [B]),
        ([(99, 1)], [B]),
        ([(99, 2)], []),
        ([(100, 1)], [A]),
        ([(200, 10)], [A, B]),
        ([(50, 10), (150, 10)], []),
    ],
)
def test_range_when_no_message_in_it_is_named_then_told(
    places: list[tuple[int, int]], left: list[Span]
) -> None:
    """A byte between two files' last records was counted, and nobody said where it was."""
    assert nameless([A, B], [differing(*one) for one in places]) == left


@pytest.mark.parametrize(
    ("compared", "bad", "lonely", "told"),
    [
        (3, (), (), "The replicas are equal."),
        (3, (), ("c",), "The others are equal; nothing of c was compared."),
        (3, (A,), ("c",), "The replicas differ."),
        (0, (), ("a", "b"), "Nothing was compared."),
    ],
)
def test_page_when_not_all_was_compared_then_it_does_not_say_equal(
    tmp_path: Path, compared: int, bad: tuple[Span, ...], lonely: tuple[str, ...], told: str
) -> None:
    """It is what people keep."""
    for name in "ab":
        store(tmp_path / name)
    plan = plan_ranges([open_replica(str(tmp_path / name)) for name in "ab"])
    page = report(["a", "b", "c"], Audit(plan, compared, bad, (), bad, lonely))
    assert told in page
    assert page.count(" equal") == ("equal" in told)
    assert ('<td class="n">100</td>' in page) == bool(bad)


def test_plan_when_one_replica_is_longer_then_up_to_where_two_have_bytes(tmp_path: Path) -> None:
    """What only one has can be compared with nothing."""
    ends = [store(tmp_path / name, count=count)[1] for name, count in (("a", 70), ("b", 50))]
    replicas = [open_replica(str(tmp_path / name)) for name in "ab"]
    plan = plan_ranges(replicas)
    assert (plan.high, plan.end) == (ends[1], ends[1])
    assert ends[1] < ends[0]
