"""Where a part of a stream ends: at offsets, and at the places in logs of the messages before them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from rmqha.client.aio.master_client import MasterClient
from rmqha.client.aio.masters import RETRY_MS
from rmqha.client.offsets import Edge
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live.offsets import LogPlace, Progress, holder_of, is_newest, place_of

RecordEnds = dict[QueueKey, tuple[int, int] | None]


def placed(
    cluster: MasterClient,
    ends: Mapping[QueueKey, int],
    begin: Mapping[QueueKey, int],
    logs: Mapping[str, LogPlace],
    edges: Mapping[QueueKey, Edge],
    *,
    timeout_ms: int,
    warn: Callable[[str], None],
) -> Progress:
    """The progress that ends at these offsets.

    In an older segment of a logical queue there may be no message at an offset. Elsewhere one that
    does not come in time is lost: whoever reads up to the offset says so.

    Args:
        begin: where it was; empty for a stream that begins, which waits for nothing.
        logs: the places in logs that are known.
        timeout_ms: how long a last message is waited for.
        warn: told of those that did not come.
    """
    segments = cluster.segments(ends)
    holders = {queue: holder_of(queue, offset, segments) for queue, offset in ends.items()}
    asked = {
        queue: offset - 1
        for queue, offset in ends.items()
        if offset != begin.get(queue) and max(edges[queue].low, holders[queue].first) < offset
    }
    awaited = {one for one in asked if one in begin and is_newest(segments.get(one, ()), ends[one])}
    furthest: dict[str, int] = {}
    for queue, place in _record_ends(cluster, asked, awaited, timeout_ms).items():
        if place is not None:
            name = holders[queue].broker_name
            furthest[name] = max(furthest.get(name, 0), place[1])
        elif queue in awaited:
            where = f"{queue.topic}, {queue.broker_name}, queue {queue.queue_id}"
            warn(f"{where}: the message at {asked[queue]}, the last of a batch, cannot be had")
    known = dict(logs)
    for name, offset in furthest.items():
        before = logs.get(name)
        epochs = cluster.epochs(name)
        found = None if epochs is None else place_of(epochs, offset)
        if found is not None and (before is None or before.offset < offset):
            known[name] = found
    return Progress(ends, known)


def _record_ends(
    cluster: MasterClient,
    asked: Mapping[QueueKey, int],
    awaited: Collection[QueueKey],
    timeout_ms: int,
) -> RecordEnds:
    """Where records end in logs; those that are awaited are asked for until they are there.

    Without its last message a queue would have to stay where it was, and if that message is lost,
    for good; a run that ends with what is there would end without the queue.
    """
    deadline_ms = cluster.clock.now_ms() + timeout_ms
    found = cluster.record_ends(dict(asked))
    while missing := {one: asked[one] for one in awaited if found[one] is None}:
        if cluster.clock.now_ms() >= deadline_ms:
            break
        cluster.forget_masters()
        cluster.sleep(RETRY_MS)
        found |= cluster.record_ends(missing)
    return found
