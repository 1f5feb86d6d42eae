"""Locks of queues for consumers in order (41, 42): who gives any, and to whom.

A master alone does. Java's slaves do as well: after a switch a consumer with the route of before
would hold a queue at the slave, and one with the new route at the master. For the other replicas of a
master with lockInStrictMode a request says that it is for this broker only, and each has its say.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.json_members import (
    MessageQueue,
    json_array,
    read_object,
    text,
)
from rmqha.broker.groups.aio.ports import Broker
from rmqha.ha.events import Role
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.mapping import MOCK_BROKER_PREFIX
from rmqha.statictopic.translate import led_by

LOCK_QUEUES_MAX = 16_384
"""A client asks for all its queues at one broker at once, of all topics of its group: some hundreds."""

QUEUES_A_TURN = 1_024

Work = Generator[None, None, list[MessageQueue]]
"""What is done to queues, in parts; those that are held afterwards."""


class LockBody(NamedTuple):
    """What 41 and 42 say.

    Attributes:
        queues: as JSON members still.
        only_here: the master of another replica asks, which gives the lock if most of them do.
    """

    group: str
    client_id: str
    queues: Sequence[Any]
    only_here: bool

    @classmethod
    def read(cls, body: bytes) -> LockBody:
        """Read the body; raises RemoteProtocolError."""
        members = read_object(body, "a lock request")
        queues = json_array(members.get("mqSet"), "mqSet")
        if len(queues) > LOCK_QUEUES_MAX:
            raise RemoteProtocolError(f"more than {LOCK_QUEUES_MAX} queues")
        return cls(
            text(members, "consumerGroup"), text(members, "clientId"), queues,
            members.get("onlyThisBroker") is True,
        )  # fmt: skip

    def named(self) -> Work:
        """The queues; raises RemoteProtocolError, before anything is locked."""
        return _in_parts(self.queues, lambda part: [MessageQueue.of(one) for one in part])


class LockProcessor:
    """Locks queues and gives them back; of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Lock queues for a client (41), or give them back (42)."""
        work = self._serve(request)
        return self._broker.answers.finish(work, connection, request)

    def _serve(self, request: RemotingCommand) -> Generator[None, None, RemotingCommand]:
        try:
            asked = LockBody.read(request.body)
            queues = yield from asked.named()
        except RemoteProtocolError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        held = yield from applied(self._broker, request.code, asked, queues)
        if request.code == RequestCode.UNLOCK_BATCH_MQ:
            return request.reply(ResponseCode.SUCCESS)
        return request.reply(ResponseCode.SUCCESS, body=lock_answer(held))


def applied(broker: Broker, code: int, asked: LockBody, queues: Iterable[MessageQueue]) -> Work:
    """Lock queues here, or give them back; those that the client holds afterwards."""

    def apply(part: list[MessageQueue]) -> list[MessageQueue]:
        group, client_id = asked.group, asked.client_id
        if code == RequestCode.UNLOCK_BATCH_MQ:
            broker.locks.unlock(group, client_id, part)
            return []
        if broker.role is not Role.MASTER and not asked.only_here:
            return []
        mine = [queue for queue in part if not is_logical(queue) or is_led_here(broker, queue)]
        return broker.locks.lock(broker.clock.now_ms(), group, client_id, mine)

    return _in_parts(queues, apply)


def is_logical(queue: MessageQueue) -> bool:
    """Whether clients of 5.x have this name for a queue of a static topic."""
    return queue.broker_name.startswith(MOCK_BROKER_PREFIX)


def is_led_here(broker: Broker, queue: MessageQueue) -> bool:
    """Whether this set leads a logical queue: a lock of one that it has left binds nobody."""
    mapping = broker.mappings.table.items.get(queue.topic)
    return mapping is not None and led_by(mapping, queue.queue_id) is not None


def lock_answer(held: Iterable[MessageQueue]) -> bytes:
    """The body of an answer."""
    return fastjson.dumps({"lockOKMQSet": [queue.members() for queue in held]})


def _in_parts(queues: Iterable[Any], handle: Callable[[list[Any]], list[MessageQueue]]) -> Work:
    found: list[MessageQueue] = []
    left = iter(queues)
    part = list(islice(left, QUEUES_A_TURN))
    while part:
        found += handle(part)
        part = list(islice(left, QUEUES_A_TURN))
        if part:
            yield
    return found
