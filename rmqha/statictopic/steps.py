"""The steps of a change, in an order in which no queue ever has two brokers that take messages.

1. Brokers that are to lead a moved queue learn of it. Where it begins is undecided, so they do not
   take messages yet (Java's do).
2. Brokers that led one learn it, too, and take no more messages of it.
3. They are asked where their physical queues end, and the beginnings are decided behind that.
4. The new leaders learn where their queues begin, and take messages.
5. All others learn everything, the old leaders among them.

Every step can be repeated. Whoever finds some of them done makes a new change of what brokers know,
and its steps go on from there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from rmqha.statictopic.known import Known, KnownTopic, PlanRefused
from rmqha.statictopic.mapping import Segments, TopicQueueMappingDetail
from rmqha.statictopic.plan import Change
from rmqha.statictopic.rules import topic_error, updated
from rmqha.statictopic.translate import block_above


class Phase(StrEnum):
    """Why a broker is told something."""

    MAP_IN = "lead it, beginning undecided"
    MAP_OUT = "stop leading"
    DECIDED = "take messages"
    ALL = "know"


class Tell(Struct, frozen=True):
    """Give a broker its mapping and numbers of queues (513)."""

    broker_name: str
    phase: Phase
    read_queue_nums: int
    write_queue_nums: int
    detail: TopicQueueMappingDetail
    force: bool = False


class Look(Struct, frozen=True):
    """Ask a broker where physical queues end (202)."""

    broker_name: str
    queue_ids: tuple[int, ...]


Step = Tell | Look
Ends = Mapping[int, int]
"""The end of each physical queue of one broker."""
Steps = Generator[Step, Ends, Known]
"""Yields steps and is sent the answer of each: ends for a Look, nothing for a Tell."""


def steps(change: Change) -> Steps:
    """The steps of a change; returns what brokers know after them.

    Brokers that know already what they are to be told are not told again.

    Raises:
        PlanRefused: a broker would not take what it is told; an end misses.
    """
    known, lists, nums = change.known, dict(change.histories), change.queue_nums()
    told_in, told_out = change.map_in, change.map_out
    known = yield from _tell(change, nums, known, lists, told_in, Phase.MAP_IN)
    known = yield from _tell(change, nums, known, lists, told_out, Phase.MAP_OUT)
    ends = yield from _look(change)
    for logical, segments in change.undecided.items():
        lists[logical] = _decided(segments, ends)
    known = yield from _tell(change, nums, known, lists, told_in, Phase.DECIDED)
    others = sorted(known.brokers, key=lambda name: (name != change.scribe, name))
    return (yield from _tell(change, nums, known, lists, others, Phase.ALL))


def check(change: Change) -> None:
    """Play a change through.

    Raises:
        PlanRefused: a broker would refuse a step, or the outcome would break a rule.
    """
    walk = steps(change)
    try:
        step = next(walk)
        while True:
            ends = dict.fromkeys(step.queue_ids, 0) if isinstance(step, Look) else {}
            step = walk.send(ends)
    except StopIteration as end:
        after: Known = end.value
    # A queue whose broker is away has no leader among those that are there.
    all_there = all(
        change.known.leader(change.histories.get(logical)) for logical in range(change.total_queues)
    )
    error = topic_error(after.details) if all_there else None
    if error is not None:
        raise PlanRefused(f"the mapping would be wrong: {error}")


def stop(change: Change, name: str) -> Tell:
    """What a broker set is told so that it leads no more, for a new master that may not know of it."""
    read, write = change.queue_nums()[name]
    detail = change.detail(name, change.histories)
    return Tell(name, Phase.MAP_OUT, read, write, detail, change.force)


def _tell(
    change: Change,
    nums: Mapping[str, tuple[int, int]],
    known: Known,
    lists: Mapping[int, Segments],
    names: Iterable[str],
    phase: Phase,
) -> Steps:
    for name in names:
        read, write = nums[name]
        detail = change.detail(name, lists)
        old = known.brokers[name].detail
        found = updated(old, detail, force=False)
        force = change.force and isinstance(found, str)
        if force:
            found = updated(old, detail, force=True)
        if isinstance(found, str):
            raise PlanRefused(f"{name} would refuse its mapping, unless -fr true: {found}")
        learnt = KnownTopic(read, write, found)
        if learnt != known.brokers[name]:
            yield Tell(name, phase, read, write, detail, force)
            known = known.with_broker(name, learnt)
    return known


def _look(change: Change) -> Generator[Step, Ends, dict[tuple[str, int], int]]:
    wanted: dict[str, set[int]] = {}
    for logical, segments in change.undecided.items():
        before = segments[-2] if len(segments) > 1 else None
        if before is None or before.broker_name not in change.known.brokers:
            raise PlanRefused(
                f"logical queue {logical} goes on where a broker that is not there ended; with "
                "-fr true that one is given up"
            )
        wanted.setdefault(before.broker_name, set()).add(before.queue_id)
    found: dict[tuple[str, int], int] = {}
    for name, queues in sorted(wanted.items()):
        ends = yield Look(name, tuple(sorted(queues)))
        for queue in queues:
            if queue not in ends:
                raise PlanRefused(f"{name} does not say where its queue {queue} ends")
            found[name, queue] = ends[queue]
    return found


def _decided(segments: Segments, ends: Mapping[tuple[str, int], int]) -> Segments:
    before, last = segments[-2:]
    end = before.logical(ends[before.broker_name, before.queue_id])
    return (*segments[:-1], replace(last, logic_offset=block_above(end)))
