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
from collections.abc import Iterable, Mapping

from rmqha.base.errors import RmqhaError
from rmqha.broker.common.aio.ports import Handler, Handlers
from rmqha.broker.common.json_members import MessageQueue, json_array, read_object
from rmqha.broker.groups.aio.client_requests import lock_body
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.logical.aio.forwarding import Forwarding
from rmqha.broker.logical.place import FORWARDED_FIELD, elsewhere, is_of_old_client
from rmqha.broker.naming.aio.other_sets import OtherSets
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.logs import Logger
from rmqha.statictopic.mapping import MOCK_BROKER_PREFIX, TopicQueueMappingDetail
from rmqha.statictopic.translate import led_by

ASK_TIMEOUT_MS = 800
"""Who asks waits for a second."""

LOCK_ROUNDS = 2
"""A second leader is asked where the first has said no, which may be one of before a remap."""

Mappings = Mapping[str, TopicQueueMappingDetail]


def logical_queue(mappings: Mappings, queue: MessageQueue) -> MessageQueue | None:
    """A logical queue under the name that clients of 5.x have for it; None for a physical one."""
    mapping = mappings.get(queue.topic)
    if mapping is None or not queue.broker_name.startswith(MOCK_BROKER_PREFIX):
        return None
    return queue._replace(broker_name=mapping.mock_broker_name)


