"""What all broker sets of a cluster know of one static topic, and what follows from it.

A command that crashed leaves brokers that know different things. The newest history of each logical
queue is found from all of them, so that whoever comes next can go on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rmqha.base.errors import RmqhaError
from rmqha.statictopic.mapping import (
    GLOBAL_SCOPE,
    QUEUES_MAX,
    LogicQueueMappingItem,
    Segments,
    TopicQueueMappingDetail,
)
from rmqha.statictopic.rules import segments_error


class PlanRefused(RmqhaError):
    """A change of a static topic that cannot be, or that only an operator's word can excuse."""


class KnownTopic(Struct, frozen=True):
    """What one broker set knows of a topic; without it the numbers are 0.

    Attributes:
        detail: None where the broker has no mapping.
    """

    read_queue_nums: int = 0
    write_queue_nums: int = 0
    detail: TopicQueueMappingDetail | None = None


class Known(Struct, frozen=True):
    """What the broker sets know, by name; one that is missing here is away."""

    topic: str
    brokers: Mapping[str, KnownTopic]

    @property
    def details(self) -> list[TopicQueueMappingDetail]:
        """The mappings that there are, by name of broker."""
        found = (one.detail for _, one in sorted(self.brokers.items()))
        return [detail for detail in found if detail is not None]

    @property
    def epoch(self) -> int:
        """The newest one; -1 where nobody has a mapping."""
        return max((one.epoch for one in self.details), default=-1)

    @property
    def total_queues(self) -> int:
        """How many logical queues there are."""
        return max((one.total_queues for one in self.details), default=0)

    @property
    def scope(self) -> str:
        """The scope of the newest mapping."""
        newest = max(self.details, key=lambda one: one.epoch, default=None)
        return GLOBAL_SCOPE if newest is None else newest.scope

    def with_broker(self, name: str, one: KnownTopic) -> Known:
        """The same after one broker has learnt something."""
        return replace(self, brokers={**self.brokers, name: one})

    def leader(self, history: Segments | None) -> str | None:
        """Who leads a queue of this history; None where that broker is away, or unknown."""
        return (
            history[-1].broker_name if history and history[-1].broker_name in self.brokers else None
        )


class FreeQueues:
    """The physical queues of each broker that no segment has ever had, in order.

    They lie behind its write queues, and behind those that a history names: somebody may have set
    the number of write queues back.
    """

    def __init__(self, known: Known, more: Iterable[Segments] = ()) -> None:
        self._next = {name: one.write_queue_nums for name, one in known.brokers.items()}
        lists = [*more]
        for detail in known.details:
            lists += detail.hosted_queues.values()
        for one in chain.from_iterable(lists):
            if one.broker_name in self._next:
                self._next[one.broker_name] = max(self._next[one.broker_name], one.queue_id + 1)

    def count(self, name: str) -> int:
        """How many of a broker have been taken."""
        return self._next[name]

    def take(self, name: str) -> int:
        """The next one of a broker.

        Raises:
            PlanRefused: it has had as many as a topic can have; in the midst of a move it would say so.
        """
        queue = self._next[name]
        if queue >= QUEUES_MAX:
            raise PlanRefused(
                f"{name} has no queue left of the {QUEUES_MAX} that a topic can have there"
            )
        self._next[name] = queue + 1
        return queue


