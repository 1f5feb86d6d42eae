"""What a leader remembers of groups that store where they are in old segments."""

from __future__ import annotations

from rmqha.broker.logical.furthest import KEPT_MAX, Furthest

KEY = ("Static", "CG", 4)


def test_segment_when_all_sets_were_asked_then_nothing_is_behind_it_until_something_is_stored() -> (
    None
):
    """A group that catches up stores where it is every few seconds."""
    one = Furthest()
    assert not one.is_behind(KEY, 1, 3)
    one.cleared(KEY, one.watch(KEY, 1), 3)
    assert [one.is_behind(KEY, 1, gen) for gen in (2, 3, 4)] == [False, True, True]
    one.stored(KEY, 2)
    assert one.is_behind(KEY, 1, 3)
    one.stored(KEY, 5)
    assert [one.is_behind(KEY, 1, gen) for gen in (3, 4, 5)] == [False, False, True]


def test_segment_when_something_is_stored_while_sets_are_asked_then_it_is_not_known() -> None:
    """It may have come behind the answer."""
    one = Furthest()
    watch = one.watch(KEY, 1)
    one.stored(KEY, 5)
    one.cleared(KEY, watch, 3)
    assert not one.is_behind(KEY, 1, 9)
    one.cleared(KEY, one.watch(KEY, 1), 3)
    assert one.is_behind(KEY, 1, 3)


def test_segment_when_another_master_has_reigned_then_it_is_not_known() -> None:
    """A group may have gone forth under it."""
    one = Furthest()
    one.cleared(KEY, one.watch(KEY, 1), 3)
    assert not one.is_behind(KEY, 2, 3)
    one.cleared(KEY, one.watch(KEY, 2), 4)
    assert [one.is_behind(KEY, 2, gen) for gen in (3, 4)] == [False, True]


def test_segments_when_there_are_very_many_then_the_oldest_watch_is_forgotten() -> None:
    """Its sets are asked once more."""
    one = Furthest()
    for number in range(KEPT_MAX + 1):
        key = ("Static", f"CG{number}", 4)
        one.cleared(key, one.watch(key, 1), 0)
    assert len(one) == KEPT_MAX
    assert not one.is_behind(("Static", "CG0", 4), 1, 0)
    assert one.is_behind(("Static", "CG1", 4), 1, 0)
