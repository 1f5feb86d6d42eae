"""How far the timer service says that it is: what revives pops goes by that, and so does a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rmqha.broker.admin.aio.prometheus import Collector
from rmqha.broker.common.aio.writer import Writer
from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode
from tests.broker.held_up_timers import MANY, Lag, Slow, restart, send_timers
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.test_pop_in_simulator import INVISIBLE_MS, Popped, ack, pop
from tests.broker.test_producer_services import send, stored, wall_ms


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """Of every replica; it takes no time at first."""
    return Slow(monkeypatch)


@pytest.fixture
def alone() -> Iterator[ReplicaCluster]:
    """One replica, which reigns."""
    with ReplicaCluster(
        seed=21, replicas=1, recallMessageEnable="true", timerFlushIntervalMs=200
    ) as one:
        one.boot_all()
        yield one


def pop_each(cluster: ReplicaCluster, count: int) -> list[Popped]:
    """Messages that were sent, popped one by one."""
    for number in range(count):
        assert cluster.send(number) is not None
    found: list[Popped] = []
    while len(found) < count:
        found += pop(cluster, 1)[1]
    return found


def ack_all(cluster: ReplicaCluster, found: list[Popped]) -> None:
    """Acknowledge them."""
    assert {ack(cluster, one) for one in found} == {0}


@pytest.fixture
def lag(monkeypatch: pytest.MonkeyPatch) -> Lag:
    """Of every replica; it is off at first."""
    return Lag(monkeypatch)


@pytest.mark.costly
@pytest.mark.parametrize("lacking", ["acks", "deliveries"])
def test_acks_when_the_queues_lag_then_nothing_is_revived(
    alone: ReplicaCluster, lag: Lag, lacking: str
) -> None:
    """Their check points were in the revive queues, and they, or what the timers made of them, were
    in the log only: all came again."""
    found = pop_each(alone, 20)
    over_ms = max(int(one.key.split(" ")[1]) for one in found) + INVISIBLE_MS
    alone.run_for(over_ms - 980 - wall_ms(alone))
    lag.is_on, lag.keeps_timers = lacking == "acks", lacking == "deliveries"
    ack_all(alone, found)
    if lacking == "deliveries":
        lag.keeps_timers, lag.from_delivery = False, True
        restart(alone, away_ms=30_000)
        alone.until(lambda: lag.is_on, "the delivery")
    alone.run_for(4_000)
    master, now_ms = master_of(alone), wall_ms(alone)
    assert master.services.timer_service.delivered_ms < over_ms
    lag.end(alone)
    alone.until(lambda: master.services.timer_service.delivered_ms > now_ms, "delivery")
    alone.run_for(5_000)
    assert master.pop.revive.revived == 0


@pytest.mark.costly
def test_delivered_time_when_the_next_reign_begins_then_nothing_is_known(
    alone: ReplicaCluster, slow: Slow
) -> None:
    """What was known is of a log that may have lost its tail, or has grown under another master."""
    services = master_of(alone).services
    alone.run_for(1_000)
    assert services.timer_service.delivered_ms > 0
    slow.pause_ms = 200

    async def reign_again() -> int:
        services.stop()
        services.start()
        await asyncio.sleep(0)
        return services.timer_service.delivered_ms

    task = alone.loop.create_task(reign_again())
    alone.until(task.done, "the reign")
    assert task.result() == 0
    alone.until(lambda: services.timer_service.delivered_ms > 0, "a look at everything")


@pytest.mark.costly
def test_acks_when_they_are_behind_the_horizon_then_nothing_is_revived(slow: Slow) -> None:
    """What was left out is read once more; meanwhile nothing was held, and all counted as delivered."""
    with ReplicaCluster(seed=21, replicas=1, timersInMemoryMax=20) as one:
        one.boot_all()
        ack_all(one, pop_each(one, 20))
        one.run_for(300)
        slow.again_ms = 1_000
        restart(one, away_ms=30_000)
        one.run_for(20_000)
        master = master_of(one)
        assert wall_ms(one) - master.services.timer_service.delivered_ms < 500
        assert master.pop.revive.revived == 0


@pytest.mark.costly
def test_delivered_time_when_timers_are_unread_then_it_is_not_known(
    alone: ReplicaCluster, slow: Slow
) -> None:
    """One of them may be due."""
    send_timers(alone, 2 * MANY, wall_ms(alone) + 600_000)
    slow.pause_ms = 200
    restart(alone)
    service = master_of(alone).services.timer_service
    alone.until(lambda: service._table.position > MANY, "the second round")
    assert service._table.position < 2 * MANY
    assert service.delivered_ms == 0
    alone.until(lambda: service.delivered_ms > 0, "the others")
    assert service._table.position == 2 * MANY


@pytest.mark.costly
def test_delivered_time_when_due_timers_are_left_over_then_it_is_not_known(
    alone: ReplicaCluster, slow: Slow
) -> None:
    """A round delivers some of them only."""
    send_timers(alone, MANY, wall_ms(alone) + 5_000)
    slow.pause_ms = 100
    restart(alone, away_ms=10_000)
    service = master_of(alone).services.timer_service
    alone.until(lambda: service.delivered_ms > 0, "the delivery")
    assert len(stored(alone, TOPIC)) == MANY


@pytest.mark.costly
def test_marks_when_what_was_delivered_is_not_safe_then_they_stay(
    alone: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No slave has it: the next master would take it for delivered."""
    due_ms = wall_ms(alone) // 1000 * 1000 + 3_000
    assert send(alone, 1, f"TIMER_DELIVER_MS\x01{due_ms + 1}\x02").code == 0
    alone.run_for(500)
    settle, is_safe = Writer.settle, False

    async def settled(writer: Writer, end: int, *, durable: bool = False) -> bool:
        return await settle(writer, end, durable=durable) and is_safe

    monkeypatch.setattr(Writer, "settle", settled)
    services = master_of(alone).services
    alone.until(lambda: stored(alone, TOPIC), "the delivery")
    alone.run_for(3_000)
    assert services.timer_service.delivered_ms < due_ms
    assert services.timer_mark.mark.read_ms < due_ms
    is_safe = True
    alone.run_for(1_000)
    assert services.timer_service.delivered_ms > due_ms + 3_000
    assert services.timer_mark.mark.read_ms > due_ms + 3_000
    assert len(stored(alone, TOPIC)) == 1


