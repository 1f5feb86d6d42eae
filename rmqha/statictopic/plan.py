"""Plans for a static topic: which mapping each broker set is to have at last.

A queue that moves gets a new segment on a physical queue that was never used. Where it begins is
decided on the way (``steps.py``). A queue whose broker is away for good goes on far behind anything
that the lost broker can have taken.

Source: RIP-21; the checks of updateStaticTopic and remappingStaticTopic of RocketMQ 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from rmqha.statictopic.known import FreeQueues, Known, PlanRefused, histories
from rmqha.statictopic.mapping import (
    QUEUES_MAX,
    UNDECIDED,
    LogicQueueMappingItem,
    Segments,
    TopicQueueMappingDetail,
)
from rmqha.statictopic.placement import new_queues
from rmqha.statictopic.rules import are_distinct

_EPOCH_STEP = 1_000
LOST_OFFSETS = 1_000_000_000_000
"""What a broker that is lost can at most have taken beyond what is known of a queue."""
LOST_GENERATIONS = 1_000_000
"""How often it can have been given and lost the queue meanwhile."""


class Change(Struct, frozen=True):
    """A change of a static topic.

    Attributes:
        known: what brokers know before it.
        epoch: of all mappings at last.
        histories: of all logical queues at last; a newest segment may still be undecided.
        force: brokers take a mapping that contradicts theirs, and what is lost is given up.
        scribe: the broker that is told all new queues at first: if nobody else is told any more,
            it knows where they were to be. It is the same for all commands, so that of two at once
            one is refused.
        born: the new queues.
    """

    known: Known
    epoch: int
    total_queues: int
    histories: Mapping[int, Segments]
    force: bool = False
    scribe: str | None = None
    born: frozenset[int] = field(default_factory=frozenset)

    def detail(self, name: str, lists: Mapping[int, Segments]) -> TopicQueueMappingDetail:
        """The mapping of one broker: what it leads, led last, or has had a list of already."""
        old = self.known.brokers[name].detail
        wanted = {*(old.hosted_queues if old else ())} & lists.keys()
        for logical, segments in lists.items():
            if name in [one.broker_name for one in segments[-2:]]:
                wanted.add(logical)
        if name == self.scribe:
            wanted |= self.born
        return TopicQueueMappingDetail(
            self.known.topic, self.total_queues, name, self.epoch, self.known.scope,
            hosted_queues={logical: lists[logical] for logical in sorted(wanted)},
        )  # fmt: skip

    def queue_nums(self) -> dict[str, tuple[int, int]]:
        """How many read and write queues each broker needs."""
        free, found = FreeQueues(self.known, self.histories.values()), {}
        for name, one in self.known.brokers.items():
            write = free.count(name)
            found[name] = max(one.read_queue_nums, write), write
        return found

    @property
    def undecided(self) -> dict[int, Segments]:
        """The queues whose beginning is to be decided; their new leaders are there."""
        return {
            logical: segments
            for logical, segments in self.histories.items()
            if not segments[-1].is_decided and self.known.leader(segments)
        }

    @property
    def map_in(self) -> list[str]:
        """The brokers that are to lead these."""
        return sorted({segments[-1].broker_name for segments in self.undecided.values()})

    @property
    def map_out(self) -> list[str]:
        """Brokers that still lead a queue which is another one's at last.

        Those before an undecided segment as well: a Java slave that became master knows nothing of
        the mapping, takes messages still, and does not tell the ends of queues it has not heard of.
        """
        found = {
            detail.broker_name
            for detail in self.known.details
            if any(
                self.histories[logical][-1].broker_name != detail.broker_name
                for logical in detail.curr_id_map
            )
        }
        for segments in self.undecided.values():
            found.update(one.broker_name for one in segments[-2:-1])
        return sorted(found & self.known.brokers.keys())


def next_epoch(known: Known, now_ms: int) -> int:
    """The epoch of the next change."""
    return max(known.epoch + _EPOCH_STEP, now_ms)


def retell(known: Known, now_ms: int, *, force: bool = False) -> Change:
    """Finish what was begun, and tell every broker what it has to know."""
    return remap(known, {}, now_ms, force=force)


def grow(
    known: Known, count: int, targets: Sequence[str], now_ms: int, *, force: bool = False
) -> Change:
    """Create a topic with ``count`` logical queues, or give one so many; new ones to ``targets``.

    Raises:
        PlanRefused: a number that is none, or smaller than before; no target; one that is away;
            an ordinary topic.
    """
    if not known.total_queues <= count <= QUEUES_MAX:
        raise PlanRefused(
            f"{known.topic} has {known.total_queues} logical queues; it can have more, up to "
            f"{QUEUES_MAX}, but not {count}"
        )
    change = retell(known, now_ms, force=force)
    _need_present(known, targets)
    lists, free = dict(change.histories), FreeQueues(known)
    born = new_queues(known, count, targets)
    for logical, name in born.items():
        lists[logical] = (LogicQueueMappingItem(0, free.take(name), name, 0),)
    scribe = min(known.brokers) if born else None
    return replace(change, total_queues=count, histories=lists, scribe=scribe, born=frozenset(born))


def remap(known: Known, moves: Mapping[int, str], now_ms: int, *, force: bool = False) -> Change:
    """Move logical queues to other brokers.

    Args:
        moves: the new leader of each queue; one that leads it already is left alone.
        force: queues may move away from brokers that are not there: these are given up, with all
            that they have of any queue.

    Raises:
        PlanRefused: no such topic, queue or target; a queue whose move has not been finished; one
            whose broker is away, without ``force``; an ordinary topic.
    """
    _refuse_ordinary(known)
    dirty = [one.broker_name for one in known.details if one.dirty]
    if dirty and not force:
        raise PlanRefused(
            f"the mapping of {', '.join(dirty)} is marked dirty; -fr true replaces it"
        )
    _need_present(known, moves.values())
    free = FreeQueues(known)
    lists = _unshared(known, histories(known), free)
    for logical, name in sorted(moves.items()):
        if not 0 <= logical < known.total_queues:
            raise PlanRefused(f"{known.topic} has no logical queue {logical}")
        history = lists.get(logical)
        if known.leader(history) != name:
            lists[logical] = _moved(known, logical, history, name, free, force=force)
    if force:
        lists = {logical: without_lost(known, one) for logical, one in lists.items()}
    return Change(known, next_epoch(known, now_ms), known.total_queues, lists, force)


def _unshared(known: Known, lists: Mapping[int, Segments], free: FreeQueues) -> dict[int, Segments]:
    """Give a queue another physical one if two commands at once have planned with the same.

    It can only be one of which its new leader has not heard, and which nobody has written to. The
    generation grows: others have heard of it.
    """
    if are_distinct(lists.values()):
        return dict(lists)
    users: dict[tuple[str, int], list[int]] = {}
    for logical, segments in lists.items():
        for one in segments:
            users.setdefault((one.broker_name, one.queue_id), []).append(logical)
    found = dict(lists)
    for (name, _), sharing in users.items():
        detail = known.brokers[name].detail if name in known.brokers else None
        heard = detail.curr_id_map if detail else {}
        for logical in sharing if len(sharing) > 1 else ():
            last = lists[logical][-1]
            if last.broker_name == name and logical not in heard:
                new = replace(last, gen=last.gen + 1, queue_id=free.take(name))
                found[logical] = (*lists[logical][:-1], new)
    return found


def _refuse_ordinary(known: Known) -> None:
    if known.details:
        return
    ordinary = [name for name, one in sorted(known.brokers.items()) if one.write_queue_nums]
    if ordinary:
        raise PlanRefused(
            f"{known.topic} is an ordinary topic at {', '.join(ordinary)}; it cannot become static"
        )


def _need_present(known: Known, names: Iterable[str]) -> None:
    missing = sorted({*names} - known.brokers.keys())
    if missing:
        raise PlanRefused(f"broker set {', '.join(missing)} is not in the cluster")


def _moved(
    known: Known,
    logical: int,
    history: Segments | None,
    name: str,
    free: FreeQueues,
    *,
    force: bool,
) -> Segments:
    if known.leader(history) is None and not force:
        where = f"{history[-1].broker_name}, which" if history else "a broker that"
        raise PlanRefused(
            f"logical queue {logical} is led by {where} is not there; with -fr true it is given up"
        )
    queue = free.take(name)
    if history is None:
        return (LogicQueueMappingItem(LOST_GENERATIONS, queue, name, LOST_OFFSETS),)
    last = history[-1]
    if known.leader(history) is not None:
        if not last.is_decided:
            raise PlanRefused(f"the last move of logical queue {logical} has not been finished")
        return (*history, LogicQueueMappingItem(last.gen + 1, queue, name, UNDECIDED))
    before = _given_up(history) if not last.is_decided else history
    gen, begin = last.gen + LOST_GENERATIONS, before[-1].logic_offset + LOST_OFFSETS
    return (*before, LogicQueueMappingItem(gen, queue, name, begin))


def _given_up(segments: Segments) -> Segments:
    """The last segment begins far behind the one before it, whose end nobody can be asked for."""
    begin = LOST_OFFSETS + (segments[-2].logic_offset if len(segments) > 1 else 0)
    return (*segments[:-1], replace(segments[-1], logic_offset=begin))


def without_lost(known: Known, segments: Segments) -> Segments:
    """The history without segments of brokers that are lost: whoever came there would stand still.

    Where one comes back, its own list says what there was (``known.histories``). The segment before an
    undecided one stays in any case: where that begins is counted from it.
    """
    segments = _decided_without(known, segments)
    kept = segments[-1:] if segments[-1].is_decided else segments[-2:]
    before = segments[: -len(kept)]
    return (*(one for one in before if one.broker_name in known.brokers), *kept)


def _decided_without(known: Known, segments: Segments) -> Segments:
    """A new leader whose predecessor is lost need not wait for it."""
    undecided = not segments[-1].is_decided and known.leader(segments)
    alone = len(segments) < 2 or segments[-2].broker_name not in known.brokers
    return _given_up(segments) if undecided and alone else segments
