"""Topics read by the consume queues: never less than the log has, whatever became of the queues."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from rmqha.pipeline.commitlog import claim_coverage, splits
from rmqha.pipeline.commitlog import claims as units
from rmqha.pipeline.commitlog.batches import Bounds, Wanted, read_part
from rmqha.pipeline.commitlog.claims import Sought
from rmqha.pipeline.commitlog.splits import plan
from rmqha.pipeline.commitlog.store_folder import open_replica
from rmqha.store.consume_queue import UNIT
from tests.pipeline.synthetic import SyntheticStore, Written

FILE_BYTES = 8192
QUEUE_UNITS = 16
TOPICS = ("orders", "payments", "t")
COLUMNS = ("physicalOffset", "size", "topic", "queueId", "queueOffset", "body", "_corrupt")


@pytest.fixture(autouse=True)
def near_anchors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows as small as these files, and few claims looked at together."""
    monkeypatch.setattr(splits, "ANCHOR_WINDOWS", (600, 2000))
    monkeypatch.setattr(claim_coverage, "HOLD_BYTES", 1500)


class Damage(Struct, frozen=True):
    """What happens to a file: by number, at a share of its bytes.

    Attributes:
        where: ``log`` or ``queue``.
        kind: ``flip`` one bit, ``zero`` some bytes, ``cut`` the file there, ``lose`` it.
        share: of the files, and of the bytes in the one.
        size: bytes to zero; its lowest bits also name the bit to flip.
    """

    where: str
    kind: str
    file: float
    share: float
    size: int


SHARE = st.floats(0, 1, exclude_max=True, allow_nan=False)
DAMAGE = st.builds(
    Damage,
    st.sampled_from(["queue", "queue", "log"]),
    st.sampled_from(["flip", "flip", "zero", "cut", "lose"]),
    SHARE, SHARE, st.integers(1, 400),
)  # fmt: skip
STORED = st.lists(
    st.tuples(st.sampled_from(TOPICS), st.integers(0, 1), st.integers(0, 700)),
    min_size=1, max_size=60,
)  # fmt: skip


def inflict(root: Path, damage: Damage) -> None:
    """Damage one file."""
    folder = root / ("commitlog" if damage.where == "log" else "consumequeue")
    files = sorted(path for path in folder.rglob("0*") if path.is_file() and len(path.name) == 20)
    if not files:
        return
    path = files[int(damage.file * len(files))]
    data = bytearray(path.read_bytes())
    at = int(damage.share * len(data))
    if damage.kind == "lose" and damage.where == "queue":
        path.unlink()
    elif damage.kind == "cut":
        path.write_bytes(data[:at])
    elif data:
        if damage.kind == "flip":
            data[at] ^= 1 << damage.size % 8
        else:
            stop = min(at + damage.size, len(data))
            data[at:stop] = bytes(stop - at)
        path.write_bytes(data)


def rows(root: Path, wanted: Wanted, part_bytes: int) -> list[dict[str, Any]]:
    """Every row of every part, in order."""
    return [
        row
        for part in plan(open_replica(str(root)), part_bytes)
        for batch in read_part(part, wanted)
        for row in batch.to_pylist()
    ]


def of_topics(*topics: str, use: bool = True) -> Wanted:
    """A read of whole topics."""
    return Wanted(COLUMNS, topics=frozenset(topics), use_queues=use)


class Case(Struct, frozen=True):
    """A store, what happens to it, and what is read.

    Attributes:
        stored: topic, queue and body size of each message.
        undispatched: how many of the last ones no consume queue has.
    """

    stored: list[tuple[str, int, int]]
    undispatched: int
    harm: list[Damage]
    part_bytes: int
    wanted: Wanted


