"""Numbers of a map file that leave no room for what comes later, or would hide messages."""

from __future__ import annotations

import pytest

from rmqha.statictopic.known import KnownTopic, PlanRefused, histories
from rmqha.statictopic.map_file import (
    BEGIN_MAX,
    GEN_MAX,
    QUEUE_MAX,
    apply_file,
    read_map_file,
)
from rmqha.statictopic.mapping import QUEUES_MAX
from rmqha.statictopic.plan import grow, remap, retell
from tests.statictopic.examples import detail, item, known
from tests.statictopic.map_files import after, cluster, rewritten
from tests.statictopic.model import ModelCluster


@pytest.mark.parametrize("is_born", [False, True])
@pytest.mark.parametrize(
    ("member", "number"),
    [("startOffset", 3), ("endOffset", 10**9), ("timeOfStart", 7), ("timeOfEnd", 7)],
)
def test_after_file_when_a_new_segment_has_other_numbers_then_it_is_as_planned(
    is_born: bool, member: str, number: int
) -> None:
    """Messages before a start are never read, and no queue moves on that begins inside an end."""
    one = ModelCluster("ab") if is_born else cluster()
    change = grow(one.known(), 2, ["a"], 5_000) if is_born else remap(one.known(), {0: "b"}, 5_000)
    data = rewritten(after(change), **{member: number})
    applied = apply_file(one.known(), read_map_file(data), 6_000)
    assert dict(applied.histories) == dict(change.histories)
    assert one.run(applied)
    one.send(0)
    assert one.run(remap(one.known(), {0: "b" if is_born else "a"}, 7_000))
    one.assert_offsets()


@pytest.mark.parametrize("is_born", [False, True])
@pytest.mark.parametrize("gen", [GEN_MAX + 1, (1 << 31) - 1])
def test_after_file_when_a_generation_leaves_no_room_then_it_is_refused(
    is_born: bool, gen: int
) -> None:
    """The queue could never move again, not even by force."""
    one = ModelCluster("ab") if is_born else cluster()
    change = grow(one.known(), 2, ["a"], 5_000) if is_born else remap(one.known(), {0: "b"}, 5_000)
    file = read_map_file(rewritten(after(change), gen=gen))
    with pytest.raises(PlanRefused, match=f"generation {gen}"):
        apply_file(one.known(), file, 6_000)
    fits = read_map_file(rewritten(after(change), gen=GEN_MAX))
    assert one.run(apply_file(one.known(), fits, 6_000))
    assert one.run(remap(one.known(), {0: "b" if is_born else "a"}, 7_000))


def test_after_file_when_a_new_queue_would_begin_at_the_end_of_numbers_then_it_is_refused() -> None:
    """Its messages would have no offsets."""
    one = ModelCluster("ab")
    data = after(grow(one.known(), 2, ["a"], 5_000))
    with pytest.raises(PlanRefused, match=f"beginning at {BEGIN_MAX + 1}"):
        apply_file(one.known(), read_map_file(rewritten(data, logicOffset=BEGIN_MAX + 1)), 6_000)
    assert apply_file(one.known(), read_map_file(rewritten(data, logicOffset=BEGIN_MAX)), 6_000)


@pytest.mark.parametrize("is_born", [False, True])
@pytest.mark.parametrize("queue", [QUEUE_MAX + 1, 65_535, 70_000, (1 << 31) - 1])
def test_after_file_when_a_physical_queue_leaves_no_room_then_it_is_refused(
    is_born: bool, queue: int
) -> None:
    """The set would have as many queues as it may, and could never be given one of the topic again."""
    one = ModelCluster("ab") if is_born else cluster()
    change = grow(one.known(), 2, ["a"], 5_000) if is_born else remap(one.known(), {0: "b"}, 5_000)
    file = read_map_file(rewritten(after(change), queueId=queue))
    with pytest.raises(PlanRefused, match=f"queue {queue} of {'a' if is_born else 'b'}"):
        apply_file(one.known(), file, 6_000)
    fits = read_map_file(rewritten(after(change), queueId=QUEUE_MAX))
    assert one.run(apply_file(one.known(), fits, 6_000))
    assert one.run(remap(one.known(), {0: "b" if is_born else "a", 1: "b"}, 7_000))


@pytest.mark.parametrize("more", [0, 1])
def test_after_file_when_a_set_has_very_many_queues_then_the_next_ones_are_not_refused(
    more: int,
) -> None:
    """It is a plan as any other, also when some of its queues were made meanwhile."""
    broad = known(detail("a", {0: (item(0, "a", 60_000, 0),)}, total=1), detail("b", total=1))
    file = read_map_file(after(grow(broad, 3, ["a"], 5_000)))
    assert histories(file.known)[2] == (item(0, "a", 60_002, 0),)
    made = KnownTopic(60_001 + more, 60_001 + more, broad.brokers["a"].detail)
    change = apply_file(broad.with_broker("a", made), file, 6_000)
    assert dict(change.histories) == histories(file.known)


def test_after_file_when_a_set_has_all_queues_that_it_may_then_one_more_is_refused() -> None:
    """Brokers refuse it; nobody is told anything before."""
    full = known(detail("a", {0: (item(0, "a", 65_534, 0),)}, total=1))
    file = read_map_file(after(grow(full, 2, ["a"], 5_000)))
    assert apply_file(full, file, 6_000).queue_nums()["a"][1] == QUEUES_MAX
    file = read_map_file(after(grow(full, 2, ["a"], 5_000)).replace(b"65535", b"65536"))
    with pytest.raises(PlanRefused, match="queue 65536 of a"):
        apply_file(full, file, 6_000)


@pytest.mark.parametrize(
    ("member", "number"),
    [("startOffset", 7), ("endOffset", 5), ("timeOfStart", 7), ("timeOfEnd", 7)],
)
def test_after_file_when_an_older_segment_of_a_new_queue_has_other_numbers_then_it_is_as_planned(
    member: str, number: int
) -> None:
    """No broker has the queue any more; messages before a start, or behind an end, are not read."""
    one = cluster()
    assert one.run(remap(one.known(), {0: "b"}, 5_000))
    data = after(retell(one.known(), 5_500))
    file = read_map_file(rewritten(data, at=0, **{member: number}))
    applied = apply_file(ModelCluster("ab").known(), file, 6_000)
    assert applied.histories[0] == (item(0, "a", 0, 0), item(1, "b", 0, 10_000))


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"queueId": QUEUE_MAX + 1}, f"queue {QUEUE_MAX + 1} of a"),
        ({"gen": GEN_MAX + 1}, f"generation {GEN_MAX + 1}"),
        ({"logicOffset": BEGIN_MAX + 1}, f"beginning at {BEGIN_MAX + 1}"),
    ],
)
def test_after_file_when_an_older_segment_of_a_new_queue_leaves_no_room_then_it_is_refused(
    members: dict[str, int], words: str
) -> None:
    """What is refused of the newest one is refused of those before it."""
    one = cluster()
    assert one.run(remap(one.known(), {0: "b", 1: "b"}, 5_000))
    file = read_map_file(rewritten(after(retell(one.known(), 5_500)), at=0, **members))
    with pytest.raises(PlanRefused, match=words):
        apply_file(ModelCluster("ab").known(), file, 6_000)
    # Sets that are gone for good are not asked for another queue.
    if "queueId" in members:
        assert apply_file(ModelCluster("b").known(), file, 6_000)
