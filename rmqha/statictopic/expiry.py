"""What of a mapping is of no use any more, once the messages of old segments have expired.

Only what can be proved useless goes: a segment without messages that will get none, and the list
of a queue that has moved on from here and on again.

Source: TopicQueueMappingCleanService of RocketMQ 5.0 to 5.5, which also asks the sets of others.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple

from rmqha.statictopic.mapping import LogicQueueMappingItem, Segments, TopicQueueMappingDetail

Place = tuple[str, int]
"""A broker set and one of its physical queues."""

_MOVES = 2
"""After so many moves nobody asks here for the queue's leader: clients have heard of the later one."""


class Dropped(NamedTuple):
    """A segment that goes from a queue.

    Groups that have read all of it have their position in it, perhaps nowhere else: they must be
    given the start of ``following`` before, or they begin where new groups begin.
    """

    logical_id: int
    item: LogicQueueMappingItem
    following: LogicQueueMappingItem


class Expiry(NamedTuple):
    """What becomes of a mapping, and what it loses.

    Attributes:
        detail: what the mapping becomes; the same object when nothing expires.
        segments: those dropped from queues that stay, and this set's own of lists that go: a leader
            that is Java's looks after nobody's position.
        lists: logical queues of which this set keeps nothing.
    """

    detail: TopicQueueMappingDetail
    segments: tuple[Dropped, ...] = ()
    lists: tuple[int, ...] = ()

    def but_for(self, logical_ids: Collection[int], before: TopicQueueMappingDetail) -> Expiry:
        """The same with some logical queues as they were before."""
        if not logical_ids:
            return self
        segments = tuple(one for one in self.segments if one.logical_id not in logical_ids)
        lists = tuple(one for one in self.lists if one not in logical_ids)
        if not segments and not lists:
            return Expiry(before)
        stay = {one: before.hosted_queues[one] for one in logical_ids}
        return Expiry(
            self.detail.with_queues({**self.detail.hosted_queues, **stay}), segments, lists
        )


def expire(detail: TopicQueueMappingDetail, empty: Collection[Place]) -> Expiry:
    """Drop the first segments that are empty, and the lists that say nothing any more.

    Args:
        empty: physical queues known to hold no message (min equals max): those of this set, and
            of others as far as they were asked.
    """
    kept: dict[int, Segments] = {}
    dropped: list[Dropped] = []
    lists: list[int] = []
    for logical, segments in detail.hosted_queues.items():
        left = _without_empty_head(segments, empty)
        if _is_useless(detail.broker_name, left, empty):
            lists.append(logical)
            dropped += (
                Dropped(logical, one, following)
                for one, following in pairwise(segments)
                if one.broker_name == detail.broker_name
            )
            continue
        kept[logical] = left
        gone = segments[: len(segments) - len(left)]
        dropped += (Dropped(logical, one, left[0]) for one in gone)
    if not dropped and not lists:
        return Expiry(detail)
    return Expiry(detail.with_queues(kept), tuple(dropped), tuple(lists))


def _without_empty_head(segments: Segments, empty: Collection[Place]) -> Segments:
    """The list from the first segment on that has messages, or may get some.

    A segment may get some as long as the next one is undecided: its set may not have heard yet
    that it leads no more.
    """
    first = 0
    while (
        first + 1 < len(segments)
        and segments[first + 1].is_decided
        and _place(segments[first]) in empty
    ):
        first += 1
    return segments[first:]


def _is_useless(broker_name: str, segments: Segments, empty: Collection[Place]) -> bool:
    """Whether a list says nothing that this set, its messages or its clients need."""
    own = [at for at, one in enumerate(segments) if one.broker_name == broker_name]
    if any(_place(segments[at]) not in empty for at in own):
        return False
    moves = len(segments) - (own[-1] + 1 if own else 0)
    return moves >= _MOVES and segments[-1].is_decided


def _place(item: LogicQueueMappingItem) -> Place:
    return item.broker_name, item.queue_id
