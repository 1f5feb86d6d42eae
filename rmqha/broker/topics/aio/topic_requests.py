"""Topics: 17, 18, 215, 316 and 21."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.aio.config_file import APPLIED_OFFSET
from rmqha.broker.common.aio.ports import Handlers, unwritable
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.topics.aio.ports import MAPPINGS_APPLIED, Broker, table_for
from rmqha.broker.topics.changes import check_name, parse_topic, parse_topics
from rmqha.broker.topics.metadata import Change
from rmqha.broker.topics.own_topics import protection
from rmqha.broker.topics.static_changes import queues_error
from rmqha.broker.topics.topic_table import DataVersion, TopicConfig, unused_topics
from rmqha.ha.events import Role
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import text_field
from rmqha.remoting.topic_names import retry_topics_of

TOLD_MS = 2_000
"""How long an answer waits for name servers; mqadmin waits 5 s for it, and Java's brokers 24 s."""

GONE_MS = 2_000
"""How long the answer to a deletion waits for the queues to go; nothing is made meanwhile."""

LOOK_MS = 5
NAMES_MAX = 100
"""Topics that one record ends: their names are a property of it."""


def unchangeable(broker: Broker, request: RemotingCommand) -> RemotingCommand | None:
    """The answer to a change of a topic that this broker cannot make now; None if it can."""
    if broker.role is Role.MASTER:
        return unwritable(broker, request)
    return request.reply(ResponseCode.SYSTEM_ERROR, "topics are changed at the master only")


class TopicProcessor:
    """Answers mqadmin and slaves about topics.

    Args:
        told: returns once the name servers know of all changes, or after so many milliseconds.
    """

    def __init__(self, broker: Broker, told: Callable[[int], Awaitable[object]]) -> None:
        self._broker = broker
        self._told = told
        self._is_protected = protection(broker.config)

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.put_topic,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.put_topics,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_topics,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_topics,
        }

    def put_topic(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """17; a topic that is as asked for changes nothing."""
        refused = unchangeable(self._broker, request)
        if refused is not None:
            return refused
        get = self._broker.topics.table.get
        topic = parse_topic(request.ext_fields, get, self._is_protected)
        if isinstance(topic, Refusal):
            return request.reply(topic.code, topic.remark)
        return self._put(connection, request, [topic])

    def put_topics(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """18; all or none."""
        refused = unchangeable(self._broker, request)
        if refused is not None:
            return refused
        get = self._broker.topics.table.get
        try:
            topics = parse_topics(request.body, get, self._is_protected)
        except RemoteProtocolError as error:
            return request.reply(ResponseCode.INVALID_PARAMETER, str(error))
        if isinstance(topics, Refusal):
            return request.reply(topics.code, topics.remark)
        return self._put(connection, request, topics)

    def _put(
        self, connection: Connection, request: RemotingCommand, topics: list[TopicConfig]
    ) -> RemotingCommand | None:
        get = self._broker.topics.table.get
        for topic in topics:
            error = queues_error(topic, self._broker.mappings.table.get(topic.name))
            if error is not None:
                return request.reply(ResponseCode.INVALID_PARAMETER, error)
        changed = tuple(topic for topic in topics if get(topic.name) != topic)
        return self._change(connection, request, Change(topics=changed))

    def _change(
        self, connection: Connection, request: RemotingCommand, change: Change, topic: str = ""
    ) -> RemotingCommand | None:
        """Answer once the change is as safe as messages are, and clients find it.

        Args:
            topic: that is deleted.
        """

        async def followed() -> None:
            if topic:
                await self._until_gone(topic)
            await self._told(TOLD_MS)

        return self._broker.metadata.change(connection, request, change, followed)

    async def _until_gone(self, topic: str) -> None:
        """Wait for the queues of a deleted topic to go, as long as the answer may take.

        They go when all replicas of the SyncStateSet have the record.
        """
        clock, metadata = self._broker.clock, self._broker.metadata
        deadline_ms = clock.now_ms() + GONE_MS
        while metadata.is_ending(topic) and clock.now_ms() < deadline_ms:
            await clock.sleep(LOOK_MS)

    def delete_topic(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """215: the topic goes, with what groups have stored of it; messages expire with the log."""
        refused = unchangeable(self._broker, request)
        if refused is not None:
            return refused
        name = text_field(request.ext_fields, "topic", "")
        if not name.strip():
            return request.reply(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        refusal = check_name(name, self._is_protected)
        if refusal is not None and self._broker.topics.table.get(name) is None:
            return request.reply(refusal.code, refusal.remark)
        if refusal is not None and "system topic" in refusal.remark:
            return request.reply(refusal.code, refusal.remark)
        broker = self._broker
        topics, groups = broker.topics.table, broker.metadata.groups_of(name)
        is_known = topics.get(name) is not None or broker.mappings.table.get(name) is not None
        known = is_known or broker.store.reader.has_topic(name) or groups
        if not known or (topics.get(name) is None and broker.metadata.is_ending(name)):
            return self._change(connection, request, Change(), name)
        retries = sorted({one for group in groups for one in retry_topics_of(name, group)} - {name})
        gone = [one for one in retries if topics.get(one) or broker.metadata.groups_of(one)]
        # Before it, where groups would pop it again; as many at a time as a record can name.
        for first in range(0, len(gone), NAMES_MAX):
            part = broker.metadata.commit(
                Change(ended_topics=tuple(gone[first : first + NAMES_MAX]))
            )
            if isinstance(part, Refusal):
                return request.reply(part.code, part.remark)
        return self._change(connection, request, Change(ended_topics=(name,)), name)

    def clean_topics(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """316: queues of topics that there are not go, on every replica."""
        refused = unchangeable(self._broker, request)
        if refused is not None:
            return refused
        metadata = self._broker.metadata
        known = {*self._broker.topics.table.topics, *self._broker.mappings.table.items}
        gone = [
            name for name in unused_topics(self._broker.store.reader.topics(), known)
            if not metadata.is_ending(name)
        ]  # fmt: skip
        for first in range(0, len(gone), NAMES_MAX):
            part = metadata.commit(Change(ended_topics=tuple(gone[first : first + NAMES_MAX])))
            if isinstance(part, Refusal):
                return request.reply(part.code, part.remark)
        return self._change(connection, request, Change(), gone[-1] if gone else "")

    def all_topics(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """21: what a slave copies, the mappings of static topics included.

        A slave of this kind asks for what the log has for good, and with which offset; one that
        follows the log already has no use for the table.
        """
        metadata = self._broker.metadata
        table = table_for(
            self._broker, request, applied=lambda: metadata.topics_applied,
            passed=metadata.topic_members, whole=self._broker.topics.table.members,
        )  # fmt: skip
        if table is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, "this broker is no master")
        mappings = table_for(
            self._broker, request, applied=lambda: 0, passed=metadata.mapping_members,
            whole=self._broker.mappings.table.members,
        ) or {}  # fmt: skip
        body = {
            **table,
            "mappingDataVersion": mappings.get("dataVersion", DataVersion().members()),
            "topicQueueMappingDetailMap": mappings.get("topicQueueMappingInfoMap", {}),
            "topicQueueMappingInfoMap": {},
        }
        if "dataVersion" in mappings and APPLIED_OFFSET in mappings:
            body[MAPPINGS_APPLIED] = mappings[APPLIED_OFFSET]
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(body))