class _Copy(NamedTuple):
    holder: TopicQueueMappingDetail
    segments: Segments

    @property
    def last(self) -> LogicQueueMappingItem:
        return self.segments[-1]

    @property
    def place(self) -> tuple[int, str, int]:
        return self.last.gen, self.last.broker_name, self.last.queue_id

    @property
    def is_fence(self) -> bool:
        """Whether the broker before the leader has it: it has stopped for this leader."""
        return len(self.segments) > 1 and self.segments[-2].broker_name == self.holder.broker_name

    @property
    def is_claim(self) -> bool:
        """Whether its holder is the leader by it."""
        return self.last.broker_name == self.holder.broker_name

    def with_missed(self, best: Segments, epoch: int) -> Segments:
        """A newer history with what its holder has and nobody else knows of: it was given up.

        If it led then, all of its list comes before the history; else its own segments come to where
        they were. One that has heard of the leader's newest change was not away. One that has heard of
        a later change than the leader is believed: what took it back may have died before the leader
        was told, or its side of a network had operators of its own.
        """
        if self.is_claim and self.last.is_decided and self.last.gen < best[0].gen:
            return self.segments + best
        if self.holder.epoch == epoch:
            return best
        gens = {one.gen for one in best}
        own = [
            one
            for one in self.segments
            if one.broker_name == self.holder.broker_name
            and one.is_decided
            and one.gen not in gens
            and one.gen < best[-1].gen
        ]
        return tuple(sorted((*own, *best), key=lambda one: one.gen)) if own else best


def histories(known: Known) -> dict[int, Segments]:
    """The newest history of each logical queue that anybody has a list of."""
    copies: dict[int, list[_Copy]] = {}
    for detail in known.details:
        for logical, segments in detail.hosted_queues.items():
            if segments:
                copies.setdefault(logical, []).append(_Copy(detail, segments))
    return {logical: _newest(found) for logical, found in sorted(copies.items())}


def _newest(copies: Sequence[_Copy]) -> Segments:
    """The history with the newest leader.

    Of two leaders of one generation, which only two commands at once can make, the one that has
    been decided counts, else the one for which the broker before it has stopped.
    """

    def weight(place: tuple[int, str, int]) -> tuple[int, bool, bool, int]:
        found = [one for one in copies if one.place == place]
        return (
            place[0],
            any(one.last.is_decided for one in found),
            any(one.is_fence for one in found),
            max(one.holder.epoch for one in found),
        )

    newest = max(dict.fromkeys(one.place for one in copies), key=weight)
    trusted = max((one for one in copies if one.place == newest), key=_trust)
    best = trusted.segments
    for one in copies:
        both = one.with_missed(best, trusted.holder.epoch)
        best = best if both is best or segments_error(both) else both
    return best


def _trust(one: _Copy) -> tuple[bool, int, int]:
    """Which of several lists with one leader to take.

    The leader's own list lacks what has expired. While it is undecided that is no gain: it begins
    behind the segment before it, be that one empty.
    """
    decided = one.last.is_decided
    return decided, one.is_claim if decided else len(one.segments), one.holder.epoch


def is_unfinished(known: Known) -> bool:
    """Whether a change stopped where a queue has no leader that takes messages, or two."""
    newest = histories(known)
    for detail in known.details:
        for logical in detail.curr_id_map:
            if newest[logical][-1].broker_name != detail.broker_name:
                return True
    for logical, history in newest.items():
        leader = known.leader(history)
        if leader is None:
            continue
        detail_of_leader = known.brokers[leader].detail
        own = detail_of_leader.hosted_queues.get(logical) if detail_of_leader else None
        if not history[-1].is_decided or not own or own[-1] != history[-1]:
            return True
    return False


def is_stale(known: Known, *, force: bool = False) -> bool:
    """Whether a broker lacks something that another one knows, or its mapping is dirty.

    Args:
        force: brokers that are not there are given up: segments of theirs are to go.
    """
    newest, epoch, total = histories(known), known.epoch, known.total_queues
    before = chain.from_iterable(segments[:-1] for segments in newest.values())
    if force and any(one.broker_name not in known.brokers for one in before):
        return True
    for one in known.brokers.values():
        detail = one.detail
        if detail is None or detail.dirty or (detail.epoch, detail.total_queues) != (epoch, total):
            return True
        for logical, segments in detail.hosted_queues.items():
            if not segments or segments[-1] != newest[logical][-1]:
                return True
    return is_unfinished(known)
