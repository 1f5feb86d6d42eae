"""How far a master's transactions are, and when it asks once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from rmqha.broker.common.aio.writer import Writer
from rmqha.broker.deferred.aio.transaction_service import KNOWN_MS, TransactionService
from rmqha.broker.deferred.transactions import EXPIRED_TOPIC, GROUP, HALF_TOPIC, OP_TOPIC, QUEUE
from rmqha.broker.send.aio import producer_requests
from rmqha.ha.events import Role
from rmqha.remoting.codes import ResponseCode
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


def hold_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """New masters read nothing, as where much must come from a slow disk, until the result is called."""
    run, held = TransactionService.run, [True]

    async def run_later(service: TransactionService) -> None:
        while held:
            await service._broker.clock.sleep(10)
        await run(service)

    monkeypatch.setattr(TransactionService, "run", run_later)
    return held.clear


def test_end_when_the_master_does_not_know_yet_what_has_ended_then_it_waits_to_know(
    alone: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new master that has not read how a transaction ended took it for open, and delivered it twice."""
    fields = half(alone, 1)
    assert end(alone, fields, 8) == 0
    other, host = half(alone, 2), alone.host_of(master_of(alone))
    read = hold_reading(monkeypatch)
    alone.kill(host)
    alone.boot(host)
    alone.until(lambda: alone.master() is not None, "a master")
    told: list[int] = []
    for one in (fields, other):
        asked = {**one, "commitOrRollback": "8"}
        address = master_of(alone).config.address
        alone.ask_later(address, 37, asked, told=lambda answer: told.append(answer.code))
    alone.run_for(200)
    assert told == []
    read()
    alone.until(lambda: len(told) == 2, "answers", 2_000)
    assert sorted(told) == [0, 1]
    alone.run_for(1_000)
    assert sorted(one.body for one in stored(alone, TOPIC)) == [b"body-1", b"body-2"]


def test_end_when_the_master_does_not_come_to_know_then_it_is_refused(
    alone: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer is asked later; nobody waits for ever, and there are not too many who wait."""
    fields, host = half(alone, 1), alone.host_of(master_of(alone))
    hold_reading(monkeypatch)
    monkeypatch.setattr(producer_requests, "ENDS_HELD_MAX", 2)
    alone.kill(host)
    alone.boot(host)
    alone.until(lambda: alone.master() is not None, "a master")
    told: list[int] = []
    address = master_of(alone).config.address
    for _ in range(3):
        asked = {**fields, "commitOrRollback": "8"}
        alone.ask_later(address, 37, asked, told=lambda answer: told.append(answer.code))
        alone.run_for(20)
    assert told == [ResponseCode.SYSTEM_BUSY]
    alone.until(lambda: len(told) == 3, "answers", KNOWN_MS + 100)
    assert told[1:] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    # Their places are free again.
    asked = {**fields, "commitOrRollback": "8"}
    alone.ask_later(address, 37, asked, told=lambda answer: told.append(answer.code))
    alone.run_for(100)
    assert len(told) == 3


def test_end_when_the_reign_is_over_then_it_is_refused_at_once(
    alone: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another master knows better."""
    fields, host = half(alone, 1), alone.host_of(master_of(alone))
    hold_reading(monkeypatch)
    alone.kill(host)
    alone.boot(host)
    alone.until(lambda: alone.master() is not None, "a master")
    told: list[int] = []
    master = master_of(alone)
    asked = {**fields, "commitOrRollback": "8"}
    alone.ask_later(master.config.address, 37, asked, told=lambda answer: told.append(answer.code))
    alone.run_for(20)
    assert told == []
    master.role = Role.SLAVE
    alone.until(lambda: told, "an answer", 200)
    assert told == [ResponseCode.SERVICE_NOT_AVAILABLE]


@pytest.mark.costly
def test_question_when_a_producer_is_immune_for_years_then_it_is_asked_when_others_would_be_gone(
    alone: ReplicaCluster,
) -> None:
    """As many of them as a broker may know stopped all other questions."""
    service = master_of(alone).services.transactions
    service.topics[0].keep_ms = 5_000
    half(alone, 1, "CHECK_IMMUNITY_TIME_IN_SECONDS\x01999999999\x02")
    alone.until(lambda: service.waiting == 1, "an open one")
    alone.until(lambda: service.waiting == 0, "its end", 5_000 + 2 * ROUND_MS)
    assert len(stored(alone, EXPIRED_TOPIC, 1)) == 1
