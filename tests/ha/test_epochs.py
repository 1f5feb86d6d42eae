"""Epochs: the scenario tables of RIP-44 and EpochFileCacheTest, and the file's text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import StoreCorrupted
from rmqha.ha.epochs import (
    EpochCache,
    EpochEntry,
    EpochSpan,
    find_consistent_point,
    format_epochs,
    load_epochs,
    parse_epochs,
)

GOLDEN = Path(__file__).parent.parent / "golden" / "5.3.3" / "mqadmin.json"

Starts = list[tuple[int, int]]


def entries(starts: Starts) -> list[EpochEntry]:
    return [EpochEntry(*one) for one in starts]


def point(local: Starts, local_max: int, master: Starts, master_max: int) -> int:
    return find_consistent_point(entries(local), local_max, entries(master), master_max)


@pytest.mark.parametrize(
    ("local", "local_max", "master", "master_max", "expected"),
    [
        pytest.param([(0, 0)], 1000, [(0, 0), (1, 900)], 1000, 900, id="rip44-1"),
        pytest.param([(0, 0)], 900, [(0, 0), (1, 1000)], 1200, 900, id="rip44-2"),
        pytest.param([(0, 0), (1, 1000)], 1200, [(0, 0), (1, 1000)], 1500, 1200, id="rip44-3"),
        pytest.param([(0, 0), (1, 1000)], 1200, [(0, 0), (2, 900)], 1500, 900, id="rip44-4"),
        pytest.param(
            [(0, 0), (1, 500)], 1000, [(0, 0), (1, 500), (2, 800)], 900, 800, id="rip44-5-b"
        ),
        pytest.param(
            [(0, 0), (1, 500)], 900, [(0, 0), (1, 500), (2, 800)], 900, 800, id="rip44-5-c"
        ),
        pytest.param([(0, 0), (1, 1000)], 1300, [(0, 0), (2, 1200)], 1500, 1000, id="rip44-6"),
        pytest.param([(0, 0), (1, 1000)], 1300, [(0, 0), (2, 1000)], 1500, 1000, id="rip44-6-b"),
        pytest.param([(7, 70)], 100, [(8, 70)], 100, -1, id="nothing-in-common"),
        pytest.param(
            [(1, 100), (2, 300), (3, 500)], 700, [(1, 100), (2, 300), (3, 450)], 600, 450,
            id="EpochFileCacheTest-1",
        ),
        pytest.param(
            [(1, 100), (2, 300), (3, 500)], 700, [(1, 100), (2, 300), (3, 500)], 600, 600,
            id="EpochFileCacheTest-2",
        ),
        pytest.param(
            [(1, 100), (2, 300), (3, 500)], 700, [(1, 200), (2, 500)], 900, -1,
            id="EpochFileCacheTest-3",
        ),
        pytest.param(
            [(1, 100), (2, 300), (3, 500), (4, 800)], 900, [(1, 100), (2, 300), (3, 500)], 700,
            700, id="EpochFileCacheTest-4",
        ),
        pytest.param([(1, 0), (2, 900)], 700, [(1, 0), (2, 900)], 1500, 700, id="G2"),
        pytest.param([(1, 0)], 500, [(1, 0), (2, 0)], 300, 0, id="G6"),
    ],
)  # fmt: skip
def test_find_consistent_point(
    local: Starts, local_max: int, master: Starts, master_max: int, expected: int
) -> None:
    """One byte too many is divergence, one too few throws acknowledged data away."""
    assert point(local, local_max, master, master_max) == expected


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50)), max_size=5),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50)), max_size=5),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_a_consistent_point_is_never_beyond_the_local_log(
    one: Starts, other: Starts, local_max: int, master_max: int
) -> None:
    """Java's can be, and then acknowledges data that the slave does not have."""
    caches = [EpochCache(), EpochCache()]
    for cache, starts in zip(caches, (one, other), strict=True):
        for entry in entries(sorted(starts)):
            cache.append(entry)
    found = find_consistent_point(caches[0].entries, local_max, caches[1].entries, master_max)
    assert -1 <= found <= local_max


def base() -> EpochCache:
    return EpochCache(entries([(1, 100), (2, 300), (3, 500)]))


