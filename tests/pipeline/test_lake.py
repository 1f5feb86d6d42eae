"""Names of a lake's files, and what of a log was read, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.commitlog.store_folder import LogFile, open_replica
from rmqha.pipeline.lake.files import LocalFiles, cell_bytes_of, table_label, work_folder
from rmqha.pipeline.lake.layout import (
    CELL_BYTES,
    EARLIER_CELL_BYTES,
    Found,
    LakeBusy,
    Place,
    SetName,
    file_name,
    has_folder,
    is_earlier,
    own_place,
    reach,
    refuse_replicas,
    set_name,
    spans_read,
    topic_folder,
    topic_of,
)
from tests.pipeline.stores import messages, written

NAMES = st.text(st.sampled_from("a-@/%=0_. é"), min_size=1, max_size=12)


@given(NAMES, NAMES, NAMES, NAMES, st.integers(0, 2**62))
def test_file_when_named_then_only_its_set_knows_it(
    cluster: str, broker: str, other_cluster: str, other_broker: str, start: int
) -> None:
    """Whatever a set is called: a name that another set reads as its own loses rows."""
    name, other = SetName(cluster, broker), SetName(other_cluster, other_broker)
    found = Found(f"topic=t/day=d/{file_name(name, start)}", 1, 1)
    assert "/" not in found.name
    assert not found.name.startswith(("_", ".")), "Spark would not see it"
    assert own_place(name, found) == Place("topic=t/day=d", start)
    assert (own_place(other, found) is not None) == (name == other)
    assert not is_earlier(found)


def test_file_when_spark_named_it_then_of_the_layout_before() -> None:
    """And nobody's own."""
    found = Found("topic=%25RETRY%25g/day=2026-01-01/part-00000-x.c000.snappy.parquet", 1, 1)
    assert is_earlier(found)
    assert own_place(SetName("c", "b"), found) is None
    assert topic_of(found.folder) == "%RETRY%g"


SIZE = 50
GAPS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), max_size=6)


@pytest.mark.costly
@given(st.sets(st.integers(0, 7)), st.integers(0, 450), GAPS)
def test_spans_when_read_then_every_byte_of_files_and_none_of_gaps(
    bases: set[int], end: int, gaps: list[tuple[int, int]]
) -> None:
    """A byte too many would let rows go that nothing replaces."""
    files = [LogFile("f", base * SIZE, SIZE) for base in sorted(bases)]
    spans = spans_read(files, end, [(at, at + size) for at, size in gaps])
    read = [at for start, stop in spans for at in range(start, stop)]
    hurt = {byte for at, size in gaps for byte in range(at, at + size)}
    had = {byte for one in files for byte in range(one.base, min(end, one.base + SIZE))}
    assert read == sorted(had - hurt)
    for start in range(0, 450, 30):
        cell = set(range(start, start + 30))
        found = reach(spans, start, start + 30)
        assert found.any == bool(cell & set(read))
        assert not found.all or cell <= set(read)
        in_one = any(low <= start and start + 30 <= high for low, high in spans)
        assert found.all == in_one


def test_topics_when_they_become_folders_then_come_back() -> None:
    """Spark reads a folder's name as the topic; what it would escape, it undoes."""
    assert topic_folder("orders") == "topic=orders"
    assert topic_folder("%RETRY%g") == "topic=%25RETRY%25g"
    assert topic_folder("") == "topic=__HIVE_DEFAULT_PARTITION__"
    for topic in ("a/b", "a=b:c", "{x}[y]^", "q\"#'*?\\", "\x01\x7f", "caf\u00e9 1"):
        assert "/" not in topic_folder(topic)
        assert topic_of(topic_folder(topic)) == topic


@pytest.mark.parametrize(
    ("topic", "fits"),
    [
        ("", True),
        ("a" * 249, True),
        ("a" * 250, False),
        ("%RETRY%" + "g" * 238, True),
        ("%RETRY%" + "g" * 239, False),
        ("é" * 124 + "a", True),
        ("é" * 125, False),
        ("a\0b", False),
    ],
)
def test_topic_when_its_folders_name_is_long_then_bytes_count(
    tmp_path: Path, topic: str, fits: bool
) -> None:
    """As the file system counts them; it takes no null character."""
    assert has_folder(topic) == fits
    try:
        (tmp_path / topic_folder(topic)).mkdir()
    except (OSError, ValueError):
        assert not fits
    else:
        assert fits


