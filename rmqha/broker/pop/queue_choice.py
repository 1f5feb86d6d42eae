"""Which queues a pop looks at, in which order, and where a group begins in one of them.

Source: PopMessageProcessor and PeekMessageProcessor of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rmqha.broker.groups.offset_rules import starts_at_zero
from rmqha.broker.pop.request import FIRST_OF_QUEUE, PopRequest
from rmqha.broker.topics.topic_table import TopicConfig, has_priorities
from rmqha.remoting.topic_names import RETRY_PREFIX, retry_topics_of

RETRY_FIRST_EVERY = 5
"""One pop in so many looks for messages to retry before others; Java's 20 %."""

DRAWN = 1 << 40
"""Draws are below: of so many every queue of 65,536 is the first one as often as any other."""

_MOVED = ("OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY", "NO_MATCHED_LOGIC_QUEUE")


def queues_in_turn(
    pop: PopRequest, topics: Mapping[str, TopicConfig], draw: int, *, in_order: bool,
) -> Iterator[tuple[str, int]]:  # fmt: skip
    """Topics and ids of the queues to look at, one after another.

    Any may come first, so that the first one's messages are not always first; of a topic with
    priorities it is the last one, where what is most urgent is.

    Args:
        topics: all that there are, by name.
        draw: from ``DRAWN``, at random for each pop. A count would not do: who asks for two topics in
            turn would have every second queue of each, and who asks for five no retries of four.
        in_order: nothing is retried: what is not acknowledged stays where it is.
    """
    retries: list[tuple[str, int]] = []
    if not in_order and not pop.topic.startswith(RETRY_PREFIX):
        names = retry_topics_of(pop.topic, pop.consumer_group)
        found = [topics[name] for name in names if name in topics]
        retries = [(one.name, number) for one in found for number in range(one.read_queue_nums)]
    topic = topics.get(pop.topic)
    first, retries_wait = divmod(draw, RETRY_FIRST_EVERY)
    if not retries_wait:
        yield from retries
    if pop.queue_id >= 0:
        yield pop.topic, pop.queue_id
    elif topic is not None:
        count = topic.read_queue_nums
        if has_priorities(topic) and not in_order:
            yield from ((pop.topic, number) for number in reversed(range(count)))
        else:
            yield from ((pop.topic, (first + step) % count) for step in range(count))
    if retries_wait:
        yield from retries


def known_offset(popped: int | None, kept: int | None) -> int | None:
    """Where the next pop of a queue begins; None for a group that has no offset there.

    Args:
        popped: what was popped and may not be kept yet.
        kept: the group's offset. It is larger where somebody has set it meanwhile.
    """
    if popped is None:
        return kept
    return popped if kept is None else max(popped, kept)


def points_nowhere(status: str) -> bool:
    """Whether a read said that the queue has nothing at the offset, for it begins or ends elsewhere.

    Files have expired, or the log was cut.
    """
    return status in _MOVED


def begins_with_oldest(topic: str, init_mode: int) -> bool:
    """Whether a group without an offset begins with the oldest message there is.

    Messages to retry are all for this group.
    """
    return init_mode == FIRST_OF_QUEUE or topic.startswith(RETRY_PREFIX)


def newest_start(min_offset: int, max_offset: int, first_lag: int | None, near_bytes: int) -> int:
    """Where a group begins that wants the newest: Java's rule, "the last one" included.

    Args:
        min_offset, max_offset: of the queue.
        first_lag, near_bytes: as of ``starts_at_zero``: a fresh queue is read from its start.
    """
    if starts_at_zero(
        wanted=True, min_offset=min_offset, first_lag=first_lag, near_bytes=near_bytes
    ):
        return 0
    return max(min_offset, max_offset - 1)
