"""Whether a replica that lost power may reign on, case by case."""

from __future__ import annotations

import pytest

from rmqha.broker.membership.power_loss import epoch_given_up, is_tail_doubtful


@pytest.mark.parametrize(
    ("before", "now", "closed_in_order", "doubtful"),
    [
        ("a", "a", False, False),
        ("a", "b", False, True),
        ("a", "b", True, False),
        ("", "b", False, True),
        ("a", "", False, True),
        ("", "", False, True),
        ("", "", True, False),
    ],
)
def test_is_tail_doubtful_when_nothing_proves_the_same_boot_then_it_is(
    before: str, now: str, closed_in_order: bool, doubtful: bool
) -> None:
    """A tail that is taken for whole reigns on, and loses what slaves acknowledged."""
    assert is_tail_doubtful(before, now, closed_in_order=closed_in_order) is doubtful


@pytest.mark.parametrize(("last_epoch", "given_up"), [(7, 7), (0, 0), (-1, 0)])
def test_epoch_given_up_when_the_tail_may_be_lost_then_it_is_the_last_whatever_was_promised(
    last_epoch: int, given_up: int
) -> None:
    """Reigning on makes two histories of an epoch; giving it up needlessly stops all writes."""
    assert epoch_given_up(last_epoch, 0, tail_may_be_lost=True) == given_up
    assert epoch_given_up(last_epoch, 0, tail_may_be_lost=False) == 0


@pytest.mark.parametrize(
    ("last_epoch", "before", "lost", "given_up"),
    [(7, 7, False, 7), (6, 7, False, 7), (8, 7, False, 0), (8, 7, True, 8), (6, 7, True, 7)],
)
def test_epoch_given_up_before_when_no_newer_one_has_begun_then_it_still_is(
    last_epoch: int, before: int, lost: bool, given_up: int
) -> None:
    """The process that gave it up may have ended before it found a controller."""
    assert epoch_given_up(last_epoch, before, tail_may_be_lost=lost) == given_up
