"""Committed offsets: at the master at once, at its slaves soon, and not behind that after a failover."""

from __future__ import annotations

import pytest

from rmqha.base.errors import InvariantBroken
from rmqha.verify.offsets import OffsetHistory, check_copied

ONE, TWO, THREE = ("h1", 1), ("h2", 1), ("h3", 1)


def committed(*offsets: int) -> OffsetHistory:
    """All of them are acknowledged in the first reign, whose master is the first process."""
    history = OffsetHistory()
    for offset in offsets:
        number = history.sent(offset)
        history.acknowledged(number, "r1")
        history.told(number, [ONE])
    return history


def test_reign_when_its_master_has_the_newest_then_silent() -> None:
    """Of another reign, or after a commit without an answer, nothing is known."""
    history = committed(5, 3)
    assert history.check_reign("r1", 3)
    assert not history.check_reign("r2", 5)
    history.sent(9)
    history.unanswered()
    assert not history.check_reign("r1", 9)


@pytest.mark.parametrize("offset", [None, 5, 4])
def test_reign_when_its_master_has_another_one_then_broken(offset: int | None) -> None:
    """None, an older one, or one that nobody has committed."""
    with pytest.raises(InvariantBroken, match="does not have what a group has committed"):
        committed(5, 3).check_reign("r1", offset)


@pytest.mark.parametrize("offset", [7, 3, 9])
def test_new_master_when_it_has_what_it_was_told_or_later_then_silent(offset: int) -> None:
    """One without an answer may have been copied, too."""
    history = committed(5, 7, 3)
    history.told(1, [TWO])
    history.sent(9)
    history.unanswered()
    assert history.begins(TWO, offset)


@pytest.mark.parametrize("offset", [None, 5, 8])
def test_new_master_when_it_has_less_than_it_was_told_then_broken(offset: int | None) -> None:
    history = committed(5, 7, 3)
    history.told(1, [TWO])
    with pytest.raises(InvariantBroken, match="an older offset than it was told"):
        history.begins(TWO, offset)


def test_new_master_when_it_was_told_nothing_then_it_may_have_anything() -> None:
    """And so may those who copy from it."""
    history = committed(5, 7)
    history.told(1, [TWO])
    assert not history.begins(THREE, None)
    assert not history.begins(TWO, 5)


def test_new_master_when_others_had_more_then_they_may_copy_what_it_has() -> None:
    """The one before had commits that it has not: back as a slave, it takes the older one."""
    history = committed(5, 7, 3)
    history.told(1, [TWO])
    assert history.begins(TWO, 7)
    assert history.begins(ONE, 7)
    with pytest.raises(InvariantBroken, match="an older offset than it was told"):
        history.begins(TWO, 5)


def test_copied_when_slaves_have_what_their_master_has_then_silent() -> None:
    """What it does not name may be of their own reigns."""
    assert check_copied({"a:0": 5}, {"s1": {"a:0": 5, "b:0": 1}, "s2": {"a:0": 5}}) == 2


@pytest.mark.parametrize("has", [{}, {"a:0": 4}])
def test_copied_when_a_slave_has_another_one_then_broken(has: dict[str, int]) -> None:
    with pytest.raises(InvariantBroken, match="another offset than its master"):
        check_copied({"a:0": 5}, {"s1": {"a:0": 5}, "s2": has})
