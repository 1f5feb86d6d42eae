"""Where messages of static topics go that waited: their queue may have moved on meanwhile.

They wait with the physical queue that was the leader's when they were sent. When that one leads no
more, a message there would lie behind the old segment's end, where no consumer looks.

Source: our own; Java delivers into the old queue.
"""

from __future__ import annotations

from rmqha.broker.deferred.delays import DelayRules, postponed
from rmqha.statictopic.mapping import TopicQueueMappingDetail
from rmqha.statictopic.translate import led_by
from rmqha.store.record import Message

AGAIN_MS = 60_000
"""How long a message waits once more at least: each time is another record in the log."""


def delivered_to(detail: TopicQueueMappingDetail, queue_id: int) -> int | None:
    """The physical queue for a message that waited for one; None while this broker leads none.

    Its own queue if that is a leader's, else one of those that are, the same for all of its queue:
    the order of delayed messages is not promised. A leader that nobody has decided where to begin
    is none yet.
    """
    leading = []
    for logical in detail.hosted_queues:
        segments = led_by(detail, logical)
        if segments and segments[-1].is_decided:
            leading.append(segments[-1].queue_id)
    if queue_id in leading or not leading:
        return queue_id if leading else None
    return sorted(leading)[queue_id % len(leading)]


def redirected(
    message: Message, detail: TopicQueueMappingDetail, rules: DelayRules
) -> tuple[Message, bool]:
    """A message that is due, as it can be stored; and whether it must wait once more.

    Without a queue to lead it waits under a delay level. So it blocks no other message, is as safe
    as when it was sent, and is delivered when a queue comes back.
    """
    queue_id = delivered_to(detail, message.queue_id)
    if queue_id is not None:
        return message._replace(queue_id=queue_id), False
    return postponed(message, rules.level_of(AGAIN_MS), rules), True
