"""Every rule of a mapping, with an example that breaks it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.statictopic import rules
from rmqha.statictopic.mapping import LogicQueueMappingItem, Segments, TopicQueueMappingDetail
from rmqha.statictopic.rules import (
    detail_error,
    leaders,
    segments_error,
    topic_error,
    updated,
)
from tests.statictopic.examples import detail, histories, item

OLD = detail("a", {0: (item(0, "a", 0, 0),), 1: (item(0, "a", 1, 0),)})
MOVED = (item(0, "a", 0, 0), item(1, "b", 0, 10_000))


def refusal(
    new: TopicQueueMappingDetail, old: TopicQueueMappingDetail = OLD, *, force: bool = False
) -> str:
    """Why a broker does not take a mapping."""
    found = updated(old, new, force=force)
    assert isinstance(found, str)
    return found


@given(segments=histories())
def test_history_when_it_keeps_the_rules_then_nothing_is_wrong(segments: Segments) -> None:
    """A rule that is too strict would stop remaps of healthy topics."""
    assert segments_error(segments) is None


NEARLY = st.lists(
    st.builds(
        item, st.integers(-1, 4), st.sampled_from(["a", "b"]), st.integers(-1, 3),
        st.integers(-1, 4), st.integers(-1, 2), st.integers(-1, 3),
    ),
    max_size=4,
).map(lambda found: tuple(sorted(found, key=lambda one: one.gen)))  # fmt: skip
"""Histories of which some keep the rules, and most break one or two."""


@given(lists=st.lists(NEARLY | histories(), max_size=3))
def test_mapping_when_looked_at_by_the_column_then_nothing_wrong_is_passed_over(
    lists: list[Segments],
) -> None:
    """What is quick must not be blind: each history is looked at once more, by the segment."""
    one = detail("a", dict(enumerate(lists)))
    found = [*map(segments_error, lists), detail_error(one)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "_is_plain", lambda _: False)
        assert found == [*map(segments_error, lists), detail_error(one)]


@pytest.mark.parametrize(
    ("segments", "words"),
    [
        ((item(-1, "a", 0, 0),), "negative"),
        ((item(0, "a", -1, 0),), "negative"),
        ((item(0, "a", 0, 0, start=-1),), "negative"),
        ((item(0, "a", 0, 0, start=5, end=4),), "ends before it starts"),
        ((item(1, "a", 0, 0), item(1, "b", 0, 10_000)), "segment 1 has generation 1 after 1"),
        ((item(0, "a", 0, 5), item(1, "b", 0, 5)), "segment 1 begins at 5, not behind"),
        ((item(0, "a", 0, 0, end=6), item(1, "b", 0, 5)), "begins at 5, inside"),
        ((item(0, "a", 0), item(1, "b", 0, 5)), "segment 0 has no logical offset"),
        ((item(0, "a", 0, 0), item(1, "a", 0, 5)), "a physical queue is there twice"),
    ],
)
def test_history_when_a_rule_is_broken_then_it_is_named(segments: Segments, words: str) -> None:
    """Whoever wrote the map file must see which segment is wrong."""
    assert words in str(segments_error(segments))


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (detail("a", total=0), "totalQueues is 0"),
        (detail("a", total=65_537), "totalQueues is 65537"),
        (detail("a", epoch=-1), "the epoch is -1"),
        (detail("a", {2: (item(0, "a", 0, 0),)}), "beyond totalQueues 2"),
        (detail("a", {0: ()}), "logical queue 0 has no segment"),
        (detail("a", {0: (item(0, "a", 0, 0, end=0), item(0, "b", 0, 9))}), "generation 0 after"),
        (detail("a", {0: (item(0, "a", 0, 0),), 1: (item(0, "a", 0, 0),)}), "shares a physical"),
    ],
)
def test_detail_when_a_rule_is_broken_then_it_is_named(
    one: TopicQueueMappingDetail, words: str
) -> None:
    """Also where nothing was there before, and whoever forces it."""
    assert words in str(detail_error(one))
    assert words in str(updated(None, one, force=True))


def test_update_when_nothing_was_there_then_it_is_taken() -> None:
    """A broker that is new in the cluster."""
    assert updated(None, OLD, force=False) == OLD


def test_update_when_a_queue_moves_then_lists_that_miss_are_kept() -> None:
    """Messages of a queue that has moved on are still here."""
    found = updated(OLD, detail("a", {0: MOVED}, epoch=2000), force=False)
    assert found == detail("a", {0: MOVED, 1: OLD.hosted_queues[1]}, epoch=2000)


def test_update_when_the_offset_is_decided_later_then_it_is_taken_in_the_same_epoch() -> None:
    """The second telling of a remap."""
    first = {**OLD.hosted_queues, 0: (MOVED[0], item(1, "b", 0))}
    undecided = updated(OLD, detail("a", first, epoch=2000), force=False)
    assert isinstance(undecided, TopicQueueMappingDetail)
    again = detail("a", {**OLD.hosted_queues, 0: MOVED}, epoch=2000)
    assert updated(undecided, again, force=False) == again
    assert updated(again, again, force=False) == again


def test_update_when_expired_segments_are_dropped_then_it_is_taken() -> None:
    """Generations that miss on either side were cleaned away."""
    late, full = detail("a", {0: MOVED[1:]}, total=2), detail("a", {0: MOVED}, epoch=2000)
    assert updated(late, full, force=False) == full
    assert updated(full, late.with_queues(late.hosted_queues), force=True) == late


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (item(0, "a", 5, 0), "generation 0 is another physical queue"),
        (item(0, "a", 0, 7), "generation 0 began at 0, not 7"),
    ],
)
def test_update_when_an_old_segment_is_another_one_then_it_is_refused(
    first: LogicQueueMappingItem, words: str
) -> None:
    """What both begin with is not looked at by the segment; it must be what both begin with."""
    old = detail("a", {0: (*MOVED, item(2, "a", 9, 20_000))})
    new = detail("a", {0: (first, *old.hosted_queues[0][1:])}, epoch=2000)
    assert words in refusal(new, old)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (detail("a", {}, epoch=999), "epoch 999 is older than 1000"),
        (detail("a", {}, epoch=2000, scope="west"), "scope west is not __global__"),
        (detail("a", {}, epoch=2000, total=1), "totalQueues would fall from 2 to 1"),
        (detail("a", {0: (item(0, "a", 0, 0),)}), "logical queue 1 misses"),
        (detail("a", {0: (item(0, "b", 0, 0),)}, epoch=2000), "generation 0 is another physical"),
        (detail("a", {0: (item(0, "a", 9, 0),)}, epoch=2000), "generation 0 is another physical"),
        (detail("a", {0: (item(0, "a", 0, 0, 5),)}, epoch=2000), "generation 0 is another"),
        (detail("a", {0: (item(0, "a", 0, 7),)}, epoch=2000), "generation 0 began at 0, not 7"),
        (detail("a", {**OLD.hosted_queues, 0: MOVED}), "another leader in the same epoch"),
        (detail("a", {1: (item(1, "a", 0, 0),)}, epoch=2000), "with what is there"),
    ],
)
def test_update_when_a_rule_is_broken_then_the_old_one_stays(
    new: TopicQueueMappingDetail, words: str
) -> None:
    """Java states these with asserts that are off."""
    assert words in refusal(new)


def test_update_when_a_later_leader_is_known_then_an_older_one_is_refused() -> None:
    """Two brokers would take messages of one queue."""
    moved = detail("a", {**OLD.hosted_queues, 0: MOVED})
    assert "generation 0 after 1" in refusal(detail("a", OLD.hosted_queues, epoch=3000), moved)


def test_update_when_forced_then_only_what_stands_there_counts() -> None:
    """An operator knows better, but no list may be broken in itself."""
    older = detail("a", {0: MOVED}, epoch=1, scope="west")
    assert updated(OLD, older, force=True) == older.with_queues({**OLD.hosted_queues, 0: MOVED})
    assert "no segment" in refusal(detail("a", {0: ()}), force=True)


A = detail("a", {0: (item(0, "a", 0, 0),)})
B = detail("b", {1: (item(0, "b", 0, 0),)})


def test_topic_when_every_queue_has_one_leader_then_nothing_is_wrong() -> None:
    """A broker that leads nothing has an empty mapping of the same epoch."""
    assert topic_error([A, B, detail("c")]) is None
    assert leaders([A, B]) == {0: [A.hosted_queues[0]], 1: [B.hosted_queues[1]]}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "no broker has a mapping"),
        ([A, detail("b", B.hosted_queues, dirty=True)], "b has a dirty mapping"),
        ([A, detail("b", B.hosted_queues, epoch=2000)], "b has epoch 2000"),
        ([A, detail("b", B.hosted_queues, total=3)], "3 queues"),
        ([A, detail("b", B.hosted_queues, scope="west")], "scope west"),
        ([A, detail("b", {1: ()})], "b: logical queue 1 has no segment"),
        ([A], "logical queue 1 is led by nobody"),
        ([A, detail("b", {**B.hosted_queues, 0: (item(0, "b", 1, 0),)})], "0 is led by a, b"),
        ([A, detail("b", {1: (item(0, "a", 0, 0), item(1, "b", 0, 9))})], "queue 0 of a is of"),
    ],
)
def test_topic_when_brokers_disagree_then_it_is_said(
    found: list[TopicQueueMappingDetail], words: str
) -> None:
    """The rules that hold over all brokers."""
    assert words in str(topic_error(found))
