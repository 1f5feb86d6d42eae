"""Mappings to try things with."""

from __future__ import annotations

from hypothesis import strategies as st

from rmqha.statictopic.known import Known, KnownTopic
from rmqha.statictopic.mapping import LogicQueueMappingItem, Segments, TopicQueueMappingDetail

TOPIC = "Orders"


def item(
    gen: int, broker: str, queue: int, logic: int = -1, start: int = 0, end: int = -1
) -> LogicQueueMappingItem:
    """A segment, with its times unknown."""
    return LogicQueueMappingItem(gen, queue, broker, logic, start, end)


def detail(
    broker: str,
    queues: dict[int, Segments] | None = None,
    *,
    total: int = 2,
    epoch: int = 1000,
    scope: str = "__global__",
    dirty: bool = False,
) -> TopicQueueMappingDetail:
    """What one broker set knows."""
    return TopicQueueMappingDetail(TOPIC, total, broker, epoch, scope, dirty, queues or {})


def known(*details: TopicQueueMappingDetail, more: tuple[str, ...] = (), nums: int = 8) -> Known:
    """What brokers know; those of ``more`` have never heard of the topic."""
    brokers = {one.broker_name: KnownTopic(nums, nums, one) for one in details}
    return Known(TOPIC, {**brokers, **dict.fromkeys(more, KnownTopic())})


def cluster_of(leading: list[str], names: tuple[str, ...]) -> Known:
    """Brokers that lead queues in this order."""
    lists: dict[str, dict[int, Segments]] = {name: {} for name in names}
    for logical, name in enumerate(leading):
        lists[name][logical] = (item(0, name, len(lists[name]), 0),)
    return known(*(detail(name, lists[name], total=len(leading)) for name in names))


A = detail("a", {0: (item(0, "a", 0, 0),), 1: (item(0, "a", 1, 0),)})
B = detail("b")
UNDECIDED = (item(0, "a", 0, 0), item(1, "b", 8))
"""Moved from a to b, which does not know yet where it begins."""


NAMES = st.sampled_from(["a", "b", "c"])
OFFSETS = st.integers(-1, (1 << 63) - 1)
ITEMS = st.builds(
    LogicQueueMappingItem,
    gen=st.integers(0, (1 << 31) - 1),
    queue_id=st.integers(0, (1 << 31) - 1),
    broker_name=NAMES,
    logic_offset=OFFSETS,
    start_offset=OFFSETS,
    end_offset=OFFSETS,
    time_of_start=OFFSETS,
    time_of_end=OFFSETS,
)
DETAILS = st.builds(
    TopicQueueMappingDetail,
    topic=st.just(TOPIC),
    total_queues=st.integers(0, 65_536),
    broker_name=NAMES,
    epoch=st.integers(0, (1 << 63) - 1),
    scope=st.sampled_from(["__global__", "west"]),
    dirty=st.booleans(),
    hosted_queues=st.dictionaries(
        st.integers(0, 65_535), st.lists(ITEMS, max_size=3).map(tuple), max_size=4
    ).map(lambda queues: dict(sorted(queues.items()))),
)


@st.composite
def histories(draw: st.DrawFn) -> Segments:
    """A history that keeps the rules; each segment has a physical queue of its own."""
    found: list[LogicQueueMappingItem] = []
    begin = 0
    for gen in range(draw(st.integers(1, 4))):
        begin += draw(st.integers(1, 3)) * 10_000 if gen else 0
        start = draw(st.integers(0, 500))
        end = draw(st.sampled_from([-1, start + draw(st.integers(0, 9_000))]))
        found.append(item(2 * gen, draw(NAMES), gen, begin, start, end))
    if len(found) > 1 and draw(st.booleans()):
        found[-1] = item(found[-1].gen, found[-1].broker_name, found[-1].queue_id)
    return tuple(found)
