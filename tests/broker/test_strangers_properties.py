"""What producers say of the broker's own business in their messages' properties."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.broker.deferred.transactions import EXPIRED_TOPIC, HALF_TOPIC
from rmqha.remoting.codes import ResponseCode
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.test_producer_services import bodies, end, half, send, stored, wall_ms

MINE = "Mine"


@pytest.fixture
def alone() -> Iterator[ReplicaCluster]:
    """One replica, which reigns and asks about nothing during the test."""
    with ReplicaCluster(
        seed=2, replicas=1, transactionCheckInterval=30_000, timerMaxDelaySec=100
    ) as one:
        one.boot_all()
        yield one


def test_transaction_when_it_is_said_to_renew_another_one_then_both_are_on_their_own(
    alone: ReplicaCluster,
) -> None:
    """Who sends on what he has consumed copies the property; somebody else's message was lost."""
    first = half(alone, 1)
    alone.run_for(300)
    copied = f"TRAN_PREPARED_QUEUE_OFFSET\x01{first['tranStateTableOffset']}\x02"
    second = half(alone, 2, f"{copied}TRANSACTION_CHECK_TIMES\x0115\x02")
    ahead = half(alone, 3, "TRAN_PREPARED_QUEUE_OFFSET\x013\x02")
    alone.run_for(300)
    assert (end(alone, second, 12), end(alone, ahead, 8), end(alone, first, 8)) == (0, 0, 0)
    later = half(alone, 4)
    assert later["tranStateTableOffset"] == "3"
    assert end(alone, later, 8) == 0
    alone.run_for(300)
    assert bodies(stored(alone, TOPIC)) == [b"body-1", b"body-3", b"body-4"]
    for record in stored(alone, HALF_TOPIC, 1):
        assert not {"TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"} & (
            record.property_map().keys()
        )


@pytest.mark.costly
@pytest.mark.parametrize("decision", [8, 12])
def test_half_message_when_its_timer_is_too_far_then_it_is_refused_at_once(
    alone: ReplicaCluster, decision: int
) -> None:
    """It was acknowledged, and no commit of it could be stored."""
    answer = send(alone, 1, "TRAN_MSG\x01true\x02PGROUP\x01PG\x02TIMER_DELAY_SEC\x01200\x02", f="4")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    near = half(alone, 2, "TIMER_DELAY_SEC\x011\x02")
    assert end(alone, near, decision) == 0
    alone.run_for(4_000)
    assert len(stored(alone, TOPIC)) == (decision == 8)
    assert stored(alone, EXPIRED_TOPIC, 1) == []


@pytest.mark.costly
@pytest.mark.parametrize("named", [TOPIC, MINE])
def test_timer_when_a_producer_of_another_topic_takes_it_back_then_it_comes(
    alone: ReplicaCluster, named: str
) -> None:
    """Who may write to one topic may take back what is for that topic only."""
    address, due_ms = master_of(alone).config.address, wall_ms(alone) + 5_000
    at = f"TIMER_DELIVER_MS\x01{due_ms - due_ms % 1_000}\x02"
    for number, topic in ((5, TOPIC), (6, MINE)):
        values = {**send_fields(number), "b": topic}
        values["i"] += at
        assert alone.ask(address, 310, values, b"timer").code == 0
    taking = {**send_fields(7), "b": MINE}
    key = "U5" if named == TOPIC else "U6"
    taking["i"] += f"{at}TIMER_DEL_UNIQKEY\x01{named}+{key}\x02"
    assert alone.ask(address, 310, taking, b"takes back").code == 0
    alone.run_for(8_000)
    assert bodies(stored(alone, TOPIC)) == [b"timer"]
    assert bodies(stored(alone, MINE)) == ([b"timer"] if named == TOPIC else [])