def test_cells_when_a_lake_is_older_than_their_size_then_as_it_was(tmp_path: Path) -> None:
    """The size is in the names: with another one a second export would double what the first wrote."""
    new, old = LocalFiles(str(tmp_path / "new")), LocalFiles(str(tmp_path / "old"))
    folder = tmp_path / "old" / "topic=t" / "day=2026-01-02"
    folder.mkdir(parents=True)
    (folder / file_name(SetName("c", "a"), EARLIER_CELL_BYTES)).write_bytes(b"")
    assert [cell_bytes_of(new, size) for size in (CELL_BYTES, 4096)] == [CELL_BYTES] * 2
    assert [cell_bytes_of(old, CELL_BYTES) for _ in range(2)] == [EARLIER_CELL_BYTES] * 2
    old.mark("_layout/cells-1")
    with pytest.raises(ConfigInvalid, match="must name one size of cells"):
        cell_bytes_of(old, CELL_BYTES)


async def test_replicas_when_of_other_sets_then_taken(tmp_path: Path) -> None:
    """Logs that begin at one offset, as all do, are not one log; empty ones are none."""
    found = []
    for number, name in enumerate("abc"):
        await written(tmp_path / name, messages(5 * number, seed=number))
        replica = open_replica(str(tmp_path / name))
        found.append((replica, set_name(replica, None, f"c/{name}")))
    refuse_replicas(found)
    with pytest.raises(ConfigInvalid, match="are both of broker set b of c"):
        refuse_replicas([*found, (found[0][0], found[1][1])])
    with pytest.raises(ConfigInvalid, match="the same record at 0"):
        refuse_replicas([*found, (found[1][0], SetName("c", "d"))])


def test_set_when_it_is_exported_already_then_said(tmp_path: Path) -> None:
    """Two runs of one set would each miss what the other writes; what dead ones left is cleared."""
    lake = str(tmp_path)
    left, others = (tmp_path / work_folder(label) for label in ("a@c", "a@c-2"))
    for folder in (left, others):
        (folder / "new").mkdir(parents=True)
    with LocalFiles(lake).alone("a@c"):
        assert not left.exists()
        assert others.exists(), "another set's may be alive"
        with pytest.raises(LakeBusy, match="a@c is under way"), LocalFiles(lake).alone("a@c"):
            pass
        with LocalFiles(lake).alone("b@c"):
            pass
    with LocalFiles(lake).alone("a@c"):
        pass


@pytest.mark.parametrize("label", ["lag", table_label("lag")])
def test_table_when_it_is_called_as_a_set_whose_export_is_under_way_then_that_goes_on(
    tmp_path: Path, label: str
) -> None:
    """Its lock looked like a folder of a run that had died, and the folder it writes to was deleted."""
    assert "+" in table_label("lag")
    assert "+" not in SetName("+", "+").label
    name = SetName("DefaultCluster", "lag")
    with LocalFiles(str(tmp_path)).alone(name.label):
        under_way, dead = (tmp_path / work_folder(one) for one in (name.label, label))
        for folder in (under_way, dead):
            (folder / "new").mkdir(parents=True)
        with LocalFiles(str(tmp_path)).alone(label, waits=True):
            assert under_way.exists()
            assert not dead.exists()


def test_spans_when_a_gap_reaches_over_two_pieces_of_a_log_then_neither_has_it() -> None:
    """Damage at a file's end goes on behind a file that is missing."""
    files = [LogFile("f", 0, 50), LogFile("f", 100, 50)]
    assert spans_read(files, 150, [(40, 120)]) == [(0, 40), (120, 150)]
    assert spans_read(files, 150, [(40, 120), (130, 135)]) == [(0, 40), (120, 130), (135, 150)]
