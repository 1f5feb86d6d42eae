"""Topics (17, 18, 215, 21, 351), and what slaves copy of delays and timers (45, 60)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rmqha.base.errors import DiskFailed, RemoteProtocolError
from rmqha.broker.aio.processors import Broker, Handlers, unwritable
from rmqha.broker.aio.services import MasterServices
from rmqha.broker.pop import retry_topic_of
from rmqha.broker.send import INVALID_PARAMETER, TOPIC_NOT_EXIST, Refusal
from rmqha.broker.topic_requests import check_name, parse_topic, parse_topics
from rmqha.broker.topics import DataVersion, TopicConfig
from rmqha.ha.events import Role
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import text_field

TOLD_MS = 2_000
"""How long an answer waits for name servers; mqadmin waits 5 s for it, and Java's brokers 24 s."""


class TopicProcessor:
    """Answers mqadmin and slaves about topics.

    Args:
        told: returns once the name servers know of all changes, or after so many milliseconds.
    """

    def __init__(
        self, broker: Broker, services: MasterServices, told: Callable[[int], Awaitable[object]]
    ) -> None:
        self._broker = broker
        self._told = told
        self._services = services
        self._protect = broker.config.boolean("validateSystemTopicWhenUpdateTopic")

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.put_topic,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.put_topics,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_topics,
            RequestCode.GET_TOPIC_CONFIG: self.one_topic,
            RequestCode.GET_ALL_DELAY_OFFSET: self.delay_offsets,
            RequestCode.GET_TIMER_CHECK_POINT: self.timer_mark,
        }

    def _refused(self, request: RemotingCommand) -> RemotingCommand | None:
        if self._broker.role is Role.MASTER:
            return unwritable(self._broker, request)
        return request.reply(ResponseCode.SYSTEM_ERROR, "topics are changed at the master only")

    def put_topic(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """17; a topic that is as asked for changes nothing."""
        refused = self._refused(request)
        if refused is not None:
            return refused
        get = self._broker.topics.table.get
        topic = parse_topic(request.ext_fields, get, protect_system=self._protect)
        if isinstance(topic, Refusal):
            return request.reply(topic.code, topic.remark)
        return self._put(connection, request, [topic])

    def put_topics(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """18; all or none."""
        refused = self._refused(request)
        if refused is not None:
            return refused
        get = self._broker.topics.table.get
        try:
            topics = parse_topics(request.body, get, protect_system=self._protect)
        except RemoteProtocolError as error:
            return request.reply(INVALID_PARAMETER, str(error))
        if isinstance(topics, Refusal):
            return request.reply(topics.code, topics.remark)
        return self._put(connection, request, topics)

    def _put(
        self, connection: Connection, request: RemotingCommand, topics: list[TopicConfig]
    ) -> RemotingCommand | None:
        table, wall_ms = self._broker.topics.table, self._broker.clock.wall_ms()
        before = {topic.name: table.get(topic.name) for topic in topics}
        changed = [topic.name for topic in topics if table.put(topic, wall_ms)]
        if changed:
            self._broker.topics_changed()
        if any(table.get(topic.name) != topic for topic in topics):
            return request.reply(ResponseCode.SYSTEM_ERROR, "there is no room for more topics")
        if not changed:
            return request.reply(ResponseCode.SUCCESS)
        self._publish(connection, request, before)
        return None

    def _publish(
        self, connection: Connection, request: RemotingCommand,
        before: dict[str, TopicConfig | None], then: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Answer once the change is on disk, and clients find it.

        Args:
            before: the topics as they were, which they are again when they cannot be written.
            then: what follows when they are.
        """

        async def publish() -> None:
            answer = request.reply(ResponseCode.SUCCESS)
            try:
                await self._broker.topics.save()
                then()
                await self._told(TOLD_MS)
            except DiskFailed as error:
                self._undo(before)
                remark = f"nothing is changed: {error}"
                answer = request.reply(ResponseCode.SYSTEM_ERROR, remark)
            if not request.is_oneway:
                connection.send(answer)

        self._broker.answers.start(publish(), connection, request, name="topics changed")

    def _undo(self, before: dict[str, TopicConfig | None]) -> None:
        table, wall_ms = self._broker.topics.table, self._broker.clock.wall_ms()
        for name, topic in before.items():
            if topic is None:
                table.delete(name, wall_ms)
            else:
                table.put(topic, wall_ms)
        self._broker.topics_changed()

    def delete_topic(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """215: the topic goes, with what groups have stored of it; messages expire with the log."""
        refused = self._refused(request)
        if refused is not None:
            return refused
        name = text_field(request.ext_fields, "topic", "")
        if not name.strip():
            return request.reply(INVALID_PARAMETER, "The specified topic is blank.")
        refusal = check_name(name, protect_system=self._protect)
        if refusal is not None and self._broker.topics.table.get(name) is None:
            return request.reply(refusal.code, refusal.remark)
        if refusal is not None and "system topic" in refusal.remark:
            return request.reply(refusal.code, refusal.remark)
        before = {name: self._broker.topics.table.get(name)}
        if self._broker.topics.table.delete(name, self._broker.clock.wall_ms()):
            self._broker.topics_changed()
        self._publish(connection, request, before, lambda: self._forget(name))
        return None

    def _forget(self, name: str) -> None:
        """What groups have stored of a topic goes, and with it where they would pop it again."""
        broker = self._broker
        offsets, wall_ms = broker.offsets.table, broker.clock.wall_ms()
        retries = [retry_topic_of(name, group) for group in offsets.groups_of(name)]
        for gone in (name, *(one for one in retries if one != name)):
            if gone != name and broker.topics.table.delete(gone, wall_ms):
                broker.topics_changed()
            if offsets.forget_topic(gone):
                broker.offsets.changed()

    def all_topics(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """21: what a slave copies; static topics do not exist here."""
        body = {
            **self._broker.topics.table.members(),
            "mappingDataVersion": DataVersion().members(),
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        }
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(body))

    def one_topic(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """351."""
        topic = self._broker.topics.table.get(text_field(request.ext_fields, "topic", ""))
        if topic is None:
            return request.reply(TOPIC_NOT_EXIST, "the topic does not exist")
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(topic.members()))

    def delay_offsets(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """45: how far each delay level is delivered, as far as that is safe."""
        body = self._services.delay_offsets.offsets.members()
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(body))

    def timer_mark(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """60: how far timers are delivered."""
        mark = self._services.timer_mark.mark
        if not mark.read_ms:
            # A slave of Java's would begin in 1970, and go on second by second.
            return request.reply(ResponseCode.SYSTEM_ERROR, "no timers have been looked at yet")
        version = DataVersion(self._broker.topics.table.version.state_version, 0, 0)
        body = mark.encode(version, self._services.rules.precision_ms)
        return request.reply(ResponseCode.SUCCESS, body=body)
