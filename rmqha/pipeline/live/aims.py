"""Which queue a row is meant for: one that it names, or that of its key; most rows name none. Pure.

Source: ``SelectMessageQueueByHash``, RocketMQ client, as observed: a key's queue is the one that Java's
producers choose for it, in the order of broker names and queue ids.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmqha.base.errors import MessageIllegal
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live.messages import Row
from rmqha.store.properties import java_hash


def is_aimed(row: Row) -> bool:
    """Whether a row may not go to any queue."""
    return any(one is not None for one in (row.sharding_key, row.queue_id, row.broker_name))


def aim_of(row: Row, queues: Sequence[QueueKey]) -> QueueKey:
    """The queue of a row, among the writable ones of its topic.

    Raises:
        MessageIllegal: it names none of them, or more than one.
    """
    if row.queue_id is None and row.broker_name is not None:
        raise MessageIllegal("brokerName needs queueId")
    if not queues:
        raise MessageIllegal("its topic has no queue that takes messages now")
    if row.queue_id is None:
        return sorted(queues)[abs(java_hash(row.sharding_key or "")) % len(queues)]
    found = [
        queue
        for queue in queues
        if queue.queue_id == row.queue_id and row.broker_name in (None, queue.broker_name)
    ]
    where = "" if row.broker_name is None else f" of {row.broker_name}"
    if not found:
        raise MessageIllegal(f"queueId {row.queue_id}{where} is not a queue that takes messages")
    if len(found) > 1:
        names = " and ".join(sorted(queue.broker_name for queue in found))
        raise MessageIllegal(f"queueId {row.queue_id} is of {names}: name brokerName, too")
    return found[0]
