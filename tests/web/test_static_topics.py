"""Chains of logical queues as a broker's page has them: what it knows of its own, and of others."""

from __future__ import annotations

from rmqha.broker.admin.static_topics import QUEUES_MAX, SEGMENTS_MAX, static_topics
from rmqha.statictopic.mapping import UNDECIDED
from rmqha.web.document import LogicalQueueView, SegmentView
from tests.broker.mappings import T, detail, led

HERE, OTHER = "broker-a", "broker-b"


def ends(_: str, queue_id: int) -> tuple[int, int]:
    """Queue 0 is empty; the others have the messages from 2 on, up to 5."""
    return (4, 4) if queue_id == 0 else (2, 5)


def test_segments_when_shown_then_own_ones_have_a_state_and_others_a_place() -> None:
    """A newest segment takes messages wherever it is; of an older one its set has to tell."""
    queues = {
        0: (led(0, name=HERE), led(1, 1, HERE, 100)),
        1: (led(1, name=HERE), led(7, 1, OTHER, 100)),
        2: (led(3, name=OTHER), led(2, 1, HERE, 100)),
        3: (led(3, name=HERE), led(8, 1, OTHER, UNDECIDED)),
    }
    (topic,) = static_topics({T: detail(9, queues, HERE)}, ends)
    assert (topic.topic, topic.epoch, topic.total_queues) == (T, 9, 4)
    assert topic.queues == (
        LogicalQueueView(0, HERE, 1, (
            SegmentView(HERE, 0, "Expired", 4, 4, 0),
            SegmentView(HERE, 1, "Normal", 102, 105, 3),
        )),
        LogicalQueueView(1, OTHER, 7, (
            SegmentView(HERE, 1, "ReadOnly", 2, 5, 3), SegmentView(OTHER, 7, "Normal", 100),
        )),
        LogicalQueueView(2, HERE, 2, (
            SegmentView(OTHER, 3, None, 0), SegmentView(HERE, 2, "Normal", 102, 105, 3),
        )),
        LogicalQueueView(3, OTHER, 8, (
            SegmentView(HERE, 3, "ReadOnly", 2, 5, 3), SegmentView(OTHER, 8, "Normal"),
        )),
    )  # fmt: skip


def test_history_when_long_then_the_newest_segments_are_shown_and_the_rest_counted() -> None:
    """Hundreds of remaps must not make the page endless, nor look for the ends of all of them."""
    history = tuple(led(at, at, HERE, at * 100) for at in range(SEGMENTS_MAX + 3))
    asked = []

    def counted(topic: str, queue_id: int) -> tuple[int, int]:
        asked.append(queue_id)
        return ends(topic, queue_id)

    (topic,) = static_topics({T: detail(queues={0: history}, name=HERE)}, counted)
    (queue,) = topic.queues
    assert [one.queue_id for one in queue.segments] == [*range(3, SEGMENTS_MAX + 3)]
    assert (queue.older, len(asked)) == (3, SEGMENTS_MAX)


def test_queues_when_there_are_very_many_then_the_first_are_shown() -> None:
    """It is made every second, and sent to every browser."""
    mappings = {f"T{number:03}": detail(name=HERE) for number in range(QUEUES_MAX)}
    shown = [*static_topics(mappings, ends)]
    assert sum(len(one.queues) for one in shown) == QUEUES_MAX
    assert [one.topic for one in shown] == sorted(mappings)[: QUEUES_MAX // 4]