def test_an_entrys_end_is_the_next_ones_start() -> None:
    """EpochFileCacheTest, init: also after it was read from its file."""
    again = parse_epochs(format_epochs(base().entries))
    assert again.spans(700)[1] == EpochSpan(2, 300, 500)
    assert again.find(350) == EpochSpan(2, 300, 500)
    assert again.find(99) is None


def test_truncation_leaves_no_stale_end() -> None:
    """After a cut the new last entry has no end."""
    cache = base()
    assert cache.drop_beyond(349)
    assert [one.epoch for one in cache.entries] == [1, 2]
    found = cache.find(10_000)
    assert found is not None
    assert found.epoch == 2
    assert cache.drop_beyond(149)
    assert (cache.get(1), cache.get(2)) == (EpochEntry(1, 100), None)
    assert not cache.truncate_prefix_by_offset(10_000)


def test_prefix_truncation_drops_what_expired_but_no_empty_epoch_at_the_offset() -> None:
    """2.5: with the file that held it an epoch goes."""
    cache = EpochCache(entries([(1, 0), (2, 300), (3, 500), (4, 500), (5, 900)]))
    assert cache.truncate_prefix_by_offset(500)
    assert [one.epoch for one in cache.entries] == [3, 4, 5]


def test_append_takes_only_newer_epochs() -> None:
    """An old epoch, or one that starts before the last, cannot follow."""
    cache = base()
    assert not cache.append(EpochEntry(3, 900))
    assert not cache.append(EpochEntry(4, 499))
    assert not EpochCache().append(EpochEntry(1, -1))
    assert cache.append(EpochEntry(4, 500))
    assert cache.next(2) == EpochEntry(3, 500)


@pytest.mark.parametrize(
    ("starts", "crc"),
    [
        ([(7, 7000), (8, 8000)], 773307083),
        ([(1, 0), (2, 1580)], 1302340025),
        ([(1, 0)], 1725254278),
    ],
)
def test_the_files_crc_is_javas(starts: Starts, crc: int) -> None:
    """Java refuses a file with another one."""
    assert format_epochs(entries(starts)).split(b"\n")[1] == b"%d" % crc


def test_golden_epoch_files_are_read_and_written_again() -> None:
    """What a real broker left behind."""
    recorded = json.loads(GOLDEN.read_text())
    for key in ("file epoch0", "file epoch1"):
        text = recorded[key].encode()
        assert format_epochs(parse_epochs(text).entries) == text


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"x\n1\n",
        b"2\n0\n1-0\n",
        b"1\n5\n1-0\n",
        b"1\n0\n1-0-0\n",
        b"2\n0\n2-0\n1-5\n",
        b"\xff",
    ],
)
def test_a_damaged_file_is_named_and_its_backup_serves(text: bytes) -> None:
    """Half a file must neither crash Java-style nor pass for the whole."""
    with pytest.raises(StoreCorrupted):
        parse_epochs(text)
    loaded = load_epochs(text, format_epochs(entries([(1, 0)])))
    assert loaded.damage is not None
    assert loaded.epochs.entries == (EpochEntry(1, 0),)
    with pytest.raises(StoreCorrupted, match="no backup"):
        load_epochs(text, None)
    with pytest.raises(StoreCorrupted, match="its backup"):
        load_epochs(text, b"junk")


def test_checkpoint_file_test_the_backup_replaces_a_missing_file() -> None:
    """CheckpointFileTest: the main file was deleted."""
    text = format_epochs(entries([(7, 7000), (8, 8000)]))
    assert load_epochs(None, text).epochs.entries == tuple(entries([(7, 7000), (8, 8000)]))
    assert load_epochs(None, None).epochs.entries == ()
    assert load_epochs(None, None).damage is None


def test_a_crc_of_zero_is_not_checked() -> None:
    """Java's rule for files written by hand."""
    assert parse_epochs(b"1\n0\n4-44\n").entries == (EpochEntry(4, 44),)


def test_adopting_a_masters_epochs_keeps_older_ones_and_nothing_beyond_the_log() -> None:
    """RIP-44: after truncation the map is the master's."""
    cache = EpochCache(entries([(1, 0), (2, 100), (3, 200), (5, 300)]))
    assert cache.adopt(entries([(2, 100), (3, 200), (4, 250), (6, 400), (7, 500)]), 400)
    assert cache.entries == tuple(entries([(1, 0), (2, 100), (3, 200), (4, 250), (6, 400)]))
    assert not cache.adopt(entries([(9, 900)]), 400)
