"""What holds the timers of simulated replicas up, and other helpers of their tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rmqha.broker.deferred.aio.timer_service import TimerService
from rmqha.broker.deferred.timer_table import TimerTable
from rmqha.store.aio.dispatcher import Dispatcher
from rmqha.store.aio.record_walk import RecordWalk
from rmqha.store.aio.room import Stretch
from tests.broker.replicas import ReplicaCluster, master_of, send_fields

MANY = 600
"""More than one round of the service reads, and more than two of them deliver."""


class Slow:
    """Reading takes the service some time, as it does where records are many.

    Attributes:
        pause_ms: after what one round reads.
        again_ms: once after everything before the table's horizon was delivered.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pause_ms = self.again_ms = self._once_ms = 0
        turns, again = RecordWalk.turns, TimerTable._read_again

        async def slowly(walk: RecordWalk, look: Callable[[], bool]) -> bool:
            mine = isinstance(getattr(look, "__self__", None), TimerService)
            once_ms, self._once_ms = (self._once_ms, 0) if mine else (0, self._once_ms)
            await asyncio.sleep(once_ms / 1000)
            more = await turns(walk, look)
            if mine:
                await asyncio.sleep(self.pause_ms / 1000)
            return more

        def read_again(table: TimerTable) -> None:
            self._once_ms = self.again_ms
            again(table)

        monkeypatch.setattr(RecordWalk, "turns", slowly)
        monkeypatch.setattr(TimerTable, "_read_again", read_again)


class Lag:
    """Queues that lag behind the log.

    Attributes:
        is_on: nothing gets into any queue.
        keeps_timers: none is delivered.
        from_delivery: it begins with the next timer that is delivered.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_on = self.keeps_timers = self.from_delivery = False
        step, deliver = Dispatcher.step, TimerService._deliver

        async def step_later(dispatcher: Dispatcher) -> bool:
            return False if self.is_on else await step(dispatcher)

        def deliver_and_lag(service: TimerService, stretch: Stretch) -> tuple[int, bool]:
            if self.keeps_timers:
                return 0, False
            if self.from_delivery and service._taken:
                self.is_on = True
            return deliver(service, stretch)

        monkeypatch.setattr(Dispatcher, "step", step_later)
        monkeypatch.setattr(TimerService, "_deliver", deliver_and_lag)

    def end(self, cluster: ReplicaCluster) -> None:
        """The queues get all that they lack."""
        self.is_on = self.from_delivery = False
        master_of(cluster).store.dispatcher.wake()


def restart(cluster: ReplicaCluster, away_ms: int = 0) -> None:
    """The only replica is killed, and reigns again."""
    host = cluster.broker_hosts[0]
    cluster.kill(host)
    cluster.run_for(away_ms)
    cluster.boot(host)
    cluster.until(lambda: cluster.master() is not None, "a master")


def send_timers(cluster: ReplicaCluster, count: int, due_ms: int) -> None:
    """Many of one time."""
    fields = [send_fields(number) for number in range(count)]
    requests = [
        ({**one, "i": f"{one['i']}TIMER_DELIVER_MS\x01{due_ms}\x02"}, b"many") for one in fields
    ]
    answers = cluster.ask_together(master_of(cluster).config.address, 310, requests)
    assert {answer.code for answer in answers} == {0}
