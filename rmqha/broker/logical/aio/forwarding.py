"""A client that has not heard of a remap: its request is passed on, and the answer back.

Java answers 501, which its producers do not try again, and no client takes for a reason to ask for
the route; they fail until they do, every 30 s (apache/rocketmq #3607).
"""

from __future__ import annotations

from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.logical.aio.segments import FORWARD_TIMEOUT_MS
from rmqha.broker.logical.place import FORWARDED_FIELD, elsewhere
from rmqha.broker.naming.aio.other_sets import OtherSets
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.mapping import TopicQueueMappingDetail
from rmqha.statictopic.translate import not_leader

FORWARDS_MAX = 10_000
"""Requests on their way at a time."""


class Forwarding:
    """Answers requests for queues that another broker set leads."""

    def __init__(self, broker: Broker, sets: OtherSets) -> None:
        self._broker = broker
        self._sets = sets
        self._count = 0

    def pass_on(
        self,
        connection: Connection,
        request: RemotingCommand,
        mapping: TopicQueueMappingDetail,
        logical_id: int,
        wait_ms: int = 0,
        **changed: str,
    ) -> RemotingCommand | None:
        """Pass a request on to the queue's leader, or refuse it with 501.

        Args:
            wait_ms: how long the leader may take besides.
            changed: fields that are others by now than the client sent.
        """
        name = elsewhere(mapping, logical_id, request.ext_fields)
        if name is None or self._count >= FORWARDS_MAX:
            return request.reply(ResponseCode.NOT_LEADER_FOR_QUEUE, not_leader(mapping, logical_id))
        self._count += 1
        fields = {**(request.ext_fields or {}), **changed, FORWARDED_FIELD: "true"}
        work = self._passed_on(connection, request, name, fields, FORWARD_TIMEOUT_MS + wait_ms)
        self._broker.answers.start(work, connection, request, name="forwarded")
        return None

    async def _passed_on(
        self, connection: Connection, request: RemotingCommand, broker_name: str,
        fields: dict[str, str], timeout_ms: int,
    ) -> None:  # fmt: skip
        try:
            answer = await self._sets.ask(
                broker_name, request.code, fields, request.body, timeout_ms=timeout_ms
            )
        finally:
            self._count -= 1
        if not request.is_oneway:
            connection.send(
                request.reply(answer.code, answer.remark, answer.ext_fields, answer.body)
            )
