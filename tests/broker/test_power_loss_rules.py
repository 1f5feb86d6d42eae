"""Whether a replica that lost power may reign on, case by case."""

from __future__ import annotations

import pytest

from rmqha.broker.membership.power_loss import epoch_given_up, is_tail_doubtful
from rmqha.ha.settings import HaSettings


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


@pytest.mark.parametrize(
    ("settings", "given_up"),
    [
        (HaSettings(all_ack_in_sync_state_set=True), 7),
        (HaSettings(in_sync_replicas=2), 7),
        (HaSettings(), 0),
    ],
)
def test_epoch_given_up_when_slaves_had_to_acknowledge_then_it_is_the_last(
    settings: HaSettings, given_up: int
) -> None:
    """Reigning on makes two histories of an epoch; giving it up needlessly stops all writes."""
    assert epoch_given_up(settings, 7, tail_may_be_lost=True) == given_up
    assert epoch_given_up(settings, 7, tail_may_be_lost=False) == 0