class LogicalLocks:
    """Of a broker; what is of other queues or clients is left to who answers for them.

    Args:
        ordinary: handlers of the same requests.
    """

    def __init__(
        self, broker: Broker, sets: OtherSets, forwarding: Forwarding, ordinary: Handlers,
        log: Logger,
    ) -> None:  # fmt: skip
        self._broker = broker
        self._sets = sets
        self._forwarding = forwarding
        self._ordinary = ordinary
        self._log = log
        broker.mappings.on_changed.append(self._remapped)

    def handlers(self) -> Handlers:
        """By request code."""
        codes = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
        return {code: self._handler(code) for code in codes}

    def _handler(self, code: int) -> Handler:
        def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
            table, fields = self._broker.mappings.table.items, request.ext_fields
            passed_on = FORWARDED_FIELD in (fields or {})
            if not table or not (passed_on or is_of_old_client(request.version, fields)):
                return self._ordinary[code](connection, request)
            try:
                group, client_id, queues = lock_body(request.body)
            except RmqhaError:
                return self._ordinary[code](connection, request)  # which says why
            if passed_on:
                # Whoever passed it on may be wrong about who leads; it asks again.
                led = [one for one in queues if self._is_led_here(one)]
                here = queues if code == RequestCode.UNLOCK_BATCH_MQ else led
                return request.reply(0, body=_body(self._apply(code, group, client_id, here)))
            work = self._split(connection, request, group, client_id, queues)
            self._broker.answers.start(work, connection, request, name="logical locks")
            return None

        return handle

    def _is_led_here(self, queue: MessageQueue) -> bool:
        mapping = self._broker.mappings.table.items.get(queue.topic)
        return mapping is not None and led_by(mapping, queue.queue_id) is not None

    def _remapped(self, topics: frozenset[str]) -> None:
        """Queues have moved; what was locked here says nothing about them any more."""

        def is_void(queue: MessageQueue) -> bool:
            is_logical = queue.broker_name.startswith(MOCK_BROKER_PREFIX)
            return is_logical and queue.topic in topics and not self._is_led_here(queue)

        self._broker.locks.forget(is_void)

    def _apply(
        self, code: int, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Lock here, or give back; the queues that the client holds afterwards."""
        locks = self._broker.locks
        if code == RequestCode.LOCK_BATCH_MQ:
            return locks.lock(self._broker.clock.now_ms(), group, client_id, queues)
        locks.unlock(group, client_id, queues)
        return []

    async def _split(
        self, connection: Connection, request: RemotingCommand, group: str, client_id: str,
        queues: list[MessageQueue],
    ) -> None:  # fmt: skip
        """Lock each queue where it is led, or give it back wherever it may be locked."""
        table, code = self._broker.mappings.table.items, request.code
        asked = {queue: logical_queue(table, queue) or queue for queue in queues}
        here = [
            logical for queue, logical in asked.items()
            if logical is queue or self._is_led_here(logical)
        ]  # fmt: skip
        held = {*self._apply(code, group, client_id, here)}
        if code == RequestCode.LOCK_BATCH_MQ:
            others = [logical for logical in asked.values() if logical not in here]
            held |= await self._lock_elsewhere(group, client_id, others)
        else:
            logical_ones = [logical for queue, logical in asked.items() if logical is not queue]
            await self._give_back_elsewhere(group, client_id, logical_ones)
        if not request.is_oneway:
            told = [queue for queue, logical in asked.items() if logical in held]
            connection.send(request.reply(ResponseCode.SUCCESS, body=_body(told)))

    async def _lock_elsewhere(
        self, group: str, client_id: str, queues: list[MessageQueue]
    ) -> set[MessageQueue]:
        """The queues that their leaders lock; who says no may have been the leader before."""
        held: set[MessageQueue] = set()
        said_no: dict[MessageQueue, str] = {}
        for _ in range(LOCK_ROUNDS):
            there: dict[str, list[MessageQueue]] = {}
            for queue in queues:
                name = await self._leader(queue)
                if name is not None and name != said_no.get(queue):
                    there.setdefault(name, []).append(queue)
            queues = []
            for name, some, found in await self._ask_all(
                RequestCode.LOCK_BATCH_MQ, group, client_id, there
            ):
                if found is not None:
                    held |= found
                    queues += [queue for queue in some if queue not in found]
                    said_no |= dict.fromkeys(some, name)
            for topic in {queue.topic for queue in queues}:
                self._sets.forget_places(topic)
        return held

    async def _give_back_elsewhere(
        self, group: str, client_id: str, queues: list[MessageQueue]
    ) -> None:
        """At every other set that leads a queue, or has led it."""
        there: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            for name in await self._hosts(queue):
                there.setdefault(name, []).append(queue)
        await self._ask_all(RequestCode.UNLOCK_BATCH_MQ, group, client_id, there)

    async def _leader(self, queue: MessageQueue) -> str | None:
        """The other set that leads a queue; None if it is this one, or not known."""
        mapping = self._broker.mappings.table.items.get(queue.topic)
        if mapping is None:
            return None
        name = elsewhere(mapping, queue.queue_id, None)
        if name is None:
            try:
                name = await self._forwarding.leader_of(mapping, queue.queue_id)
            except RmqhaError as error:
                self._log.log("warning", "queue_not_locked", topic=queue.topic, reason=str(error))
        return None if name == mapping.broker_name else name

    async def _hosts(self, queue: MessageQueue) -> list[str]:
        """All other sets of the topic; without a name server those that the queue went to."""
        mapping = self._broker.mappings.table.items.get(queue.topic)
        if mapping is None:
            return []
        names = {one.broker_name for one in mapping.hosted_queues.get(queue.queue_id, ())}
        try:
            names.update((await self._sets.places(queue.topic)).names)
        except RmqhaError as error:
            self._log.log("warning", "queue_not_given_back", topic=queue.topic, reason=str(error))
        return sorted(names - {mapping.broker_name})

    async def _ask_all(
        self, code: int, group: str, client_id: str, there: Mapping[str, list[MessageQueue]]
    ) -> list[tuple[str, list[MessageQueue], set[MessageQueue] | None]]:
        """Ask sets at a time; the queues that each has locked, None from one that did not answer."""
        asks = [self._ask(code, name, group, client_id, some) for name, some in there.items()]
        answers = await asyncio.gather(*asks)
        return [
            (name, some, found)
            for (name, some), found in zip(there.items(), answers, strict=True)
        ]  # fmt: skip

    async def _ask(
        self, code: int, name: str, group: str, client_id: str, queues: list[MessageQueue]
    ) -> set[MessageQueue] | None:
        members = {
            "clientId": client_id, "consumerGroup": group,
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


def _body(held: Iterable[MessageQueue]) -> bytes:
    return fastjson.dumps({"lockOKMQSet": [queue.members() for queue in held]})
