"""What a restart begins with: no timer that was recalled, and the mark of the role before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.broker.deferred.aio.timer_service import TimerService
from rmqha.broker.deferred.timers import TimerMark
from tests.broker.held_up_timers import MANY, Slow, restart, send_timers
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.test_producer_services import bodies, send, stored, wall_ms


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


def recall(cluster: ReplicaCluster, sent: Any) -> int:
    """Send 370 for a timer, by the answer to it; the code."""
    fields = {
        "producerGroup": "PG", "topic": TOPIC, "recallHandle": sent.ext_fields["recallHandle"],
    }  # fmt: skip
    return cluster.ask(master_of(cluster).config.address, 370, fields).code


@pytest.mark.costly
@pytest.mark.parametrize("pause_ms", [0, 200])
@pytest.mark.parametrize("most", [500_000, 50])
def test_recalled_timer_when_many_stand_before_its_recall_then_a_restart_does_not_deliver_it(
    slow: Slow, most: int, pause_ms: int
) -> None:
    """It was due while no master was there, and was delivered before its recall was read."""
    with ReplicaCluster(
        seed=2, replicas=1, recallMessageEnable="true", timersInMemoryMax=most
    ) as one:
        one.boot_all()
        due_ms = wall_ms(one) + 20_000
        first = send(one, 0, f"TIMER_DELIVER_MS\x01{due_ms}\x02")
        send_timers(one, 2 * MANY, wall_ms(one) + 600_000)
        assert send(one, 1, f"TIMER_DELIVER_MS\x01{due_ms}\x02").code == 0
        assert recall(one, first) == 0
        one.run_for(500)
        slow.pause_ms = pause_ms
        restart(one, away_ms=30_000)
        one.until(lambda: stored(one, TOPIC), "the delivery of the other one")
        one.run_for(5_000)
        assert bodies(stored(one, TOPIC)) == [b"body-1"]


@pytest.mark.costly
def test_recalled_timer_when_it_is_due_while_others_are_read_then_it_does_not_come(
    alone: ReplicaCluster, slow: Slow
) -> None:
    """Its recall was acknowledged after the last look and before its time."""
    due_ms = wall_ms(alone) // 1000 * 1000 + 3_000
    sent = send(alone, 0, f"TIMER_DELIVER_MS\x01{due_ms + 1}\x02")
    alone.run_for(due_ms - 400 - wall_ms(alone))
    slow.pause_ms = 800
    alone.run_for(100)
    assert recall(alone, sent) == 0
    assert wall_ms(alone) < due_ms
    alone.run_for(5_000)
    assert stored(alone, TOPIC) == []


# -- the mark of a role that ends


def stop(cluster: ReplicaCluster) -> None:
    """The only replica ends in order."""
    task = cluster.loop.create_task(master_of(cluster).close())
    cluster.until(task.done, "the end")
    cluster.kill(cluster.broker_hosts[0])


@pytest.mark.costly
def test_mark_when_the_role_ends_before_the_service_has_its_place_then_it_stays(
    alone: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty mark took its place, and timers of up to three days came again."""
    due_ms = wall_ms(alone) + 3_000
    for number in range(5):
        assert send(alone, number, f"TIMER_DELIVER_MS\x01{due_ms}\x02").code == 0
    alone.run_for(8_000)
    stop(alone)
    run = TimerService.run

    async def late(service: TimerService) -> None:
        cold = service._broker.store.cold
        look = cold.look

        async def slowly(*args: Any) -> Any:
            await service._broker.clock.sleep(3_000)
            return await look(*args)

        monkeypatch.setattr(cold, "look", slowly)
        await run(service)

    with monkeypatch.context() as patch:
        patch.setattr(TimerService, "run", late)
        alone.boot(alone.broker_hosts[0])
        alone.until(lambda: alone.master() is not None, "a master")
        kept = master_of(alone).services.timer_mark.mark
        assert kept.read_ms >= due_ms
        alone.run_for(100)
        stop(alone)
    alone.boot(alone.broker_hosts[0])
    alone.until(lambda: alone.master() is not None, "a master")
    assert master_of(alone).services.timer_mark.mark.read_ms >= kept.read_ms
    alone.run_for(5_000)
    assert len(stored(alone, TOPIC)) == 5


def test_mark_when_a_role_ends_at_once_then_that_of_an_earlier_one_does_not_come_back(
    alone: ReplicaCluster,
) -> None:
    """A slave has the mark of its master, and what this broker knew as one is long over."""
    services = master_of(alone).services
    alone.run_for(1_000)
    services.stop()
    services.timer_mark.mark = newer = TimerMark(wall_ms(alone) + 60_000, 7, 7)

    async def reign() -> None:
        services.start()
        services.stop()

    alone.until(alone.loop.create_task(reign()).done, "the end")
    assert services.timer_mark.mark == newer
