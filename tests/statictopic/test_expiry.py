"""What expires of a mapping: nothing that a message, a remap or a client still needs."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from rmqha.statictopic.expiry import Place, expire
from rmqha.statictopic.mapping import LogicQueueMappingItem, Segments, TopicQueueMappingDetail
from rmqha.statictopic.rules import detail_error
from rmqha.statictopic.translate import segment_at

OWN = "a"
UNDECIDED = -1


def segment(
    gen: int, broker_name: str, logic_offset: int, queue_id: int = 0
) -> LogicQueueMappingItem:
    """One segment."""
    return LogicQueueMappingItem(gen, queue_id, broker_name, logic_offset)


def detail(*queues: Segments) -> TopicQueueMappingDetail:
    """What set a knows."""
    return TopicQueueMappingDetail(
        "T", max(1, len(queues)), OWN, 7, hosted_queues=dict(enumerate(queues))
    )


A0, B1, C2 = segment(0, "a", 0), segment(1, "b", 10_000), segment(2, "c", 20_000)
A2 = segment(2, "a", 20_000, queue_id=1)
LATE_B1, LATE_C2 = segment(1, "b", UNDECIDED), segment(2, "c", UNDECIDED)
EMPTY = {("a", 0)}


@pytest.mark.parametrize(
    ("before", "empty", "after"),
    [
        ((A0, B1), EMPTY, (B1,)),
        ((A0, B1), set(), (A0, B1)),
        ((A0, LATE_B1), EMPTY, (A0, LATE_B1)),
        ((A0,), EMPTY, (A0,)),
        ((A0, B1, A2), EMPTY, (B1, A2)),
        ((A0, B1, A2), {("a", 0), ("b", 0)}, (A2,)),
        ((A0, B1, A2), {("b", 0)}, (A0, B1, A2)),
        ((A0, B1, A2), {("a", 0), ("b", 0), ("a", 1)}, (A2,)),
    ],
)
def test_queue_when_its_first_segments_are_empty_then_they_go(
    before: Segments, empty: set[Place], after: Segments
) -> None:
    """Unless nobody has decided where the next begins: late messages may come. The leader stays."""
    found = expire(detail(before), empty)
    assert {0: after} == found.detail.hosted_queues
    gone = before[: len(before) - len(after)]
    assert [(0, one, after[0]) for one in gone] == list(found.segments)
    assert () == found.lists


@pytest.mark.parametrize(
    ("before", "empty", "useless"),
    [
        ((A0, B1, C2), EMPTY, True),
        ((A0, B1, C2), set(), False),
        ((A0, B1, LATE_C2), EMPTY, False),
        ((A0, B1), EMPTY, False),
        ((B1, C2), set(), True),
        ((B1,), set(), False),
        ((B1, A2), {("b", 0), ("a", 1)}, False),
        ((B1, A2, segment(3, "c", 30_000)), {("a", 1)}, False),
        ((B1, A2, segment(3, "c", 30_000), segment(4, "b", 40_000, 1)), {("a", 1)}, True),
        ((B1, A2, segment(3, "c", 30_000), segment(4, "b", 40_000, 1)), set(), False),
    ],
)
def test_list_when_its_queue_moved_on_twice_and_nothing_is_left_here_then_it_goes(
    before: Segments, empty: set[Place], useless: bool
) -> None:
    """After one move it still says where the leader is, and a remap may be half done."""
    found = expire(detail(before, (segment(0, "a", 0, 9),)), empty)
    assert ((0,) if useless else ()) == found.lists
    assert (1 if useless else 2) == len(found.detail.hosted_queues)
    own = [one for one in before if one.broker_name == OWN]
    behind = [before[before.index(one) + 1] for one in own if one is not before[-1]]
    moved = [(one.item, one.following) for one in found.segments if one.logical_id in found.lists]
    assert moved == ([*zip(own, behind, strict=True)] if useless else [])


def test_queue_when_it_is_to_stay_then_it_is_as_it_was_and_others_expire() -> None:
    """A set refused a group's position; the same mapping is the same object, as no change is."""
    before = detail((A0, B1), (segment(0, "a", 0, 9), segment(1, "b", 10_000, 9)), (A0, B1, C2))
    found = expire(before, {("a", 0), ("a", 9)})
    assert (len(found.segments), found.lists) == (3, (2,))
    left = found.but_for({0, 2}, before)
    assert left.detail.hosted_queues == {
        **before.hosted_queues, 1: before.hosted_queues[1][1:],
    }  # fmt: skip
    assert [one.logical_id for one in left.segments] == [1]
    assert left.lists == ()
    assert found.but_for((), before) is found
    assert found.but_for({0, 1, 2}, before).detail is before


def test_detail_when_nothing_expires_then_it_is_the_same_one() -> None:
    """Whoever looks every hour need not write a file."""
    one = detail((A0, B1))
    assert expire(one, {("a", 5), ("b", 0)}).detail is one


class Case(NamedTuple):
    """A mapping and what stands in the physical queues: first offset, and behind the last."""

    detail: TopicQueueMappingDetail
    queues: dict[Place, tuple[int, int]]

    @property
    def empty(self) -> set[Place]:
        """Of this set, as it knows itself."""
        return {place for place, (low, high) in self.queues.items() if low == high}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Queues that were moved about, with messages of which the oldest have expired."""
    queues: dict[Place, tuple[int, int]] = {}
    hosted: dict[int, Segments] = {}
    for logical in range(draw(st.integers(1, 3))):
        names = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=5))
        gen, offset = 0, 0
        items: list[LogicQueueMappingItem] = []
        for at, name in enumerate(names):
            place = name, sum(known == name for known, _ in queues)
            high = draw(st.integers(0, 3))
            queues[place] = draw(st.integers(0, high)), high
            last = at == len(names) - 1
            undecided = last and at > 0 and draw(st.booleans())
            items.append(
                LogicQueueMappingItem(gen, place[1], name, UNDECIDED if undecided else offset)
            )
            gen, offset = gen + draw(st.integers(1, 2)), offset + high + draw(st.integers(1, 5))
        hosted[logical] = tuple(items)
    found = TopicQueueMappingDetail("T", len(hosted), OWN, 7, hosted_queues=hosted)
    assert detail_error(found) is None
    return Case(found, queues)


@given(cases(), st.booleans())
def test_expiry_when_anything_goes_then_every_message_is_found_where_it_was(
    case: Case, asked: bool
) -> None:
    """Of this set's queues by what it knows itself, and of all where the others were asked."""
    empty = {one for one in case.empty if asked or one[0] == OWN}
    after = expire(case.detail, empty)
    assert detail_error(after.detail) is None
    assert (7, case.detail.total_queues) == (after.detail.epoch, after.detail.total_queues)
    assert set(case.detail.hosted_queues) == {*after.lists, *after.detail.hosted_queues}
    for logical, before in case.detail.hosted_queues.items():
        left = after.detail.hosted_queues.get(logical)
        for item in before:
            low, high = case.queues[item.broker_name, item.queue_id]
            if left is None:
                # Others may have messages; this set has none, and is not asked for theirs.
                assert item.broker_name != OWN or low == high
                continue
            for offset in range(low, high) if item.is_decided else ():
                found = segment_at(left, item.logical(offset))
                assert item == found, (offset, before, left)
        if before[-1].broker_name == OWN:
            assert left is not None
            assert before[-1] == left[-1]
        if left is not None:
            assert before[len(before) - len(left) :] == left
    again = expire(after.detail, empty)
    assert again.detail is after.detail
    event(f"segments {bool(after.segments)}, lists {bool(after.lists)}, others asked {asked}")
