"""Where messages of static topics go that waited: their queue may have moved on meanwhile.

They wait with the physical queue that was the leader's when they were sent. When that one leads no
more, a message there would lie behind the old segment's end, where no consumer looks.

Source: our own; Java delivers into the old queue.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from rmqha.broker.deferred.delays import DelayRules, postponed
from rmqha.remoting.headers import ext_fields
from rmqha.statictopic.mapping import TopicQueueMappingDetail
from rmqha.statictopic.translate import led_by
from rmqha.store import properties as props
from rmqha.store.record import Message

AGAIN_MS = 60_000
"""How long a message waits once more at least: each time is another record in the log."""

_GROUP = "rmqha_deliveries"
_BODY_FLAGS = 0x703
"""Of sysFlag: whether and how the body is compressed, and many tags."""
_DONE_WITH = (
    b"DELAY", b"REAL_TOPIC", b"REAL_QID", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS",
    b"TIMER_DELIVER_MS", b"TIMER_OUT_MS", b"TRAN_MSG", b"TRANSACTION_CHECK_TIMES",
    b"TRAN_PREPARED_QUEUE_OFFSET",
)  # fmt: skip
"""Properties by which another broker would have the message wait, or be decided, once more."""


class Elsewhere(NamedTuple):
    """A logical queue that another broker set leads."""

    broker_name: str
    logical_id: int


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


def led_elsewhere(
    detail: TopicQueueMappingDetail, queue_id: int, avoided: Collection[str]
) -> Elsewhere | None:
    """Where to send a message instead: to the logical queue that it was sent to, if that is known.

    Args:
        avoided: broker sets that cannot be reached now.
    """
    others = []
    for logical, segments in sorted(detail.hosted_queues.items()):
        name = segments[-1].broker_name
        if name == detail.broker_name or name in avoided:
            continue
        others.append(Elsewhere(name, logical))
        if any((one.broker_name, one.queue_id) == (detail.broker_name, queue_id)
               for one in segments):  # fmt: skip
            return others[-1]
    return others[queue_id % len(others)] if others else None


def redirected(
    message: Message, detail: TopicQueueMappingDetail, rules: DelayRules, wait_ms: int
) -> Message:
    """A message that is due, as it can be stored here.

    Without a queue to lead it waits once more, under a delay level. So it blocks no other message,
    is as safe as when it was sent, and comes when a queue comes back.
    """
    queue_id = delivered_to(detail, message.queue_id)
    if queue_id is not None:
        return message._replace(queue_id=queue_id)
    return postponed(message, rules.level_of(wait_ms), rules)


def send_fields(message: Message, place: Elsewhere) -> dict[str, str]:
    """The fields of a 10 that sends a message to another set as a producer does.

    Its topic must be there: none is made of it.
    """
    properties = message.properties
    for name in _DONE_WITH:
        properties = props.drop(properties, name)
    group = props.find(properties, b"PGROUP")
    return ext_fields(
        producerGroup=_GROUP if group is None else group.decode("utf-8", "replace"),
        topic=message.topic,
        defaultTopic=message.topic,
        defaultTopicQueueNums=1,
        queueId=place.logical_id,
        sysFlag=message.sys_flag & _BODY_FLAGS,
        bornTimestamp=message.born_timestamp,
        flag=message.flag,
        properties=properties.decode("utf-8", "replace"),
        reconsumeTimes=message.reconsume_times,
        unitMode=False,
        batch=False,
        bname=place.broker_name,
    )
