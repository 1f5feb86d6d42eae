"""Logs of replicas are the same bytes up to their ends, and a log that lost something is none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqha.chaos.aio.same_bytes import COMPARED_BYTES, equal_bytes, used_end

FILE = 2 * COMPARED_BYTES
CONTENT = bytes(range(1, 251)) * (FILE // 250)


def log(folder: Path, *files: bytes, first: int = 0, size: int = FILE) -> Path:
    """A commit log; each file has its whole length from the beginning."""
    folder.mkdir()
    for number, content in enumerate(files):
        (folder / f"{first + number * size:020d}").write_bytes(content.ljust(size, b"\0"))
    return folder


def test_logs_when_they_are_the_same_then_the_length_is_that_of_what_is_used(
    tmp_path: Path,
) -> None:
    """The file of one that nothing is in yet is no part of its log."""
    one = log(tmp_path / "one", b"a" * 40, b"b" * 10, b"", size=40)
    other = log(tmp_path / "other", b"a" * 40, b"b" * 10, size=40)
    assert equal_bytes(one, other) == 50


def test_logs_when_one_ends_earlier_then_they_are_not_the_same(tmp_path: Path) -> None:
    """It may be the log of a slave that kept 1,000 bytes of five million."""
    one = log(tmp_path / "one", CONTENT)
    other = log(tmp_path / "other", CONTENT[:1_000])
    with pytest.raises(ValueError, match=rf"one ends at {len(CONTENT)}, .*other at 1000"):
        equal_bytes(one, other)


def test_logs_when_one_has_a_hole_then_its_place_is_told(tmp_path: Path) -> None:
    """What follows the hole is equal again: the chunk that ends in zeros is no end."""
    hole = CONTENT[:1_000] + bytes(COMPARED_BYTES - 1_000) + CONTENT[COMPARED_BYTES:]
    one, other = log(tmp_path / "one", CONTENT), log(tmp_path / "other", hole)
    with pytest.raises(ValueError, match=r"differ in 0+ at 1000$"):
        equal_bytes(one, other)


@pytest.mark.parametrize("at", [3, COMPARED_BYTES + 5])
def test_logs_when_a_byte_differs_then_its_place_is_told(tmp_path: Path, at: int) -> None:
    one = log(tmp_path / "one", CONTENT)
    other = log(tmp_path / "other", CONTENT[:at] + b"\xff" + CONTENT[at + 1 :])
    with pytest.raises(ValueError, match=rf"differ in 0+ at {at}$"):
        equal_bytes(one, other)


@pytest.mark.parametrize("number", [1, 2])
def test_logs_when_one_lacks_a_file_then_they_are_not_the_same(tmp_path: Path, number: int) -> None:
    """In the middle it is told by name; at the end, by where the log ends."""
    one = log(tmp_path / "one", *[b"a" * 40] * 3, size=40)
    other = log(tmp_path / "other", *[b"a" * 40] * 3, size=40)
    (other / f"{number * 40:020d}").unlink()
    with pytest.raises(ValueError, match=r"has no 0+40|other at 80"):
        equal_bytes(one, other)


def test_logs_when_one_begins_later_then_what_both_have_is_compared(tmp_path: Path) -> None:
    """Its oldest files have expired, or it was a slave that started over."""
    one = log(tmp_path / "one", b"a" * 40, b"b" * 40, b"c" * 8, size=40)
    other = log(tmp_path / "other", b"b" * 40, b"c" * 8, first=40, size=40)
    assert equal_bytes(one, other) == 48
    assert equal_bytes(other, one) == 48


def test_logs_when_an_end_is_known_then_they_must_hold_all_up_to_it_and_more_is_not_asked(
    tmp_path: Path,
) -> None:
    """A broker of Java leaves old bytes behind the end of a log that it has cut."""
    one = log(tmp_path / "one", b"a" * 30 + b"old", size=40)
    other = log(tmp_path / "other", b"a" * 30, size=40)
    assert equal_bytes(one, other, 30) == 30
    with pytest.raises(ValueError, match=r"differ in 0+ at 30$"):
        equal_bytes(one, other, 31)


def test_logs_when_they_have_nothing_in_common_then_nothing_was_compared(tmp_path: Path) -> None:
    one = log(tmp_path / "one", b"a" * 40, size=40)
    none = log(tmp_path / "none")
    later = log(tmp_path / "later", b"a" * 40, first=40, size=40)
    with pytest.raises(ValueError, match="has no file"):
        equal_bytes(one, none)
    with pytest.raises(ValueError, match="nothing in common"):
        equal_bytes(one, later, 40)


def test_end_of_a_log_when_its_newest_files_are_empty_then_it_is_in_the_one_before(
    tmp_path: Path,
) -> None:
    assert used_end(log(tmp_path / "one", b"a" * 40, b"b" * 7, b"", size=40)) == 47
    assert used_end(log(tmp_path / "none")) == 0
