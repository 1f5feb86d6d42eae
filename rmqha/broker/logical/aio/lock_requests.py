"""Locks of logical queues for clients that know none (41, 42): they are where the queue is led.

Clients of 5.x ask the leader. The others ask one broker set for all queues of a topic, which may be
another one for each client, so that it passes on what they ask: of two consumers, old or new, one
has the lock.
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
                here = [one for one in queues if self._is_led_here(one)]
                return request.reply(0, body=_body(self._apply(code, group, client_id, here)))
            work = self._split(connection, request, group, client_id, queues)
            self._broker.answers.start(work, connection, request, name="logical locks")
            return None

        return handle

    def _is_led_here(self, queue: MessageQueue) -> bool:
        mapping = self._broker.mappings.table.items.get(queue.topic)
        return mapping is not None and led_by(mapping, queue.queue_id) is not None

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
        """Ask each set for the queues that it leads, all at a time."""
        table = self._broker.mappings.table.items
        asked: dict[MessageQueue, MessageQueue] = {}
        here: list[MessageQueue] = []
        there: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            logical = asked[queue] = logical_queue(table, queue) or queue
            if logical is queue or self._is_led_here(logical):
                here.append(logical)
            elif name := await self._leader(table[queue.topic], queue.queue_id):
                there.setdefault(name, []).append(logical)
        held = {*self._apply(request.code, group, client_id, here)}
        asks = [
            self._ask(request.code, name, group, client_id, some) for name, some in there.items()
        ]
        for found in await asyncio.gather(*asks):
            held |= found
        if not request.is_oneway:
            told = [queue for queue, logical in asked.items() if logical in held]
            connection.send(request.reply(ResponseCode.SUCCESS, body=_body(told)))

    async def _leader(self, mapping: TopicQueueMappingDetail, logical_id: int) -> str | None:
        name = elsewhere(mapping, logical_id, None)
        if name is None:
            try:
                name = await self._forwarding.leader_of(mapping, logical_id)
            except RmqhaError as error:
                self._log.log("warning", "queue_not_locked", topic=mapping.topic, reason=str(error))
        return None if name == mapping.broker_name else name

    async def _ask(
        self, code: int, name: str, group: str, client_id: str, queues: list[MessageQueue]
    ) -> set[MessageQueue]:
        """The queues that a set has locked; none where it cannot be asked."""
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
            found = {MessageQueue.of(one) for one in json_array(told.get("lockOKMQSet"), "queues")}
        except RmqhaError as error:
            self._log.log("warning", "queue_not_locked", broker=name, reason=str(error))
            found = set()
        if not found:
            for topic in {one.topic for one in queues}:
                self._sets.forget_places(topic)
        return found


def _body(held: Iterable[MessageQueue]) -> bytes:
    return fastjson.dumps({"lockOKMQSet": [queue.members() for queue in held]})
