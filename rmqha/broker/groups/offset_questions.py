"""What tools work out from offsets: how old they are, and where several groups have come together.

Source: AdminBrokerProcessor and ConsumerOffsetManager of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from rmqha.remoting.headers import INT64_MAX


def time_span(
    stamp: Callable[[int], int], *, low: int, high: int, consumed: int, wall_ms: int
) -> dict[str, int]:
    """When a queue's first, last and consumed messages were stored, and how long the next waits.

    Args:
        stamp: when the message at an offset was stored; -1 when it is not there.
        low, high: the queue's first offset, and the one after its last.
        consumed: where the group is; -1 where it has stored nothing.
    """
    first = stamp(low)
    following = max(consumed, low)
    waits = following < high
    return {
        "consumeTimeStamp": stamp(consumed - 1) if consumed > 0 else first,
        "delayTime": max(0, wall_ms - stamp(following)) if waits else 0,
        "maxTimeStamp": stamp(high - 1),
        "minTimeStamp": first,
    }


def correction_offsets(
    groups: Iterable[tuple[str, Mapping[int, int]]],
    compared: Mapping[int, int],
    left_out: Collection[str],
    min_offset: Callable[[int], int],
) -> dict[int, int]:
    """By queue how far the last of a topic's groups is; the largest number where one group is behind.

    Args:
        groups: with their offsets by queue; those before a queue's first message do not count.
        compared: the offsets of that one group.
        left_out: names of groups that do not count.
    """
    found: dict[int, int] = {}
    for group, offsets in groups:
        if group in left_out:
            continue
        for queue_id, offset in offsets.items():
            if offset >= min_offset(queue_id):
                found[queue_id] = min(offset, found.get(queue_id, offset))
    for queue_id, offset in compared.items():
        if found.get(queue_id, -1) > offset:
            found[queue_id] = INT64_MAX
    return found
