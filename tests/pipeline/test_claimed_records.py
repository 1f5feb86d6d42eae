"""Records taken from the consume queues' claims many at once: the very rows of a walk, always."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from rmqha.pipeline.commitlog import claimed_records, splits
from rmqha.pipeline.commitlog.batches import Wanted, read_part
from rmqha.pipeline.commitlog.claim_coverage import ClaimCoverage
from rmqha.pipeline.commitlog.claimed_records import ClaimedRecords
from rmqha.pipeline.commitlog.claims import Claims, Sought, claims
from rmqha.pipeline.commitlog.columns import SCHEMA
from rmqha.pipeline.commitlog.splits import plan
from rmqha.pipeline.commitlog.store_folder import open_replica
from rmqha.store.consume_queue import UNIT
from rmqha.store.record import MAGIC_V1
from tests.pipeline.stores import messages, written
from tests.pipeline.synthetic import SyntheticStore
from tests.pipeline.test_topic_reads import DAMAGE, STORED, Damage, inflict, rows

FILE_BYTES = 8192
QUEUE_UNITS = 16
BY_HOPS = Wanted(use_queues=False)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows as small as these files, and chains of two records already."""
    monkeypatch.setattr(splits, "ANCHOR_WINDOWS", (600, 2000))
    monkeypatch.setattr(ClaimedRecords.__init__, "__defaults__", (2,))


QUICK = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Case(Struct, frozen=True):
    """A store, and what happens to it.

    Attributes:
        stored: topic, queue and body size of each message.
        kept_back: numbers of those that no consume queue has.
    """

    stored: list[tuple[str, int, int]]
    kept_back: set[int]
    harm: list[Damage]
    part_bytes: int


CASES = st.builds(
    Case, STORED, st.sets(st.integers(0, 59)), st.lists(DAMAGE, max_size=4),
    st.sampled_from([1000, 3000, 8192]),
)  # fmt: skip


def check(case: Case) -> None:
    """Write a store, harm it, and read all of it both ways."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = SyntheticStore(root, FILE_BYTES, QUEUE_UNITS)
        for number, (topic, queue_id, size) in enumerate(case.stored):
            body = bytes([number]) * size
            store.add(topic, queue_id, body, dispatched=number not in case.kept_back)
        store.close(grown=True)
        for one in case.harm:
            inflict(root, one)
        assert table(root, Wanted(), case.part_bytes).equals(table(root, BY_HOPS, case.part_bytes))


def table(root: Path, wanted: Wanted, part_bytes: int) -> pa.Table:
    """Every row and column in the order of the log: damaged inside, a record comes before others."""
    parts = plan(open_replica(str(root)), part_bytes)
    found = [batch for part in parts for batch in read_part(part, wanted)]
    return pa.Table.from_batches(found, SCHEMA).sort_by("physicalOffset")


@pytest.mark.slow
@QUICK
@given(CASES)
def test_log_when_read_by_claims_then_the_rows_of_a_hop(case: Case) -> None:
    """Records that no queue has, queues and logs with turned bits, zeros, cuts, lost files."""
    check(case)


@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(QUICK, max_examples=300)
@given(CASES)
def test_log_when_read_by_claims_then_the_rows_of_a_hop_in_many_more_cases(case: Case) -> None:
    """As above."""
    check(case)


def walked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Filled with the positions that are walked over from now on."""
    found: list[int] = []
    walk_headers = splits.walk_headers

    def counted(*args: Any) -> Any:
        run = walk_headers(*args)
        found.extend(run.positions)
        return run

    monkeypatch.setattr(splits, "walk_headers", counted)
    return found


