"""Which queues a pop looks at, and where a group begins: the rules alone."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from rmqha.broker.pop.queue_choice import (
    DRAWN,
    RETRY_FIRST_EVERY,
    begins_with_oldest,
    known_offset,
    newest_start,
    points_nowhere,
    queues_in_turn,
)
from rmqha.broker.pop.request import FIRST_OF_QUEUE, PopRequest, parse_pop
from rmqha.broker.topics.topic_table import TopicConfig

TOPIC, RETRY = TopicConfig("T", 3, 3), TopicConfig("%RETRY%g_T", 2, 2)
RETRY_V2 = TopicConfig("%RETRY%g+T", 1, 1)
RETRIES = [("%RETRY%g_T", 0), ("%RETRY%g_T", 1), ("%RETRY%g+T", 0)]


def _table(*topics: TopicConfig) -> dict[str, TopicConfig]:
    return {one.name: one for one in topics}


ALL = _table(TOPIC, RETRY, RETRY_V2, TopicConfig("%RETRY%h_T", 1, 1))


def _pop(topic: str = "T", queue_id: int = -1) -> PopRequest:
    return parse_pop({"consumerGroup": "g", "topic": topic, "queueId": str(queue_id)})


@pytest.mark.parametrize("draw", range(3 * RETRY_FIRST_EVERY))
def test_queues_when_any_will_do_then_each_once_and_any_first(draw: int) -> None:
    """Else the first queue's messages would always come first, or a queue would be left out."""
    found = list(queues_in_turn(_pop(), ALL, draw, in_order=False))
    of_topic = [("T", (draw // RETRY_FIRST_EVERY + step) % 3) for step in range(3)]
    first = draw % RETRY_FIRST_EVERY == 0
    assert found == (RETRIES + of_topic if first else of_topic + RETRIES)


@pytest.mark.parametrize("queues", [1, 4, 5, 10, 16])
@pytest.mark.parametrize("topics", [1, 2, 5])
def test_queues_when_topics_are_asked_in_turn_then_each_first_and_with_retries_first(
    queues: int, topics: int
) -> None:
    """Counted pops gave a consumer of two topics every second queue of each, one of five topics no
    retries of four of them, and with five queues the first was behind the retries for ever."""
    table = _table(TopicConfig("T", queues, queues), RETRY)
    drawn = random.Random(1)
    seen: Counter[tuple[int, bool]] = Counter()
    for number in range(400 * queues * topics):
        draw = drawn.randrange(DRAWN)
        if number % topics == 0:
            found = list(queues_in_turn(_pop(), table, draw, in_order=False))
            first = next(queue_id for name, queue_id in found if name == "T")
            seen[first, found[0][0] != "T"] += 1
    for number in range(queues):
        assert 240 < seen[number, False] < 400
        assert 40 < seen[number, True] < 120


def test_queues_when_messages_have_priorities_then_the_most_urgent_first() -> None:
    """The last queue has them, whatever is drawn; not for who consumes in order."""
    topics = _table(TopicConfig("T", 3, 3, attributes={"message.type": "PRIORITY"}))
    for first in range(4):
        draw = first * RETRY_FIRST_EVERY + 1
        found = list(queues_in_turn(_pop(), topics, draw, in_order=False))
        assert found == [("T", 2), ("T", 1), ("T", 0)]
        in_order = list(queues_in_turn(_pop(), topics, draw, in_order=True))
        assert in_order == [("T", (first + step) % 3) for step in range(3)]


def test_queues_when_one_is_named_then_it_and_the_retries() -> None:
    """A consumer that has its queues assigned must still get what is to be retried."""
    assert list(queues_in_turn(_pop(queue_id=2), ALL, 1, in_order=False)) == [
        ("T", 2), *RETRIES,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "topics", "in_order"),
    [
        ("T", ALL, True),
        ("T", _table(TOPIC), False),
        ("%RETRY%g_T", _table(TopicConfig("%RETRY%g_T", 3, 3), RETRY_V2), False),
    ],
    ids=["in order", "no retry topic", "the retry topic itself"],
)
def test_queues_when_nothing_is_retried_then_those_of_the_topic_alone(
    topic: str, topics: dict[str, TopicConfig], in_order: bool
) -> None:
    """In order a retried message would overtake; of a retry topic it would come twice."""
    for draw in range(RETRY_FIRST_EVERY):
        found = list(queues_in_turn(_pop(topic), topics, draw, in_order=in_order))
        assert sorted(found) == [(topic, number) for number in range(3)]


def test_queues_when_there_is_no_topic_then_the_retries_alone() -> None:
    """A topic that was deleted while a pop waited must not fail it."""
    assert list(queues_in_turn(_pop(), _table(RETRY, RETRY_V2), 1, in_order=False)) == RETRIES


@pytest.mark.parametrize(
    ("popped", "kept", "offset"),
    [(None, None, None), (None, 4, 4), (7, None, 7), (7, 4, 7), (4, 7, 7), (0, None, 0)],
)
def test_offset_when_popped_and_kept_then_the_larger(
    popped: int | None, kept: int | None, offset: int | None
) -> None:
    """The smaller would hand out twice what was popped, or what somebody has skipped."""
    assert known_offset(popped, kept) == offset


def test_group_when_new_then_the_oldest_for_those_who_ask_and_for_retries() -> None:
    """What is in a retry topic was read by the group already, and failed."""
    newest = FIRST_OF_QUEUE + 1
    assert begins_with_oldest("T", FIRST_OF_QUEUE)
    assert begins_with_oldest("%RETRY%g_T", newest)
    assert not begins_with_oldest("T", newest)


@pytest.mark.parametrize(
    ("low", "high", "lag", "start"),
    [(0, 9, 100, 0), (0, 9, 101, 8), (0, 9, None, 8), (5, 9, 100, 8), (5, 5, None, 5), (0, 0, None, 0)],
)  # fmt: skip
def test_group_when_it_wants_the_newest_then_the_last_or_a_fresh_queue_s_first(
    low: int, high: int, lag: int | None, start: int
) -> None:
    """Java's rule; whoever subscribes to a fresh topic wants its first messages."""
    assert newest_start(low, high, lag, 100) == start


@pytest.mark.parametrize(
    ("status", "nowhere"),
    [
        ("OFFSET_TOO_SMALL", True),
        ("OFFSET_OVERFLOW_BADLY", True),
        ("NO_MATCHED_LOGIC_QUEUE", True),
        ("OFFSET_OVERFLOW_ONE", False),
        ("NO_MATCHED_MESSAGE", False),
        ("FOUND", False),
    ],
)
def test_offset_when_a_read_ends_then_it_points_nowhere_only_outside_the_queue(
    status: str, nowhere: bool
) -> None:
    """At the queue's end a group waits; moved from there it would skip what comes next."""
    assert points_nowhere(status) is nowhere
