"""513: a static topic, its queues on this broker set, and their history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rmqha.base.errors import RemoteProtocolError, RmqhaError
from rmqha.broker.common.aio.ports import Handlers, unwritable
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.topics.aio.ports import Broker
from rmqha.broker.topics.aio.topic_requests import GONE_MS, LOOK_MS, TOLD_MS
from rmqha.broker.topics.changes import numbers_error, parse_mapping, parse_topic
from rmqha.broker.topics.metadata import Change
from rmqha.ha.events import Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import bool_field
from rmqha.statictopic.rules import updated


class NotInQueues(RmqhaError):
    """What was written before a mapping has not come into the queues in time."""


class StaticTopicProcessor:
    """Takes mappings from mqadmin.

    Args:
        told: see ``TopicProcessor``.
    """

    def __init__(self, broker: Broker, told: Callable[[int], Awaitable[object]]) -> None:
        self._broker = broker
        self._told = told
        self._protect = broker.config.boolean("validateSystemTopicWhenUpdateTopic")

    def handlers(self) -> Handlers:
        """By request code."""
        return {RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: self.put}

    def put(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Take the topic and its mapping, or nothing of it."""
        broker = self._broker
        if broker.role is not Role.MASTER:
            return request.reply(ResponseCode.SYSTEM_ERROR, "topics are changed at the master only")
        refused = unwritable(broker, request)
        if refused is not None:
            return refused
        try:
            change = self._change(request)
        except RemoteProtocolError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        if isinstance(change, Refusal):
            return request.reply(change.code, change.remark)
        return broker.metadata.change(connection, request, change, self._in_queues_and_told)

    def _change(self, request: RemotingCommand) -> Change | Refusal:
        """The one record that says both; nothing where all is as asked for."""
        broker, fields = self._broker, request.ext_fields
        topics, mappings = broker.topics.table, broker.mappings.table
        topic = parse_topic(fields, topics.get, protect_system=self._protect, queues_min=0)
        if isinstance(topic, Refusal):
            return topic
        wanted = parse_mapping(request.body, topic.name, broker.config.broker_name)
        if isinstance(wanted, Refusal):
            return wanted
        old = mappings.get(topic.name)
        mapping = updated(old, wanted, force=bool_field(fields, "force"))
        if isinstance(mapping, str):
            return Refusal(ResponseCode.SYSTEM_ERROR, f"topic {topic.name}: {mapping}")
        error = numbers_error(topic, mapping)
        if error is not None:
            return Refusal(ResponseCode.SYSTEM_ERROR, error)
        return Change(
            topics=() if topics.get(topic.name) == topic else (topic,),
            mappings=() if mapping == old else (mapping,),
        )

    async def _in_queues_and_told(self) -> None:
        """Whoever asks next where a queue ends is told of all that was taken before.

        Raises:
            NotInQueues: not within some time.
        """
        store, clock = self._broker.store, self._broker.clock
        end, deadline_ms = store.max_offset, clock.now_ms() + GONE_MS
        while store.dispatched_offset < end:
            if clock.now_ms() >= deadline_ms:
                raise NotInQueues(
                    "the mapping is written, but what was sent before it is not read yet"
                )
            await clock.sleep(LOOK_MS)
        await self._told(TOLD_MS)
