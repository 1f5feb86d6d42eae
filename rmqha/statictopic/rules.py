"""What must hold of a mapping, and which change of one a broker takes.

Java states most of this with asserts that are off; here they are checks.

Source: TopicQueueMappingUtils and TopicQueueMappingManager.updateTopicQueueMapping of RocketMQ 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import lt

from rmqha.remoting.headers import INT64_MAX
from rmqha.statictopic.mapping import (
    QUEUES_MAX,
    LogicQueueMappingItem,
    Segments,
    TopicQueueMappingDetail,
)


def segments_error(segments: Segments) -> str | None:
    """What is wrong with one logical queue's history; None if nothing is."""
    if _is_plain(segments) and are_distinct((segments,)):
        return None
    for at, one in enumerate(segments):
        error = _item_error(one)
        if error is None and at:
            error = _order_error(segments[at - 1], one)
        if error is not None:
            return f"segment {at} {error}"
        if not one.is_decided and one is not segments[-1]:
            return f"segment {at} has no logical offset, and is not the last"
    places = [(one.broker_name, one.queue_id) for one in segments]
    return None if len(set(places)) == len(places) else "a physical queue is there twice"


def _is_plain(segments: Segments) -> bool:
    """Whether each segment is right for the simplest of reasons, as in nearly all histories.

    They are compared by the column: a remap looks at each history several times while messages
    wait, and histories have hundreds of segments.
    """
    gens = [one.gen for one in segments]
    begins = [one.logic_offset for one in segments]
    if len(begins) > 1 and begins[-1] < 0:
        begins[-1] = INT64_MAX  # undecided, so behind all others
    return (
        bool(segments)
        and gens[0] >= 0
        and begins[0] >= 0
        and min([one.start_offset for one in segments]) >= 0
        and min([one.queue_id for one in segments]) >= 0
        and max([one.end_offset for one in segments]) < 0
        and all(map(lt, gens, gens[1:]))
        and all(map(lt, begins, begins[1:]))
    )


def are_distinct(histories: Iterable[Segments]) -> bool:
    """Whether no physical queue is there twice.

    Places are numbers here: so many pairs would have the collector look at all that there is.
    """
    lists = [*histories]
    names = {one.broker_name for segments in lists for one in segments}
    first = {name: at << 33 for at, name in enumerate(sorted(names))}
    places = [first[one.broker_name] + one.queue_id for segments in lists for one in segments]
    return len({*places}) == len(places)


def _item_error(one: LogicQueueMappingItem) -> str | None:
    if one.start_offset < 0 or one.gen < 0 or one.queue_id < 0:
        return "has a negative gen, queueId or startOffset"
    if 0 <= one.end_offset < one.start_offset:
        return "ends before it starts"
    return None


def _order_error(before: LogicQueueMappingItem, one: LogicQueueMappingItem) -> str | None:
    if one.gen <= before.gen:
        return f"has generation {one.gen} after {before.gen}"
    if one.is_decided and one.logic_offset <= before.logic_offset:
        return f"begins at {one.logic_offset}, not behind the one before"
    if one.is_decided and before.logical_end is not None and before.logical_end > one.logic_offset:
        return f"begins at {one.logic_offset}, inside the one before"
    return None


def detail_error(detail: TopicQueueMappingDetail) -> str | None:
    """What is wrong with one broker's mapping in itself; None if nothing is."""
    if not 0 < detail.total_queues <= QUEUES_MAX:
        return f"totalQueues is {detail.total_queues}"
    if detail.epoch < 0:
        return f"the epoch is {detail.epoch}"
    lists = detail.hosted_queues
    are_plain = all(map(_is_plain, lists.values())) and are_distinct(lists.values())
    if are_plain and max(lists, default=0) < detail.total_queues:
        return None
    used: set[tuple[str, int]] = set()
    for logical, segments in detail.hosted_queues.items():
        if logical >= detail.total_queues:
            return f"logical queue {logical} is beyond totalQueues {detail.total_queues}"
        if not segments:
            return f"logical queue {logical} has no segment"
        error = segments_error(segments)
        if error is not None:
            return f"logical queue {logical}: {error}"
        places = {(one.broker_name, one.queue_id) for one in segments}
        if places & used:
            return f"logical queue {logical} shares a physical queue with another one"
        used |= places
    return None


