"""Map files: what brokers knew before a change, and what they are to know after it.

An after-file is a plan that can be carried out again. New leaders in it are undecided, as they are
when a change begins; where they begin is always found out anew.

Source: TopicRemappingDetailWrapper of RocketMQ 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rmqha.base.errors import RemoteProtocolError
from rmqha.remoting import fastjson
from rmqha.remoting.headers import INT32_MAX, INT64_MAX
from rmqha.remoting.values import as_number, as_object, as_text
from rmqha.statictopic.known import Known, KnownTopic, PlanRefused, histories
from rmqha.statictopic.mapping import (
    QUEUES_MAX,
    UNDECIDED,
    LogicQueueMappingItem,
    Segments,
    TopicQueueMappingDetail,
)
from rmqha.statictopic.plan import LOST_GENERATIONS, LOST_OFFSETS, Change, retell, without_lost

CREATE_OR_UPDATE = "CREATE_OR_UPDATE"
REMAPPING = "REMAPPING"

AHEAD_MAX_MS = 366 * 24 * 3_600_000
"""How far a file's epoch may be ahead of the clock: behind the largest number nothing can be told."""

GEN_MAX = INT32_MAX // 2
"""Of a new segment in a file: a queue of the largest generation could never move again."""

QUEUE_MAX = QUEUES_MAX // 2 - 1
"""The physical queue of a new segment in a file, where its set has fewer: the next ones come behind it,
and a set that had all that brokers may have could never be given a queue of the topic again."""

BEGIN_MAX = INT64_MAX // 2
"""Where a new queue of a file may begin; it has to have room behind that."""

Configs = Mapping[str, Mapping[str, Any]]
"""The JSON members of each broker's TopicConfig; read and write queues are set here."""


class MapFile(Struct, frozen=True):
    """A map file's content."""

    kind: str
    epoch: int
    known: Known


def before_file(change: Change, kind: str, configs: Configs) -> bytes:
    """What brokers know before a change."""
    return _file(change.known, kind, change.known.epoch, configs, [], [])


def after_file(change: Change, kind: str, configs: Configs) -> bytes:
    """What brokers are to know after a change, as far as it is decided."""
    known = change.known
    for name, (read, write) in change.queue_nums().items():
        known = known.with_broker(
            name, KnownTopic(read, write, change.detail(name, change.histories))
        )
    return _file(known, kind, change.epoch, configs, change.map_in, change.map_out)


def _file(
    known: Known, kind: str, epoch: int, configs: Configs, map_in: list[str], map_out: list[str]
) -> bytes:
    table = {}
    for name, one in sorted(known.brokers.items()):
        if one.detail is None and not one.write_queue_nums:
            continue
        nums = {"readQueueNums": one.read_queue_nums, "writeQueueNums": one.write_queue_nums}
        detail = None if one.detail is None else {"mappingDetail": one.detail.members()}
        table[name] = dict(sorted({**configs[name], **nums, **(detail or {})}.items()))
    return fastjson.dumps_bare(
        {
            "brokerConfigMap": table,
            "brokerToMapIn": map_in,
            "brokerToMapOut": map_out,
            "epoch": epoch,
            "topic": known.topic,
            "type": kind,
        }
    )


def read_map_file(data: bytes) -> MapFile:
    """Read a map file, of the Java tool as well.

    Raises:
        RemoteProtocolError: not such a file.
    """
    members = as_object(fastjson.loads(data))
    topic = as_text(members.get("topic"))
    if not topic:
        raise RemoteProtocolError("the map file names no topic")
    brokers = {}
    for name, value in as_object(members.get("brokerConfigMap")).items():
        config = as_object(value)
        one = known_topic(config)
        if one.detail is not None and (one.detail.topic, one.detail.broker_name) != (topic, name):
            raise RemoteProtocolError(f"the mapping of {name} is another broker's or topic's")
        brokers[name] = one
    kind = as_text(members.get("type")) or REMAPPING
    return MapFile(kind, as_number(members.get("epoch")), Known(topic, brokers))


def known_topic(config: Mapping[str, Any]) -> KnownTopic:
    """What a broker knows, by its TopicConfigAndQueueMapping (351); raises RemoteProtocolError."""
    mapping = config.get("mappingDetail")
    return KnownTopic(
        as_number(config.get("readQueueNums")),
        as_number(config.get("writeQueueNums")),
        None if mapping is None else TopicQueueMappingDetail.of(mapping),
    )


