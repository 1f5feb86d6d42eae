"""Pops that found nothing: they look again when a queue grows, and are answered when time is over.

Which of them a queue concerns is known by ``broker/pop/held.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rmqha.broker.common.refusal import Refusal
from rmqha.broker.groups.consumers import Subscription
from rmqha.broker.pop.aio.pop_answers import (
    FAILURES,
    Asked,
    answer_failure,
    answer_nothing,
    answer_refusal,
)
from rmqha.broker.pop.held import HeldPops
from rmqha.broker.pop.request import PopRequest
from rmqha.broker.pull.aio.ports import Broker
from rmqha.broker.pull.aio.waiting_pulls import PutOff, safely
from rmqha.broker.pull.held import Held, Key
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.topic_names import retry_topics_of
from rmqha.runtime.aio.earliest import EarliestTimer
from rmqha.runtime.aio.turns import Backlog

POPS_A_TURN = 16
"""Of those that wait: each may read several queues and write a check point."""

Question = tuple[PopRequest, bool, Subscription]
"""What is asked, and whether only to be told of it; nothing that is of no account while there is nothing."""


class WaitingPops:
    """Those of one broker.

    Args:
        serve: answers one if there is something, and says whether it did; raises as it does.
        refusal: why nothing is popped now.
    """

    def __init__(
        self, broker: Broker, serve: Callable[[Asked], bool], refusal: Callable[[], Refusal | None]
    ) -> None:
        config = broker.config
        self._broker = broker
        self._serve = serve
        self._refusal = refusal
        self._held: HeldPops[Asked] = HeldPops(
            config.integer("popPollingMapSize"), config.integer("popPollingSize")
        )
        # One object for watching and for ending it.
        self._told = self.arrived
        self._timer = EarliestTimer(broker.clock, self._tick)
        self._to_look_at = self._backlog(self._look_if_worth_it)
        self._to_answer = self._backlog(self._answer_now)
        self._put_off: PutOff[Asked] = PutOff(self._to_look_at.add)
        # What was asked in vain since a queue grew last.
        self._vain: set[Question] = set()

    def _backlog(self, handle: Callable[[Held[Asked]], None]) -> Backlog[Held[Asked]]:
        return Backlog(safely(self._broker.answers, handle, self._drop), POPS_A_TURN)

    def __len__(self) -> int:
        return len(self._held)

    def count(self, pop: PopRequest) -> int:
        """How many wait with the same question."""
        return self._held.count(_held_key(pop))

    def close(self) -> None:
        """Forget them all; their connections are closing."""
        for held in self._held.all():
            self._drop(held)
        self._timer.cancel()

    def closed(self, connection: Connection) -> None:
        """A connection has ended."""
        self._put_off.closed(connection)
        for key in self._held.closed(connection.id):
            self._broker.arrivals.unwatch(key, self._told)

    def ask_again(self) -> None:
        """A role was taken up: everybody gets what there is, or nothing."""
        self._to_answer.add(self._held.all())

    def hold(self, asked: Asked, queues: Iterable[tuple[str, int]]) -> None:
        """Keep a pop until any of these queues has something; answer it if it may not wait."""
        pop, clock = asked.pop, self._broker.clock
        if asked.connection.is_closing:
            return  # it may have ended already, and nobody would take the pop away
        key = _held_key(pop)
        is_over = asked.until_ms <= clock.now_ms()
        if is_over or self._held.is_full(key):
            self._nothing(
                asked, ResponseCode.POLLING_TIMEOUT if is_over else ResponseCode.POLLING_FULL
            )
            return
        asked.request.body = b""  # nobody reads it, and it may be as long as a frame
        watched = [(topic.encode(), number) for topic, number in queues]
        # They may not be there yet.
        retries = retry_topics_of(pop.topic, pop.consumer_group)
        watched += [(name.encode(), 0) for name in retries]
        for queue in self._held.hold(asked.connection.id, key, asked, asked.until_ms, watched):
            self._broker.arrivals.watch(queue, self._told)
        self._timer.arm(self._held.next_deadline_ms)

    def arrived(self, keys: list[Key]) -> None:
        """Queues have grown: the oldest who wait get what is there."""
        self._vain.clear()
        self._to_look_at.add(self._held.waiting_for(keys))

    def _look_if_worth_it(self, held: Held[Asked]) -> None:
        """Not where one that asks for the same has just found nothing: of a thousand that wait, one
        message serves one."""
        asked = held.asked
        # One that is put off has not looked, and has found out nothing for others.
        if not self._held.is_held(held) or self._put_off.is_full(asked.connection, held):
            return
        question = _question(asked)
        if question in self._vain or self._refusal() is not None:
            return
        if not self._look(held):
            self._vain.add(question)

    def _look(self, held: Held[Asked]) -> bool:
        try:
            # Messages for who is leaving would be with nobody until their time is over.
            served = held.asked.connection.is_closing or self._serve(held.asked)
        except FAILURES as error:
            served = True
            answer_failure(held.asked, error)
        if served:
            self._drop(held)
        return served

    def _answer_now(self, held: Held[Asked]) -> None:
        """A held pop's time is over."""
        if not self._held.is_held(held):
            return
        refusal = self._refusal()
        if refusal is not None:
            self._drop(held)
            answer_refusal(held.asked, refusal)
        elif not self._look(held):
            self._drop(held)
            self._nothing(held.asked, ResponseCode.POLLING_TIMEOUT)

    def _nothing(self, asked: Asked, code: int) -> None:
        if not asked.tells:
            self._broker.statistics.missed()
        answer_nothing(asked, code, self._broker.clock.wall_ms())

    def _drop(self, held: Held[Asked]) -> None:
        self._put_off.drop(held)
        for key in self._held.drop(held):
            self._broker.arrivals.unwatch(key, self._told)

    def _tick(self) -> None:
        self._to_answer.add(self._held.due(self._broker.clock.now_ms()))
        self._timer.arm(self._held.next_deadline_ms)


def _question(asked: Asked) -> Question:
    """What decides whether there is something: proxies give each pop an ``attempt_id`` of its own."""
    pop = asked.pop
    attempt = pop.attempt_id if pop.order else None
    pop = pop._replace(max_msg_nums=0, invisible_ms=0, poll_ms=0, attempt_id=attempt)
    return pop, asked.tells, asked.wanted


def _held_key(pop: PopRequest) -> Key:
    return f"{pop.topic}@{pop.consumer_group}".encode(), pop.queue_id