def test_records_when_all_are_dispatched_then_none_is_hopped_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a tail that no queue has, is."""
    store = SyntheticStore(tmp_path, FILE_BYTES, QUEUE_UNITS)
    for number in range(100):
        store.add("t", number % 3, bytes(number))
    tail = [store.add("t", 0, b"late", dispatched=False) for _ in range(3)]
    store.close(grown=True)
    expected = rows(tmp_path, BY_HOPS, 3000)
    found = walked(monkeypatch)
    assert rows(tmp_path, Wanted(), 3000) == expected
    assert {one.at % FILE_BYTES for one in tail} <= set(found)
    assert len(found) < 12  # the tail, and the single records at the ends of parts
    assert len(expected) == 103


@pytest.mark.costly
async def test_hosts_when_some_are_v6_then_every_column_is_that_of_a_hop(tmp_path: Path) -> None:
    """What a row of claims has read of the heads serves only where hosts are short."""
    records = await written(tmp_path, messages(60))
    found = rows(tmp_path, Wanted(), 5000)
    assert found == rows(tmp_path, BY_HOPS, 5000)
    assert len(found) == len(records)


@pytest.mark.parametrize("part_bytes", [900, FILE_BYTES])
def test_queue_when_it_names_records_inside_a_body_then_none_is_invented(
    tmp_path: Path, part_bytes: int
) -> None:
    """A body full of records for their own places, and a damaged queue that claims them."""
    inner = SyntheticStore(tmp_path / "inner", FILE_BYTES, QUEUE_UNITS)
    size = inner.add("t", 0, b"bait").size
    inner.close()
    raw = bytearray((tmp_path / "inner" / "commitlog" / f"{0:020d}").read_bytes()[:size])
    for turn in range(2):  # the first turn shows where the body will stand
        root = tmp_path / f"turn{turn}"
        store = SyntheticStore(root, FILE_BYTES, QUEUE_UNITS)
        before = [store.add("t", 0, bytes(50)) for _ in range(6)]
        body = bytearray()
        start = before[-1].at + before[-1].size + 88
        for number in range(12):
            raw[28:36] = (start + number * size).to_bytes(8)
            body += raw
        host = store.add("t", 0, bytes(body))
        after = [store.add("t", 0, bytes(50)) for _ in range(20)]
        store.close()
    false = b"".join(UNIT.pack(start + number * size, size, 0) for number in range(12))
    folder = root / "consumequeue" / "z" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(false)
    found = rows(root, Wanted(), part_bytes)
    assert [row["physicalOffset"] for row in found] == [one.at for one in [*before, host, *after]]
    assert found == rows(root, BY_HOPS, part_bytes)


@pytest.mark.parametrize("field", [2, 5, 33], ids=["size", "magic", "offset"])
def test_record_when_its_head_is_damaged_then_the_chain_ends_before_it(
    tmp_path: Path, field: int
) -> None:
    """Each field that is checked is."""
    store = SyntheticStore(tmp_path, FILE_BYTES, QUEUE_UNITS)
    made = [store.add("t", 0, bytes(100)) for _ in range(20)]
    store.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[made[9].at + field] ^= 1
    named = claims(str(tmp_path), Sought(), 0, FILE_BYTES)
    assert named is not None
    linked = ClaimedRecords(named, memoryview(data), 0).link(made[0].at, 100, FILE_BYTES)
    assert linked is not None
    assert linked.positions.tolist() == [one.at for one in made[:9]]
    assert linked.stop == made[9].at
    assert ClaimedRecords(named, memoryview(data), 0).link(made[9].at, 100, FILE_BYTES) is None
    assert ClaimedRecords(named, memoryview(data), 0).link(made[0].at + 1, 100, FILE_BYTES) is None
    again = ClaimedRecords(named, memoryview(data), 0).link(made[10].at, 5, FILE_BYTES)
    assert again is not None
    assert again.positions.tolist() == [one.at for one in made[10:15]]


def test_claims_when_of_no_use_then_more_is_hopped_each_time() -> None:
    """Up to a bound; once a claim holds, from the beginning."""
    empty = Claims(*(np.zeros(0, kind) for kind in "qq?"))
    claimed = ClaimedRecords(empty, memoryview(bytes(1000)), 0)
    assert claimed.link(0, 100, FILE_BYTES) is None
    assert list(claimed.before(500, 500)) == []
    assert [claimed.steps() for _ in range(4)] == [2, 4, 8, 16]
    assert max(claimed.steps() for _ in range(20)) == claimed_records.STEPS_MAX


def test_queues_when_too_many_to_ask_then_the_log_is_hopped_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking has its price, too."""
    store = SyntheticStore(tmp_path, FILE_BYTES, QUEUE_UNITS)
    for number in range(40):
        store.add("t", number % 4, bytes(number))
    store.close()
    expected = rows(tmp_path, Wanted(), FILE_BYTES)
    monkeypatch.setattr(claimed_records, "QUEUES_MAX", 3)
    found = walked(monkeypatch)
    assert rows(tmp_path, Wanted(), FILE_BYTES) == expected
    assert len(found) == 40


@pytest.mark.parametrize(
    "wanted",
    [Wanted(), BY_HOPS, Wanted(topics=frozenset({"t"})), Wanted(("physicalOffset", "size"))],
    ids=["by claims", "by headers", "claims of one topic", "no body"],
)
def test_batches_when_large_then_they_are_cut_by_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Wanted
) -> None:
    """However the records are found; a record belongs to the batch in which it begins."""
    from rmqha.pipeline.commitlog import batches

    store = SyntheticStore(tmp_path, FILE_BYTES, QUEUE_UNITS)
    made = [store.add("t", 0, bytes(size)) for size in (*range(40), 900, *range(5))]
    store.close()
    monkeypatch.setattr(batches, "BYTES_PER_BATCH", 1000)
    monkeypatch.setattr(batches, "BODIES_PER_BATCH", 700)
    most = 700 if "body" in wanted.columns else 1000
    found = [
        [row["physicalOffset"] for row in batch.to_pylist()]
        for part in plan(open_replica(str(tmp_path)), FILE_BYTES)
        for batch in read_part(part, wanted)
    ]
    assert [at for batch in found for at in batch] == [one.at for one in made]
    assert max(len(batch) for batch in found) > 2
    assert max(batch[-1] - batch[0] for batch in found) < most


def test_claim_when_false_behind_a_hole_then_dropped() -> None:
    """What stands behind an edge is doubted as well as what stands before it."""
    data = bytearray(400)
    for at in (0, 250):
        data[at : at + 8] = (100).to_bytes(4) + MAGIC_V1.to_bytes(4)
        data[at + 28 : at + 36] = at.to_bytes(8)
    at, size = np.array([0, 150, 250]), np.array([100, 100, 100])
    found = ClaimCoverage(Claims(at, size, np.zeros(3, np.bool_)), memoryview(data), 0, 0)
    assert found.stretch(150) is None
    assert found.next_after(0) == 250
