"""Which queue a row is meant for: the one that it names, or Java's choice for its key."""

from __future__ import annotations

import pytest

from rmqha.base.errors import MessageIllegal
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live.aims import aim_of, is_aimed
from rmqha.pipeline.live.messages import Batch, Batcher, Outgoing, Row
from rmqha.pipeline.live.options import write_options
from rmqha.pipeline.live.sink import _in_order

A0, A1, B0 = QueueKey("t", "a", 0), QueueKey("t", "a", 1), QueueKey("t", "b", 0)
QUEUES = [B0, A0, A1]


@pytest.mark.parametrize(
    ("key", "expected"),
    # Java's hashes: 97, 98, 99, and the smallest number of 32 bits.
    [("a", A1), ("b", B0), ("c", A0), ("polygenelubricants", B0)],
)
def test_aim_when_a_key_is_given_then_javas_choice(key: str, expected: QueueKey) -> None:
    """By broker names and ids, in whatever order a route has them."""
    assert aim_of(Row(b"x", sharding_key=key), QUEUES) == expected
    assert aim_of(Row(b"x", sharding_key=key), QUEUES[::-1]) == expected


def test_aim_when_a_queue_is_named_then_that_one() -> None:
    """A key beside it stays a property; the broker may be left out where only one has the queue."""
    assert aim_of(Row(b"x", broker_name="b", queue_id=0, sharding_key="a"), QUEUES) == B0
    assert aim_of(Row(b"x", queue_id=1), QUEUES) == A1
    assert not is_aimed(Row(b"x"))
    assert is_aimed(Row(b"x", queue_id=0))


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (Row(b"x", broker_name="a"), "brokerName needs queueId"),
        (Row(b"x", queue_id=0), "queueId 0 is of a and b: name brokerName"),
        (Row(b"x", queue_id=7), "queueId 7 is not a queue"),
        (Row(b"x", queue_id=1, broker_name="b"), "queueId 1 of b is not a queue"),
    ],
)
def test_aim_when_it_is_no_queue_then_said(row: Row, what: str) -> None:
    """Never somewhere else in silence."""
    with pytest.raises(MessageIllegal, match=what):
        aim_of(row, QUEUES)
    with pytest.raises(MessageIllegal, match="no queue that takes"):
        aim_of(Row(b"x", sharding_key="a"), [])


def test_batches_when_rows_are_aimed_then_of_one_queue_and_in_order() -> None:
    """What goes to any queue is another request, and waits for none of these."""
    batcher = Batcher(write_options({"nameServer": "a:1", "batchMessages": "2"}))
    wanted = [A0, B0, None, A0, A0, None, B0]
    batches: list[Batch] = []
    for number, queue in enumerate(wanted):
        batches += batcher.add(Outgoing("t", b"%d" % number, b"", is_delayed=False, queue=queue))
    batches += batcher.rest()
    assert [(one.queue, [m.body for m in one.messages]) for one in batches] == [
        (A0, [b"0", b"3"]), (None, [b"2", b"5"]), (B0, [b"1", b"6"]), (A0, [b"4"]),
    ]  # fmt: skip
    assert _in_order(batches) == [[batches[0], batches[3]], [batches[1]], [batches[2]]]
