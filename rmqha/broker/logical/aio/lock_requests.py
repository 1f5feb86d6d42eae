"""Locks of logical queues for clients that know none (41, 42): they are where the queue is led.

Clients of 5.x ask the leader. The others ask one broker set for all queues of a topic, which may be
another one for each client, so that it passes on what they ask: of two consumers, old or new, one
has the lock.

A set that leads a queue no more forgets its locks: the queue may come back while they last, and who
held them has given them back elsewhere by then. A Java set does not forget, so every set of the
topic is told when an old client gives one back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from weakref import WeakValueDictionary

from rmqha.base.errors import RmqhaError
from rmqha.broker.common.aio.ports import Handler, Handlers
from rmqha.broker.common.json_members import MessageQueue, json_array, read_object
from rmqha.broker.groups.aio.lock_requests import (
    QUEUES_A_TURN,
    LockBody,
    applied,
    is_led_here,
    is_logical,
    lock_answer,
)
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.logical.place import FORWARDED_FIELD, elsewhere, is_of_old_client
from rmqha.broker.naming.aio.other_sets import OtherSets, TopicPlaces
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.turns import in_turns
from rmqha.runtime.logs import Logger
from rmqha.statictopic.mapping import TopicQueueMappingDetail

ASK_TIMEOUT_MS = 800
"""Who asks waits for a second."""

UNDER_WAY_MAX = 1_024
"""Requests at a time; each may wait for other sets, and for what its client has asked before."""

LOCK_ROUNDS = 2
"""A second leader is asked where the first has said no, which may be one of before a remap."""

Mappings = Mapping[str, TopicQueueMappingDetail]
Places = Mapping[str, TopicPlaces]


def logical_queue(mappings: Mappings, queue: MessageQueue) -> MessageQueue | None:
    """A logical queue under the name that clients of 5.x have for it; None for a physical one."""
    mapping = mappings.get(queue.topic)
    if mapping is None or not is_logical(queue):
        return None
    return queue._replace(broker_name=mapping.mock_broker_name)


class LogicalLocks:
    """Of a broker; what is of other queues or clients is left to who answers for them.

    Args:
        ordinary: handlers of the same requests.
    """

    def __init__(self, broker: Broker, sets: OtherSets, ordinary: Handlers, log: Logger) -> None:
        self._broker = broker
        self._sets = sets
        self._ordinary = ordinary
        self._log = log
        self._under_way = 0
        # By group and client; who waits for one keeps it.
        self._orders: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        broker.mappings.on_changed.append(self._remapped)

    def handlers(self) -> Handlers:
        """By request code."""
        codes = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
        return {code: self._handler(code) for code in codes}

    def _handler(self, code: int) -> Handler:
        def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
            table, fields = self._broker.mappings.table.items, request.ext_fields
            # Whoever passed a request on may be wrong about who leads; it asks again.
            if not table or not is_of_old_client(request.version, fields):
                return self._ordinary[code](connection, request)
            try:
                asked = LockBody.read(request.body)
            except RmqhaError:
                return self._ordinary[code](connection, request)  # which says why
            if self._under_way >= UNDER_WAY_MAX:
                return request.reply(ResponseCode.SYSTEM_BUSY, "too many locks are asked for")
            self._under_way += 1
            work = self._in_order(connection, request, asked)
            self._broker.answers.start(work, connection, request, name="logical locks")
            return None

        return handle

    def _remapped(self, topics: frozenset[str]) -> None:
        """Queues have moved; what was locked here says nothing about them any more."""

        def is_void(queue: MessageQueue) -> bool:
            is_moved = is_logical(queue) and queue.topic in topics
            return is_moved and not is_led_here(self._broker, queue)

        self._broker.locks.forget(is_void)

    async def _in_order(
        self, connection: Connection, request: RemotingCommand, asked: LockBody
    ) -> None:
        """Of two words of one client about a group the later counts, also where it is the shorter."""
        order = self._orders.setdefault((asked.group, asked.client_id), asyncio.Lock())
        try:
            async with order:
                await self._split(connection, request, asked)
        finally:
            self._under_way -= 1

    async def _split(
        self, connection: Connection, request: RemotingCommand, asked: LockBody
    ) -> None:
        """Lock each queue where it is led, or give it back wherever it may be locked."""
        broker, code = self._broker, request.code
        try:
            queues = await in_turns(asked.named())
        except RmqhaError as error:
            if not request.is_oneway:
                connection.send(request.reply(ResponseCode.SYSTEM_ERROR, str(error)))
            return
        table = broker.mappings.table.items
        names = {queue: logical_queue(table, queue) or queue for queue in queues}
        here = {
            logical for queue, logical in names.items()
            if logical is queue or is_led_here(broker, logical)
        }  # fmt: skip
        # In the order of the request: the last ones miss where there is no room for all.
        mine = [logical for logical in names.values() if logical in here]
        held = {*await in_turns(applied(broker, code, asked, mine))}
        if code == RequestCode.LOCK_BATCH_MQ:
            others = [logical for logical in names.values() if logical not in here]
            held |= await self._lock_elsewhere(asked, others)
        else:
            logical_ones = [logical for queue, logical in names.items() if logical is not queue]
            await self._give_back_elsewhere(asked, logical_ones)
        if not request.is_oneway:
            told = [queue for queue, logical in names.items() if logical in held]
            connection.send(request.reply(ResponseCode.SUCCESS, body=lock_answer(told)))

    async def _lock_elsewhere(
        self, asked: LockBody, queues: list[MessageQueue]
    ) -> set[MessageQueue]:
        """The queues that their leaders lock; who says no may have been the leader before."""
        held: set[MessageQueue] = set()
        said_no: dict[MessageQueue, str] = {}
        for _ in range(LOCK_ROUNDS):
            topics = {one.topic for one in queues if self._known_leader(one) is None}
            places = await self._places(topics, "queue_not_locked")
            there = await in_turns(_sorted_out(queues, partial(self._leader, places, said_no)))
            queues = []
            for name, some, found in await self._ask_all(RequestCode.LOCK_BATCH_MQ, asked, there):
                if found is not None:
                    held |= found
                    queues += [queue for queue in some if queue not in found]
                    said_no |= dict.fromkeys(some, name)
            for topic in {queue.topic for queue in queues}:
                self._sets.forget_places(topic)
        return held

    async def _give_back_elsewhere(self, asked: LockBody, queues: list[MessageQueue]) -> None:
        """At every other set that leads a queue, or has led it."""
        places = await self._places({one.topic for one in queues}, "queue_not_given_back")
        there = await in_turns(_sorted_out(queues, partial(self._hosts, places)))
        await self._ask_all(RequestCode.UNLOCK_BATCH_MQ, asked, there)

    async def _places(self, topics: set[str], event: str) -> dict[str, TopicPlaces]:
        """Where topics are, as name servers say; each is looked up once, however many queues it has."""
        found: dict[str, TopicPlaces] = {}
        for topic in sorted(topics):
            try:
                found[topic] = await self._sets.places(topic)
            except RmqhaError as error:
                self._log.log("warning", event, topic=topic, reason=str(error))
        return found

    def _known_leader(self, queue: MessageQueue) -> str | None:
        """The set that a queue was moved to from here; None where that is not known here."""
        mapping = self._broker.mappings.table.items.get(queue.topic)
        return None if mapping is None else elsewhere(mapping, queue.queue_id, None)

    def _leader(
        self, places: Places, said_no: Mapping[MessageQueue, str], queue: MessageQueue
    ) -> list[str]:
        """The other set that leads a queue; none if it is this one, not known, or has said no."""
        mapping = self._broker.mappings.table.items.get(queue.topic)
        if mapping is None:
            return []
        name, topic = self._known_leader(queue), places.get(queue.topic)
        if name is None and topic is not None:
            name = topic.leaders.get(queue.queue_id)
        if name is None or name in (mapping.broker_name, said_no.get(queue)):
            return []
        return [name]

    def _hosts(self, places: Places, queue: MessageQueue) -> list[str]:
        """All other sets of the topic; without a name server those that the queue went to."""
        mapping = self._broker.mappings.table.items.get(queue.topic)
        if mapping is None:
            return []
        names = {one.broker_name for one in mapping.hosted_queues.get(queue.queue_id, ())}
        topic = places.get(queue.topic)
        if topic is not None:
            names.update(topic.names)
        return sorted(names - {mapping.broker_name})

    async def _ask_all(
        self, code: int, asked: LockBody, there: Mapping[str, list[MessageQueue]]
    ) -> list[tuple[str, list[MessageQueue], set[MessageQueue] | None]]:
        """Ask sets at a time; the queues that each has locked, None from one that did not answer."""
        asks = [self._ask(code, name, asked, some) for name, some in there.items()]
        answers = await asyncio.gather(*asks)
        return [
            (name, some, found)
            for (name, some), found in zip(there.items(), answers, strict=True)
        ]  # fmt: skip

    async def _ask(
        self, code: int, name: str, asked: LockBody, queues: list[MessageQueue]
    ) -> set[MessageQueue] | None:
        members = {
            "clientId": asked.client_id, "consumerGroup": asked.group,
            "mqSet": [one.members() for one in queues],
        }  # fmt: skip
        try:
            answer = await self._sets.ask(
                name, code, {FORWARDED_FIELD: "true"}, fastjson.dumps(members),
                timeout_ms=ASK_TIMEOUT_MS,
            )  # fmt: skip
            told = read_object(answer.body, "locked queues") if answer.body else {}
            return {MessageQueue.of(one) for one in json_array(told.get("lockOKMQSet"), "queues")}
        except RmqhaError as error:
            is_lock = code == RequestCode.LOCK_BATCH_MQ
            event = "queue_not_locked" if is_lock else "queue_not_given_back"
            self._log.log("warning", event, broker=name, reason=str(error))
            for topic in {one.topic for one in queues}:
                self._sets.forget_places(topic)
            return None


def _sorted_out(
    queues: Iterable[MessageQueue], names: Callable[[MessageQueue], Iterable[str]]
) -> Generator[None, None, dict[str, list[MessageQueue]]]:
    """Queues by the sets to ask for them."""
    there: dict[str, list[MessageQueue]] = {}
    for count, queue in enumerate(queues, 1):
        for name in names(queue):
            there.setdefault(name, []).append(queue)
        if count % QUEUES_A_TURN == 0:
            yield
    return there
