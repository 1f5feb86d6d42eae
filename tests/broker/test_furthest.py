"""What a leader remembers of groups that store where they are in old segments."""

from __future__ import annotations

from rmqha.broker.logical.furthest import KEPT_MAX, Furthest

KEY = ("Static", "CG", 4, 1_000)
OTHER = ("Static", "CG", 5, 1_000)


def test_segment_when_all_sets_were_asked_then_nothing_is_behind_it_until_something_is_stored() -> (
    None
):
    """A group that catches up stores where it is every few seconds."""
    one = Furthest()
    assert not one.is_behind(KEY, 1, 3)
    one.cleared(KEY, one.watch(KEY, 1, 3), 3)
    assert [one.is_behind(KEY, 1, gen) for gen in (2, 3, 4)] == [False, True, True]
    one.stored(KEY, 2)
    assert one.is_behind(KEY, 1, 3)
    one.stored(KEY, 5)
    assert [one.is_behind(KEY, 1, gen) for gen in (3, 4, 5)] == [False, False, True]


def test_segment_when_something_is_stored_while_sets_are_asked_then_it_is_not_known() -> None:
    """It may have come behind the answer."""
    one = Furthest()
    watch = one.watch(KEY, 1, 0)
    one.stored(KEY, 5)
    one.cleared(KEY, watch, 3)
    assert not one.is_behind(KEY, 1, 9)
    one.cleared(KEY, one.watch(KEY, 1, 3), 3)
    assert one.is_behind(KEY, 1, 3)


def test_group_when_it_goes_forth_after_a_watch_began_then_that_is_seen() -> None:
    """What it stores for the same segment, or for one before, is no newer place behind it."""
    one = Furthest()
    watch = one.watch(KEY, 1, 3)
    one.watch(OTHER, 1, 0)
    for gen in (3, 2):
        one.stored(OTHER, gen)
        one.stored(KEY, gen)
        assert not one.is_forth(KEY, watch)
    one.cleared(KEY, watch, 3)
    assert one.is_behind(KEY, 1, 3)
    one.stored(KEY, 3)
    assert one.is_forth(KEY, watch)


def test_group_when_it_is_remembered_no_more_then_it_is_not_known_to_have_gone_forth() -> None:
    """Its commit would leave its later place where it is, and nobody would have that forgotten."""
    one = Furthest(kept_max=1)
    watch = one.watch(KEY, 1, 3)
    one.stored(KEY, 4)
    assert one.is_forth(KEY, watch)
    one.watch(OTHER, 1, 3)
    assert not one.is_forth(KEY, watch)


def test_group_when_not_all_sets_could_be_asked_then_it_is_where_it_stored_something_last() -> None:
    """Until it goes forth, or all were asked; another master knows nothing of it."""
    one = Furthest()
    one.passed_over(KEY, one.watch(KEY, 1, 3))
    assert [one.place(KEY, reign) for reign in (1, 2)] == [3, None]
    one.stored(KEY, 2)
    assert one.place(KEY, 1) == 2
    one.stored(KEY, 4)
    assert one.place(KEY, 1) is None
    one.passed_over(KEY, one.watch(KEY, 1, 4))
    watch = one.watch(KEY, 1, 4)
    assert one.place(KEY, 1) == 4
    one.cleared(KEY, watch, 4)
    assert one.place(KEY, 1) is None
    one.stored(KEY, 5)
    one.passed_over(KEY, watch)
    assert one.place(KEY, 1) is None
    assert one.place(OTHER, 1) is None


def test_segment_when_another_master_has_reigned_then_it_is_not_known() -> None:
    """A group may have gone forth under it."""
    one = Furthest()
    one.cleared(KEY, one.watch(KEY, 1, 3), 3)
    assert not one.is_behind(KEY, 2, 3)
    one.cleared(KEY, one.watch(KEY, 2, 4), 4)
    assert [one.is_behind(KEY, 2, gen) for gen in (3, 4)] == [False, True]


def test_segments_when_there_are_very_many_then_the_oldest_watch_is_forgotten() -> None:
    """Its sets are asked once more."""
    one = Furthest()
    for number in range(KEPT_MAX + 1):
        key = ("Static", f"CG{number}", 4, 1_000)
        one.cleared(key, one.watch(key, 1, 0), 0)
    assert len(one) == KEPT_MAX
    assert not one.is_behind(("Static", "CG0", 4, 1_000), 1, 0)
    assert one.is_behind(("Static", "CG1", 4, 1_000), 1, 0)
