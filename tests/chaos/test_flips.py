"""Bits that flip in a commit log: where, how many, and what is left alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.chaos.aio.flips import TAIL_BYTES, flip_bits, used_bytes
from rmqha.chaos.scenarios import BY_NAME, Fault, Kind, Members, draw

FILE_BYTES = 3 * TAIL_BYTES


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two files and a half; the third is as long as they are."""
    used = (FILE_BYTES, FILE_BYTES, FILE_BYTES // 2)
    for number, size in enumerate(used):
        content = random.Random(number).randbytes(size - 1) + b"\x01"
        (tmp_path / f"{number * FILE_BYTES:020d}").write_bytes(content.ljust(FILE_BYTES, b"\0"))
    return tmp_path


def whole(log: Path) -> bytes:
    """All files one after another."""
    return b"".join(file.read_bytes() for file in sorted(log.iterdir()))


@pytest.mark.costly
def test_bits_when_they_flip_then_so_many_bytes_differ_by_one_bit_each(log: Path) -> None:
    before = whole(log)
    places = flip_bits(log, random.Random(1), 200)
    after = whole(log)
    differing = [
        at for at, pair in enumerate(zip(before, after, strict=True)) if len(set(pair)) > 1
    ]
    assert places == differing
    assert len(places) == 200
    assert all((before[at] ^ after[at]).bit_count() == 1 for at in places)
    assert {at // FILE_BYTES for at in places} == {0, 1, 2}
    assert max(places) < 2 * FILE_BYTES + FILE_BYTES // 2 - TAIL_BYTES


def test_bits_when_the_seed_is_the_same_then_they_are_the_same(log: Path) -> None:
    before = whole(log)
    assert flip_bits(log, random.Random(7), 16) == flip_bits(log, random.Random(7), 16)
    assert whole(log) == before, "each of them flipped back"


def test_log_when_it_is_shorter_than_what_is_left_alone_then_nothing_flips(tmp_path: Path) -> None:
    assert flip_bits(tmp_path, random.Random(1), 16) == []
    (tmp_path / f"{0:020d}").write_bytes(b"a" * 100 + bytes(100))
    assert flip_bits(tmp_path, random.Random(1), 16) == []


@pytest.mark.parametrize("used", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_used_bytes_when_zeros_follow_then_they_do_not_count(tmp_path: Path, used: int) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\x01" * used + bytes((3 << 20) - used))
    assert used_bytes(file) == used


@given(st.integers(0, 1 << 30), st.sampled_from((3, 5)))
def test_brokers_when_drawn_then_more_than_half_keep_all_bytes(seed: int, count: int) -> None:
    """As Jepsen's report on NATS has it: one or two of five."""
    members = Members(tuple(f"b{n}" for n in range(count)), ("c0",), "b0", "c0")
    fault = draw(BY_NAME["flipped-bits-brokers"], random.Random(seed), members)
    assert isinstance(fault, Fault)
    assert 1 <= len(fault.hosts) < count / 2
    assert "flipped-bits b" in fault.text
    assert draw(BY_NAME["flipped-bits-brokers"], random.Random(seed), members) == fault


def test_master_when_nobody_is_there_is_no_fault() -> None:
    nobody = Members(("b0", "b1", "b2"), ("c0",))
    assert draw(BY_NAME["flipped-bits-master"], random.Random(1), nobody) is None
    fault = draw(BY_NAME["flipped-bits-master"], random.Random(1), Members(("b0", "b1"), (), "b1"))
    assert fault is not None
    assert (fault.kind, fault.hosts) == (Kind.FLIPPED_BITS, ("b1",))
