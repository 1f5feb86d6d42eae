"""When members are told that their group has others: soon, all of them, and not each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqha.broker.groups.member_news import PAUSE_MS_A_MEMBER, PAUSE_MS_MAX, MemberNews


def test_group_when_it_changes_for_the_first_time_then_it_is_told_at_once() -> None:
    """A consumer that dies leaves queues that nobody reads until the others hear of it."""
    news = MemberNews()
    assert news.next_ms is None
    assert news.changed(100, "G") == 100
    assert news.next_ms == 100
    assert news.take(100, lambda _: 3) == ["G"]
    assert news.next_ms is None


def test_group_when_it_changes_again_soon_then_it_is_told_once_and_by_its_size() -> None:
    """The cost of a notice is that of the group; ten changes in its pause are one notice."""
    news = MemberNews()
    news.changed(0, "G")
    assert news.take(0, lambda _: 200) == ["G"]
    for now_ms in range(1, 11):
        assert news.changed(now_ms, "G") == 200 * PAUSE_MS_A_MEMBER
    assert news.next_ms == 200 * PAUSE_MS_A_MEMBER
    assert news.take(199, lambda _: 200) == []
    assert news.take(200, lambda _: 200) == ["G"]
    assert news.next_ms is None


def test_group_when_another_one_is_quiet_then_it_is_told_at_once() -> None:
    """Small groups do not wait for a large one."""
    news = MemberNews()
    news.changed(0, "large")
    news.take(0, lambda _: 4_000)
    news.changed(1, "large")
    news.changed(1, "small")
    assert news.take(1, lambda _: 1) == ["small"]


def test_group_when_it_is_very_large_then_its_pause_has_an_end() -> None:
    news = MemberNews()
    news.changed(0, "G")
    news.take(0, lambda _: 1_000_000)
    news.changed(1, "G")
    assert news.next_ms == PAUSE_MS_MAX


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.sampled_from("AB"), st.booleans())),
    st.integers(1, 10_000),
)
def test_groups_when_they_change_at_any_time_then_each_change_is_told_after_it(
    story: list[tuple[int, str, bool]], size: int
) -> None:
    """Whoever was told last knows everybody, and nothing is remembered of groups that are quiet."""
    news = MemberNews()
    now_ms, changed, told = 0, dict.fromkeys("AB", 0), dict.fromkeys("AB", 0)
    number = 0
    for after_ms, group, looks in story:
        now_ms += after_ms
        number += 1
        changed[group] = number
        news.changed(now_ms, group)
        if looks:
            for one in news.take(now_ms, lambda _: size):
                told[one] = number
    while (due_ms := news.next_ms) is not None:
        assert due_ms - now_ms <= PAUSE_MS_MAX
        now_ms = max(now_ms, due_ms)
        number += 1
        for one in news.take(now_ms, lambda _: size):
            told[one] = number
    assert all(told[group] >= changed[group] for group in "AB")
    news.take(now_ms + PAUSE_MS_MAX + 1, lambda _: size)
    assert not news._quiet_until_ms