def apply_file(known: Known, file: MapFile, now_ms: int, *, force: bool = False) -> Change:
    """The change after which queues are where an after-file has them.

    What has been done of it already is left as it is.

    Raises:
        PlanRefused: it is another topic's; a queue has moved since it was written; it needs a
            broker that is not there; a number of it would leave no room for any later change.
    """
    if file.known.topic != known.topic:
        raise PlanRefused(f"the file is of topic {file.known.topic}")
    change = retell(known, now_ms, force=force)
    if file.epoch > max(change.epoch, now_ms + AHEAD_MAX_MS):
        raise PlanRefused(f"the file's epoch is {file.epoch}, more than a year ahead")
    lists, wanted = dict(change.histories), histories(file.known)
    total = max(known.total_queues, file.known.total_queues)
    room = _room(change, total)
    for logical, segments in wanted.items():
        lists[logical] = _applied(known, room, logical, lists.get(logical), segments)
    if force:
        lists = {logical: without_lost(known, segments) for logical, segments in lists.items()}
    missing = [logical for logical in range(total) if logical not in lists]
    if missing:
        raise PlanRefused(f"neither the file nor a broker has logical queue {missing[0]}")
    # Generations and brokers are the file's: if this, too, is cut short, the next one goes on.
    epoch = max(change.epoch, file.epoch + 1)
    born = frozenset(lists) - change.histories.keys()
    scribe = min(known.brokers) if born else None
    return replace(
        change, epoch=epoch, total_queues=total, histories=lists, scribe=scribe, born=born
    )


def _room(change: Change, total_queues: int) -> dict[str, int]:
    """The last physical queue of each broker set that a file may name; plans take them in order."""
    return {
        name: min(QUEUES_MAX - 1, max(QUEUE_MAX, free + total_queues - 1))
        for name, (_, free) in change.queue_nums().items()
    }


def _applied(
    known: Known, room: Mapping[str, int], logical: int, present: Segments | None, file: Segments
) -> Segments:
    target = _new(room, logical, file[-1])
    if present is None:
        if known.leader(file) is None:
            raise PlanRefused(f"broker set {target.broker_name} is not in the cluster")
        return (*(_new(room, logical, one) for one in file[:-1]), target)
    last = present[-1]
    if _same_place(last, target):
        return present
    # A file of a change that gave the leader up has nothing of it, but for the step to its generation.
    gives_up = known.leader(present) is None and target.gen == last.gen + LOST_GENERATIONS
    follows = gives_up or (len(file) > 1 and _same_place(file[-2], last))
    if not follows or not last.is_decided:
        raise PlanRefused(
            f"logical queue {logical} is at {last.broker_name} in generation {last.gen}, and the "
            f"file does not go on from there"
        )
    if known.leader(file) is None:
        raise PlanRefused(f"broker set {target.broker_name} is not in the cluster")
    # A beginning that stands in the file may lie inside what has been taken since. Where there is none
    # and the leader is given up, it is decided as that of any queue whose leader is.
    is_lost = known.leader(present) is None and target.is_decided
    begin = last.logic_offset + LOST_OFFSETS if is_lost else UNDECIDED
    return (*present, replace(target, logic_offset=begin))


def _new(
    room: Mapping[str, int], logical: int, item: LogicQueueMappingItem
) -> LogicQueueMappingItem:
    """A segment of a file: which generation, where, and no more; the rest is as in any plan.

    Where it starts and ends in its physical queue is nothing that a file can know: messages before
    the start would never be read, and no later segment may begin before the end.
    """
    wrong = None
    if item.gen > GEN_MAX or item.logic_offset > BEGIN_MAX:
        wrong = f"generation {item.gen}, beginning at {item.logic_offset}"
    elif item.queue_id > room.get(item.broker_name, QUEUES_MAX - 1):
        wrong = f"queue {item.queue_id} of {item.broker_name}"
    if wrong:
        raise PlanRefused(
            f"the file gives logical queue {logical} {wrong}: that leaves no room for what comes later"
        )
    return LogicQueueMappingItem(item.gen, item.queue_id, item.broker_name, item.logic_offset)


def _same_place(one: LogicQueueMappingItem, other: LogicQueueMappingItem) -> bool:
    return (one.gen, one.broker_name, one.queue_id) == (
        other.gen, other.broker_name, other.queue_id,
    )  # fmt: skip
