"""Static topics: 513, and 351, which shows their mappings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.topics.aio.ports import Broker
from rmqha.broker.topics.aio.topic_requests import LOOK_MS, TOLD_MS, unchangeable
from rmqha.broker.topics.own_topics import protection
from rmqha.broker.topics.static_changes import static_change
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import bool_field, text_field

PASSED_MS = 2_000
"""How long an answer waits for the dispatcher; who asks waits 5 s."""


class StaticTopicProcessor:
    """Answers mqadmin about static topics.

    Args:
        told: see ``TopicProcessor``.
    """

    def __init__(self, broker: Broker, told: Callable[[int], Awaitable[object]]) -> None:
        self._broker = broker
        self._told = told
        self._is_protected = protection(broker.config)

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: self.put_static_topic,
            RequestCode.GET_TOPIC_CONFIG: self.one_topic,
        }

    def put_static_topic(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """513: the topic and its mapping are one record, so a mapping that is refused changes nothing.

        Once it is answered, every message that came before is in the queues: who remaps asks next
        where they end.
        """
        broker = self._broker
        refused = unchangeable(broker, request)
        if refused is not None:
            return refused
        change = static_change(
            request.ext_fields, request.body, broker.topics.table, broker.mappings.table,
            broker_name=broker.config.broker_name, is_protected=self._is_protected,
        )  # fmt: skip
        if isinstance(change, Refusal):
            return request.reply(change.code, change.remark)
        return broker.metadata.change(connection, request, change, self._followed)

    async def _followed(self) -> str | None:
        """Wait for the dispatcher and the name servers; why the dispatcher is not there."""
        clock, store, end = (
            self._broker.clock,
            self._broker.store,
            self._broker.metadata.written_end,
        )
        deadline_ms = clock.now_ms() + PASSED_MS
        while store.dispatched_offset < end:
            if clock.now_ms() >= deadline_ms:
                return (
                    "the mapping is written, but messages before it are not in their queues yet: "
                    "ask again"
                )
            await clock.sleep(LOOK_MS)
        await self._told(TOLD_MS)
        return None

    def one_topic(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """351; with ``lo=true`` the mapping as well, where there is one."""
        fields, broker = request.ext_fields, self._broker
        topic = broker.topics.table.get(text_field(fields, "topic", ""))
        if topic is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, "the topic does not exist")
        members = topic.members()
        mapping = broker.mappings.table.get(topic.name) if bool_field(fields, "lo") else None
        if mapping is not None:
            members["mappingDetail"] = mapping.members()
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(members))
