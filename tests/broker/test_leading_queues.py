"""Which physical queue a message of a static topic goes to that has waited: the rule alone."""

from __future__ import annotations

import pytest

from rmqha.broker.deferred.logical_queues import delivered_to
from rmqha.statictopic.mapping import LogicQueueMappingItem, Segments
from tests.broker.mappings import detail, led
from tests.broker.replicas import NAME

OTHER = "another-set"


def came(queue: int, *, decided: bool = True) -> Segments:
    """A logical queue that another set has led, and this one as this physical queue since."""
    begin = 10_000 if decided else -1
    return led(90 + queue, 0, OTHER), LogicQueueMappingItem(1, queue, NAME, begin)


def gone(queue: int) -> Segments:
    """One that another set leads since."""
    return led(queue), LogicQueueMappingItem(1, 90 + queue, OTHER, 10_000)


@pytest.mark.parametrize(
    ("queues", "queue", "expected"),
    [
        ([came(0), came(1)], 1, 1),
        ([gone(0), came(1)], 0, 1),
        ([gone(0), came(1), came(2)], 0, 1),
        ([gone(0), came(1), came(2)], 3, 2),
        ([gone(0), came(1, decided=False), came(2)], 0, 2),
        ([gone(0), came(1, decided=False)], 0, None),
        ([came(0, decided=False)], 0, None),
        ([came(0, decided=False), came(1)], 0, 1),
        ([gone(0), gone(1)], 0, None),
    ],
)
def test_message_when_its_queue_is_asked_for_then_it_is_one_that_is_led_and_decided(
    queues: list[Segments], queue: int, expected: int | None
) -> None:
    """Where a leader begins that nobody has decided, no consumer finds what was written there."""
    mapping = detail(queues=dict(enumerate(queues)))
    assert delivered_to(mapping, queue) == expected