def check(case: Case) -> None:
    """Write a store, harm it, and read topics of it both ways."""
    stored, wanted = case.stored, case.wanted
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = SyntheticStore(root, FILE_BYTES, QUEUE_UNITS)
        written: dict[int, Written] = {}
        for number, (topic, queue_id, size) in enumerate(stored):
            dispatched = number < len(stored) - case.undispatched
            one = store.add(topic, queue_id, bytes([number]) * size, dispatched=dispatched)
            written[one.at] = one
        store.close(grown=True)
        for one in case.harm:
            inflict(root, one)
        scanned = rows(root, replace(wanted, use_queues=False), case.part_bytes)
        found = rows(root, wanted, case.part_bytes)
        compare(scanned, found, written, wanted)
        if not case.harm:
            assert found == scanned


def compare(
    scanned: list[dict[str, Any]],
    found: list[dict[str, Any]],
    written: dict[int, Written],
    wanted: Wanted,
) -> None:
    """Nothing less than the scan, nothing invented, nothing twice, no gap unsaid."""
    good = {row["physicalOffset"]: row for row in found if row["_corrupt"] is None}
    gaps = [
        (row["physicalOffset"], row["physicalOffset"] + row["size"])
        for row in found
        if row["_corrupt"] is not None
    ]
    assert len(good) + len(set(gaps)) == len(found)
    assert set(good) <= set(written)
    for row in scanned:
        begin, stop = row["physicalOffset"], row["physicalOffset"] + row["size"]
        if row["_corrupt"] is None:
            assert good[begin] == row
            continue
        for one in written.values():
            if begin <= one.at < stop and is_wanted(one, wanted) and one.at not in good:
                assert any(start <= one.at < end for start, end in gaps)


def is_wanted(one: Written, wanted: Wanted) -> bool:
    """Whether it is among what is sought."""
    assert wanted.topics is not None
    ids, offsets = wanted.queue_id, wanted.queue_offset
    return (
        one.topic in wanted.topics
        and ids.low <= one.queue_id <= ids.high
        and offsets.low <= one.queue_offset <= offsets.high
    )


QUICK = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
WANTED = st.builds(
    Wanted,
    st.just(COLUMNS),
    topics=st.sampled_from(
        [frozenset({"orders"}), frozenset({"payments", "none"}), frozenset(TOPICS)]
    ),
    queue_id=st.sampled_from([Bounds(), Bounds(), Bounds(1, 1)]),
    queue_offset=st.sampled_from([Bounds(), Bounds(), Bounds(2, 5), Bounds(low=7)]),
)
CASES = st.builds(
    Case, STORED, st.integers(0, 10), st.lists(DAMAGE, max_size=3),
    st.sampled_from([1000, 3000, 8192]), WANTED,
)  # fmt: skip


@pytest.mark.costly
@QUICK
@given(CASES)
def test_topics_when_read_by_queues_then_never_less_than_by_a_scan(case: Case) -> None:
    """Tails that are not dispatched, queues and logs with turned bits, zeros, cuts, lost files."""
    check(case)


@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(QUICK, max_examples=600)
@given(CASES)
def test_topics_when_read_by_queues_then_never_less_in_many_more_cases(case: Case) -> None:
    """As above."""
    check(case)


def test_topic_when_dispatched_then_the_log_is_not_gone_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the wanted topic's records are looked at, and the tail that no queue has."""
    store = SyntheticStore(tmp_path, FILE_BYTES, QUEUE_UNITS)
    for number in range(200):
        store.add(TOPICS[number % 3], number % 2, bytes(number))
    tail = [store.add("orders", 0, b"late", dispatched=False) for _ in range(3)]
    store.close(grown=True)
    walked: list[int] = []
    walk_headers = splits.walk_headers

    def counted(*args: Any) -> Any:
        run = walk_headers(*args)
        walked.extend(run.positions)
        return run

    monkeypatch.setattr(splits, "walk_headers", counted)
    found = rows(tmp_path, of_topics("orders"), 3000)
    assert len(found) == 67 + 3
    assert set(walked) == {one.at % FILE_BYTES for one in tail}
    assert found == rows(tmp_path, of_topics("orders", use=False), 3000)


