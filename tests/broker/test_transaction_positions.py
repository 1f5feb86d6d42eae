"""How far a master's transactions are, and when it asks once more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.broker.common.aio.writer import Writer
from rmqha.broker.deferred.transactions import GROUP, HALF_TOPIC, OP_TOPIC, QUEUE
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.test_producer_services import end, half, stored, wall_ms

ROUND_MS = 1_000
IMMUNITY_S = 8


@pytest.fixture
def alone() -> Iterator[ReplicaCluster]:
    """One replica, which asks once a second."""
    with ReplicaCluster(
        seed=2, replicas=1, transactionCheckInterval=ROUND_MS, transactionTimeOut=500
    ) as one:
        one.boot_all()
        yield one


def test_offsets_when_a_slave_lacks_the_ends_then_they_stay(
    alone: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slaves copy them: the next master would pass over transactions of which it knows no end."""
    table = master_of(alone).offsets.table

    def kept() -> list[int | None]:
        return [table.query(GROUP, topic, QUEUE) or 0 for topic in (HALF_TOPIC, OP_TOPIC)]

    assert kept() == [0, 0]
    settle, is_safe = Writer.settle, False

    async def settled(writer: Writer, offset: int, *, durable: bool = False) -> bool:
        return await settle(writer, offset, durable=durable) and is_safe

    monkeypatch.setattr(Writer, "settle", settled)
    for number in range(3):
        assert end(alone, half(alone, number), 8) == 1, "it is not safe"
    alone.until(lambda: len(stored(alone, TOPIC)) == 3, "the commits")
    alone.run_for(3 * ROUND_MS)
    assert kept() == [0, 0]
    is_safe = True
    alone.run_for(ROUND_MS)
    assert kept() == [3, 3]


@pytest.mark.costly
def test_question_when_the_producer_is_immune_for_long_then_only_the_first_one_waits(
    alone: ReplicaCluster,
) -> None:
    """The time that it named counts from the message's birth; the second question is of the next round."""
    begun_ms = wall_ms(alone)
    half(alone, 1, f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{IMMUNITY_S}\x02")
    alone.until(lambda: len(stored(alone, HALF_TOPIC, 1)) == 2, "a question")
    assert wall_ms(alone) - begun_ms >= IMMUNITY_S * 1_000
    alone.until(lambda: len(stored(alone, HALF_TOPIC, 1)) == 3, "another", 2 * ROUND_MS)