def test_counts_when_a_slave_of_javas_asks_then_each_topic_with_its_timers(
    alone: ReplicaCluster,
) -> None:
    """61 was refused, and each slave of Java's wrote two stacks about it every ten seconds."""
    address = master_of(alone).config.address

    def counts() -> tuple[dict[str, int], dict[str, int]]:
        answer = alone.ask(address, RequestCode.GET_TIMER_METRICS)
        assert answer.code == 0
        body = fastjson.loads(answer.body)
        assert all(one["timeStamp"] <= wall_ms(alone) for one in body["timingCount"].values())
        return {t: one["count"] for t, one in body["timingCount"].items()}, body["dataVersion"]

    before = counts()
    assert before[0] == {}
    send_timers(alone, 3, wall_ms(alone) + 20_000)
    alone.until(lambda: counts()[0] == {TOPIC: 3}, "all three", 1_000)
    assert counts()[1] != before[1], "slaves copy what has another version only"
    scraped = alone.loop.run_until_complete(master_of(alone).admin.scrape())
    (found,) = (
        sample
        for metric in Collector({"cluster": "c"}, lambda: scraped).collect()
        for sample in metric.samples
        if sample.name == "rocketmq_timing_messages"
    )
    assert (found.labels["topic"], found.value) == (TOPIC, 3)
    alone.until(lambda: counts()[0] == {}, "their time", 25_000)


def test_counts_when_no_timers_run_then_they_are_refused(alone: ReplicaCluster) -> None:
    """A slave knows of none, and none waits is no answer."""
    master = master_of(alone)
    master.services.stop()
    answer = alone.ask(master.config.address, RequestCode.GET_TIMER_METRICS)
    assert (answer.code, answer.remark) == (1, "no timers run here")