@pytest.mark.parametrize("field", [2, 5, 33], ids=["size", "magic", "offset"])
def test_sought_record_when_its_head_is_damaged_then_a_gap_as_in_a_scan(
    tmp_path: Path, field: int
) -> None:
    """What a queue names counts only when the log has it."""
    store = SyntheticStore(tmp_path, FILE_BYTES, QUEUE_UNITS)
    records = [store.add(TOPICS[number % 3], 0, bytes(100)) for number in range(20)]
    store.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[records[9].at + field] ^= 1
    path.write_bytes(data)
    found = rows(tmp_path, of_topics("orders"), FILE_BYTES)
    assert found == rows(tmp_path, of_topics("orders", use=False), FILE_BYTES)
    (gap,) = [row for row in found if row["_corrupt"] is not None]
    assert (gap["physicalOffset"], gap["size"]) == (records[9].at, records[9].size)
    assert len(found) == 7


@pytest.mark.parametrize(("low", "high"), [(2, 4), (0, 0), (6, 6), (5, 90)])
def test_queue_offsets_when_bounded_then_both_bounds_are_read(
    tmp_path: Path, low: int, high: int
) -> None:
    """By the queues as in a scan: the last one was once in the source's hands alone."""
    store = SyntheticStore(tmp_path, FILE_BYTES, QUEUE_UNITS)
    for number in range(42):
        store.add(TOPICS[number % 3], number % 2, bytes(number))
    store.close()
    bounded = replace(of_topics("orders"), queue_offset=Bounds(low, high))
    found = rows(tmp_path, bounded, 3000)
    expected = [*range(low, min(high, 6) + 1)] * 2
    assert sorted(row["queueOffset"] for row in found) == sorted(expected)
    assert found == rows(tmp_path, replace(bounded, use_queues=False), 3000)


def test_record_when_several_queues_name_it_then_it_comes_once(tmp_path: Path) -> None:
    """Light message queues are further queues over the records of another topic."""
    store = SyntheticStore(tmp_path, FILE_BYTES, QUEUE_UNITS)
    records = [store.add(TOPICS[number % 3], 0, bytes(number)) for number in range(40)]
    store.close()
    light = tmp_path / "consumequeue" / "%LMQ%a" / "0"
    light.mkdir(parents=True)
    units_of_light = b"".join(UNIT.pack(one.at, one.size, 0) for one in records[::2])
    (light / f"{0:020d}").write_bytes(units_of_light)
    for topics in (("orders",), ("%LMQ%a",), ("orders", "%LMQ%a")):
        scanned = rows(tmp_path, of_topics(*topics, use=False), 3000)
        assert rows(tmp_path, of_topics(*topics), 3000) == scanned


@pytest.mark.parametrize("sparse", [True, False])
def test_part_when_behind_the_log_s_end_then_nothing_is_gone_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sparse: bool
) -> None:
    """The last file has its full size long before it is full."""
    store = SyntheticStore(tmp_path, 64 << 10)
    end = [store.add("t", 0, bytes(100)) for _ in range(30)][-1]
    store.close(grown=True)
    if not sparse:
        path = tmp_path / "commitlog" / f"{0:020d}"
        path.write_bytes(path.read_bytes())
    parts = plan(open_replica(str(tmp_path)), 8192)
    behind = [part for part in parts if part.start >= end.at + end.size]
    assert len(behind) == 7
    monkeypatch.setattr(splits, "walk_headers", None)
    for part in behind:
        assert not list(read_part(part, Wanted()))


def test_queues_when_too_many_then_the_log_is_gone_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bound on what a task opens."""
    store = SyntheticStore(tmp_path, FILE_BYTES, QUEUE_UNITS)
    for number in range(20):
        store.add(TOPICS[number % 3], number % 2, bytes(number))
    store.close()
    everything = Sought(frozenset(TOPICS))
    queue = tmp_path / "consumequeue" / "orders" / "0"
    (queue / f"{20 * QUEUE_UNITS:020d}").mkdir()
    (queue / "notes").write_text("x")
    assert units.claims(str(tmp_path), everything, 0, FILE_BYTES) is not None
    monkeypatch.setattr(units, "QUEUES_MAX", 5)
    assert units.claims(str(tmp_path), everything, 0, FILE_BYTES) is None
    assert len(rows(tmp_path, of_topics(*TOPICS), FILE_BYTES)) == 20
