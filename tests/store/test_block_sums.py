"""Sums of a log's blocks: their file, byte by byte, and what a cut leaves of them."""

from __future__ import annotations

import importlib
import sys
import zlib
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.store import crc
from rmqha.store.block_sums import NO_START, BlockSums, Summed
from rmqha.store.layout import BLOCK_SUMS

FILE, BLOCK = 1_000, 300
WORDS = st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=4)


@given(st.integers(0, 1 << 40), WORDS, WORDS, WORDS, st.data())
def test_file_when_written_then_it_is_what_the_drawing_says_and_is_read_again(
    number: int, lengths: list[int], crcs: list[int], starts: list[int], data: st.DataObject
) -> None:
    sums, start = BlockSums(FILE, BLOCK), number * FILE
    sums.put(Summed(start, start + 1, 0))
    one = sums.files[start]
    one.lengths, one.crcs, one.starts = (array("I", words) for words in (lengths, crcs, starts))
    raw = sums.encode(start)
    drawn = BLOCK_SUMS.parse(raw)
    assert (drawn.start, drawn.file_size, drawn.block_bytes, drawn.blocks) == (
        start,
        FILE,
        BLOCK,
        4,
    )
    assert [[*drawn.lengths], [*drawn.crcs], [*drawn.starts]] == [lengths, crcs, starts]
    assert BLOCK_SUMS.build(drawn) == raw
    read = sums.decode(start, raw)
    assert read is not None
    assert [[*read.lengths], [*read.crcs], [*read.starts]] == [lengths, crcs, starts]
    # Whatever is not this file's is none: another file, other sizes, a flipped bit, a part.
    assert sums.decode(start + FILE, raw) is None
    assert BlockSums(FILE, BLOCK - 1).decode(start, raw) is None
    assert BlockSums(FILE + BLOCK, BLOCK).decode(start, raw) is None
    at = data.draw(st.integers(0, len(raw) - 1))
    bent = bytearray(raw)
    bent[at] ^= 1 << data.draw(st.integers(0, 7))
    assert sums.decode(start, bytes(bent)) is None
    assert sums.decode(start, raw[:at]) is None


@given(
    st.lists(st.tuples(st.integers(0, 2_999), st.integers(1, BLOCK)), max_size=12),
    st.lists(st.integers(0, 2_999), max_size=8),
    st.integers(0, 3_000),
)
def test_sums_when_the_log_is_cut_then_nothing_speaks_of_what_lay_behind(
    summed: list[tuple[int, int]], starts: list[int], cut: int
) -> None:
    sums = BlockSums(FILE, BLOCK)
    known: dict[int, Summed] = {}
    for offset, length in summed:
        begin, end = sums.bounds(offset)
        assert begin <= offset < end
        assert end - begin == BLOCK or end % FILE == 0
        known[begin] = Summed(begin, min(end, begin + length), offset)
        sums.put(known[begin])
    for offset in starts:
        sums.record_starts(offset)
    lost = sums.cut(cut)
    left = {begin: one for begin, one in known.items() if one.end <= cut}
    # Files that begin behind it go as a whole.
    in_file = [one for one in known.values() if sums.file_of(one.begin) == sums.file_of(cut) < cut]
    assert lost is any(one.end > cut for one in in_file)
    for offset in range(0, 3_000, 7):
        begin, _ = sums.bounds(offset)
        expected = left.get(begin)
        found = sums.find(offset)
        assert found == (expected if expected is not None and offset < expected.end else None)
        before = sums.start_before(offset)
        assert before is None or (before in starts and before < offset and before <= cut)
        assert sums.is_start(offset) <= (offset in starts and offset <= cut)


def test_start_of_a_record_when_several_are_known_then_the_last_before_a_place_is_found() -> None:
    sums = BlockSums(FILE, BLOCK)
    sums.put(Summed(0, 10, 1))
    sums.record_starts(40)
    sums.record_starts(650)
    assert [sums.start_before(at) for at in (0, 40, 41, 650, 651, 999)] == [
        None,
        None,
        40,
        40,
        650,
        650,
    ]
    assert sums.start_before(1_000) is None, "another file"
    assert sums.is_start(40)
    assert not sums.is_start(41)
    assert sums.files[0].starts[1] == NO_START


def test_crc_when_the_machine_has_no_isal_then_zlib_s_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = bytes(range(256)) * 300
    assert crc.crc32(data) == zlib.crc32(data)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "isal", None)
        patched.setitem(sys.modules, "isal.isal_zlib", None)
        assert importlib.reload(crc).crc32 is zlib.crc32
    assert importlib.reload(crc).crc32 is not zlib.crc32
