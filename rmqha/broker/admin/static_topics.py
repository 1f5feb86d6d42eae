"""What a broker shows of static topics: the chains of the logical queues that it leads or has led."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from rmqha.statictopic.mapping import LogicQueueMappingItem, Segments, TopicQueueMappingDetail
from rmqha.statictopic.translate import SegmentState, segment_states
from rmqha.web.document import LogicalQueueView, SegmentView, StaticTopicView

QUEUES_MAX = 200
"""Logical queues of all topics together: the page is made anew every second."""
SEGMENTS_MAX = 6
"""The newest of each queue."""

Ends = Callable[[str, int], tuple[int, int]]
"""First offset and the one behind the last, both physical, of a topic's queue on this broker."""


def static_topics(
    mappings: Mapping[str, TopicQueueMappingDetail], ends: Ends
) -> Iterator[StaticTopicView]:
    """Static topics by name, until as many queues are shown as may be."""
    left = QUEUES_MAX
    for topic, detail in sorted(mappings.items()):
        if left <= 0:
            return
        shown = sorted(detail.hosted_queues)[:left]
        left -= len(shown)
        queues = tuple(_queue(detail, logical, ends) for logical in shown)
        yield StaticTopicView(topic, detail.epoch, detail.total_queues, queues)


def _queue(detail: TopicQueueMappingDetail, logical: int, ends: Ends) -> LogicalQueueView:
    segments = detail.hosted_queues[logical]
    leader = segments[-1]
    here = {
        one.gen: ends(detail.topic, one.queue_id)
        for one in segments[-SEGMENTS_MAX:]
        if one.broker_name == detail.broker_name
    }
    shown = tuple(_segments(segments, here))[-SEGMENTS_MAX:]
    return LogicalQueueView(
        logical, leader.broker_name, leader.queue_id, shown, len(segments) - len(shown)
    )


def _segments(segments: Segments, here: Mapping[int, tuple[int, int]]) -> Iterable[SegmentView]:
    """Of a segment elsewhere the place and the beginning are known, and whether it is the last."""
    empty = frozenset(gen for gen, (low, high) in here.items() if low >= high)
    for one, state in zip(segments, segment_states(segments, empty), strict=True):
        is_known = one.gen in here or state is SegmentState.NORMAL
        yield _segment(one, state.value if is_known else None, here.get(one.gen))


def _segment(
    one: LogicQueueMappingItem, state: str | None, ends: tuple[int, int] | None
) -> SegmentView:
    if not one.is_decided:
        return SegmentView(one.broker_name, one.queue_id, state)
    if ends is None:
        return SegmentView(one.broker_name, one.queue_id, state, one.logic_offset)
    low, high = ends
    return SegmentView(
        one.broker_name, one.queue_id, state, one.logical(low), one.logical(high), high - low
    )