def updated(
    old: TopicQueueMappingDetail | None, new: TopicQueueMappingDetail, *, force: bool
) -> TopicQueueMappingDetail | str:
    """The mapping of a broker after a 513, or why it stays as it is.

    Lists that the new mapping lacks are kept: a queue that has moved on still has messages here.

    Args:
        force: the new lists count, whatever the old ones say.
    """
    error = detail_error(new)
    if error is not None:
        return error
    if old is None:
        return new
    if not force:
        error = _succession_error(old, new)
        if error is not None:
            return error
    if old.hosted_queues.keys() <= new.hosted_queues.keys():
        return new
    merged = new.with_queues({**old.hosted_queues, **new.hosted_queues})
    # Lists of before may be of queues that the new ones have been given.
    error = detail_error(merged)
    return merged if error is None else f"with what is there: {error}"


def _succession_error(old: TopicQueueMappingDetail, new: TopicQueueMappingDetail) -> str | None:
    if new.epoch < old.epoch:
        return f"epoch {new.epoch} is older than {old.epoch}"
    if new.scope != old.scope:
        return f"scope {new.scope} is not {old.scope}"
    if new.total_queues < old.total_queues:
        return f"totalQueues would fall from {old.total_queues} to {new.total_queues}"
    for logical, before in old.hosted_queues.items():
        after = new.hosted_queues.get(logical)
        if after is None:
            if new.epoch == old.epoch:
                return f"logical queue {logical} misses in a mapping of the same epoch"
            continue
        error = _history_error(before, after, same_epoch=new.epoch == old.epoch)
        if error is not None:
            return f"logical queue {logical}: {error}"
    return None


def _history_error(before: Segments, after: Segments, *, same_epoch: bool) -> str | None:
    # What both begin with agrees, and as generations grow nothing behind it is one of these.
    same = len(before) - 1
    if before[:same] != after[:same]:
        same = 0
    known = {one.gen: one for one in before[same:]}
    for one in after[same:]:
        old = known.get(one.gen)
        if old is None:
            continue
        if (old.broker_name, old.queue_id, old.start_offset) != (
            one.broker_name, one.queue_id, one.start_offset,
        ):  # fmt: skip
            return f"generation {one.gen} is another physical queue"
        if old.is_decided and old.logic_offset != one.logic_offset:
            return f"generation {one.gen} began at {old.logic_offset}, not {one.logic_offset}"
    if same_epoch and before[-1].gen != after[-1].gen:
        return "another leader in the same epoch"
    if after[-1].gen < before[-1].gen:
        return f"the leader would be of generation {after[-1].gen} after {before[-1].gen}"
    return None


def topic_error(details: Iterable[TopicQueueMappingDetail]) -> str | None:
    """What is wrong with a topic as all its broker sets know it; None if nothing is.

    Every logical queue has one leader, no physical queue serves two, and all brokers are of one
    epoch, scope and count.
    """
    found = sorted(details, key=lambda one: one.broker_name)
    if not found:
        return "no broker has a mapping of it"
    first = found[0]
    for one in found:
        if one.dirty:
            return f"{one.broker_name} has a dirty mapping"
        if (one.epoch, one.scope, one.total_queues) != (
            first.epoch, first.scope, first.total_queues,
        ):  # fmt: skip
            return (
                f"{one.broker_name} has epoch {one.epoch}, {one.total_queues} queues, scope "
                f"{one.scope}; {first.broker_name} has {first.epoch}, {first.total_queues}, "
                f"{first.scope}"
            )
        error = detail_error(one)
        if error is not None:
            return f"{one.broker_name}: {error}"
    return _leaders_error(leaders(found), first.total_queues)


def leaders(details: Iterable[TopicQueueMappingDetail]) -> dict[int, list[Segments]]:
    """The histories of each logical queue that a broker claims to lead."""
    found: dict[int, list[Segments]] = {}
    for detail in details:
        for logical in detail.curr_id_map:
            found.setdefault(logical, []).append(detail.hosted_queues[logical])
    return found


def _leaders_error(claims: Mapping[int, list[Segments]], total: int) -> str | None:
    places: dict[tuple[str, int], int] = {}
    for logical in range(total):
        histories = claims.get(logical, [])
        if len(histories) != 1:
            names = ", ".join(one[-1].broker_name for one in histories) or "nobody"
            return f"logical queue {logical} is led by {names}"
        for one in histories[0]:
            other = places.setdefault((one.broker_name, one.queue_id), logical)
            if other != logical:
                return (
                    f"queue {one.queue_id} of {one.broker_name} is of the logical queues {other} "
                    f"and {logical}"
                )
    return None
