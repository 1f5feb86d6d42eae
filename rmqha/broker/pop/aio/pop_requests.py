"""Requests 200050, 200054 and 200055: messages for whoever asks, without owning a queue.

A pop looks at all queues of its topic and at the group's retry topic, each of which gives what it
has (``queue_takes.py``). With nothing to give it waits like a pull, until any of them has something
(``waiting_pops.py``).
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterator

from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.deferred.aio.master_services import MasterServices
from rmqha.broker.groups.consumers import Subscription
from rmqha.broker.pop.aio.collected import Cold, Taken
from rmqha.broker.pop.aio.ordered import OrderedPops
from rmqha.broker.pop.aio.pop_answers import (
    FAILURES,
    Asked,
    answer_failure,
    answer_found,
    answer_refusal,
)
from rmqha.broker.pop.aio.pop_positions import PopPositions
from rmqha.broker.pop.aio.queue_takes import QueueTakes
from rmqha.broker.pop.aio.waiting_pops import WaitingPops
from rmqha.broker.pop.offsets import Key
from rmqha.broker.pop.queue_choice import DRAWN, queues_in_turn
from rmqha.broker.pop.refusals import pop_refusal
from rmqha.broker.pop.request import ORDER_REVIVE_QUEUE, PopRequest, check_pop, parse_pop
from rmqha.broker.pull.aio.ports import Broker
from rmqha.broker.pull.filters import PARSE_FAILED
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.topic_names import PERM_READ


class PopProcessor:
    """Hands messages out."""

    def __init__(self, broker: Broker, services: MasterServices, orders: OrderedPops) -> None:
        config = broker.config
        self._broker = broker
        self._services = services
        self._orders = orders
        self._pulling = broker.store.pulling
        self._revive_queues = config.integer("reviveQueueNum")
        self._poll_ms_max = config.integer("heldPullTimeMax")
        self._waiting = WaitingPops(broker, self._serve_again, self._refusal)
        self._positions = PopPositions(broker, services, orders)
        self._takes = QueueTakes(broker, services, orders, self._positions, self._waiting.arrived)
        orders.on_free = lambda topic, queue_id: self._waiting.arrived([(topic.encode(), queue_id)])
        self._revived = 0
        # Of each broker its own, and the same in every run of a seed.
        self._random = random.Random(config.address)

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.POP_MESSAGE: self.pop,
            RequestCode.NOTIFICATION: self.notification,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    @property
    def held_count(self) -> int:
        """Pops that wait."""
        return len(self._waiting)

    def ended(self, topics: Container[str], groups: Container[str]) -> None:
        """Topics and groups are gone, with what they have stored."""
        self._positions.ended(topics, groups)

    def popped_to(self, key: Key) -> int | None:
        """Where the next pop of a queue begins; None where the kept offset says so."""
        return self._positions.popped_to(key)

    def close(self) -> None:
        """Forget held pops; their connections are closing."""
        self._waiting.close()
        self._orders.close()

    def closed(self, connection: Connection) -> None:
        """A connection has ended."""
        self._waiting.closed(connection)

    def role_changed(self) -> None:
        """A role was taken up: kept offsets count again, and everybody asks anew."""
        self._positions.clear()
        self._waiting.ask_again()

    # -- requests ----------------------------------------------------------------------------------

    def pop(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Hand out messages for a time (200050)."""
        return self._ask(connection, request, tells=False)

    def notification(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """200054: tell when there is something to pop."""
        return self._ask(connection, request, tells=True)

    def polling_info(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """200055: how many pops are held."""
        count = self._waiting.count(parse_pop(request.ext_fields))
        return request.reply(ResponseCode.SUCCESS, None, ext_fields(pollingNum=count))

    def _ask(
        self, connection: Connection, request: RemotingCommand, *, tells: bool
    ) -> RemotingCommand | None:
        pop = parse_pop(request.ext_fields)
        if tells:
            pop = pop._replace(max_msg_nums=1, invisible_ms=0)
        refusal = self._refusal()
        wanted = refusal or self._checked(pop)
        if isinstance(wanted, Refusal):
            return request.reply(wanted.code, wanted.remark)
        # As in Java, enablePropertyFilter is not asked for here.
        matches = self._broker.selectors.matches(wanted)
        if isinstance(matches, str):
            return request.reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, PARSE_FAILED)
        until_ms = self._broker.clock.now_ms() + min(pop.poll_ms, self._poll_ms_max)
        asked = Asked(connection, request, pop, wanted, matches, tells, until_ms)
        self._serve_or_hold(asked)
        return None

    def _refusal(self) -> Refusal | None:
        return pop_refusal(
            self._broker.role,
            may_read=bool(self._broker.config.integer("brokerPermission") & PERM_READ),
            has_timers=self._services.rules.timers,
            may_write=self._services.writer.is_open,
        )

    def _checked(self, pop: PopRequest) -> Subscription | Refusal:
        broker = self._broker
        return check_pop(
            pop,
            broker.groups.find(pop.consumer_group, may_write=True),
            broker.topics.table.get(pop.topic),
            self._services.rules.delay_max_ms,
        )

    def _gone(self, pop: PopRequest) -> Refusal | None:
        """Why a pop that has waited gets nothing: its topic or its group may be gone by now.

        A group is not made for it: whoever has deleted it does not want it back.
        """
        broker, name = self._broker, pop.consumer_group
        group = broker.groups.find(name, may_write=False) if broker.groups.is_served(name) else None
        topic = broker.topics.table.get(pop.topic)
        checked = check_pop(pop, group, topic, self._services.rules.delay_max_ms)
        return checked if isinstance(checked, Refusal) else None

    # -- one pop -----------------------------------------------------------------------------------

    def _serve_or_hold(self, asked: Asked) -> None:
        try:
            if not self._serve(asked):
                self._waiting.hold(asked, self._queues(asked.pop, 0))
        except FAILURES as error:
            answer_failure(asked, error)

    async def _serve_cold(self, asked: Asked, cold: Cold) -> None:
        """Serve once what was found is in memory; looking into it would wait for the disk."""
        await self._pulling.fetch(cold.found)
        if asked.connection.is_closing:
            return  # what its client took now would be with nobody until its time is over
        refusal = self._refusal() or self._gone(asked.pop)
        if refusal is not None:
            answer_refusal(asked, refusal)
            return
        self._serve_or_hold(asked._replace(fetched=asked.fetched.and_then(cold)))

    def _queues(self, pop: PopRequest, draw: int) -> Iterator[tuple[str, int]]:
        return queues_in_turn(pop, self._broker.topics.table.topics, draw, in_order=pop.order)

    def _serve_again(self, asked: Asked) -> bool:
        """The same for one that has waited; raises likewise."""
        refusal = self._gone(asked.pop)
        if refusal is None:
            return self._serve(asked)
        answer_refusal(asked, refusal)
        return True

    def _serve(self, asked: Asked) -> bool:
        """Answer if there is something, now or once it is in memory.

        Raises:
            MessageIllegal, DiskFailed: a check point cannot be written.
        """
        pop = asked.pop
        self._revived += 1
        revive_queue = ORDER_REVIVE_QUEUE if pop.order else self._revived % self._revive_queues
        taken = Taken(self._broker.clock.wall_ms(), revive_queue)
        for topic, queue_id in self._queues(pop, self._random.randrange(DRAWN)):
            self._takes.take(asked, taken, topic, queue_id)
            if taken.cold is not None or (taken.count and asked.tells):
                break
        if taken.count:
            answer_found(asked, taken)
            return True
        if taken.cold is not None:
            work = self._serve_cold(asked, taken.cold)
            self._broker.answers.start(work, asked.connection, asked.request, name="cold pop")
            return True
        if taken.passed:
            self._look_on(pop)
        return False

    def _look_on(self, pop: PopRequest) -> None:
        """A pop that waits is to look at the rest when others have had their turn."""
        keys = [(topic.encode(), number) for topic, number in self._queues(pop, 0)]
        self._broker.clock.call_later(0, self._waiting.arrived, keys)
