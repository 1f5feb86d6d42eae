"""Topics (17, 215, 21, 351), what slaves copy (43, 45, 201), and clients' life signs (34, 35)."""

from __future__ import annotations

from rmqha.broker.aio.processors import Broker, Handlers
from rmqha.broker.send import INVALID_PARAMETER, TOPIC_NOT_EXIST
from rmqha.broker.topics import (
    PERM_READ,
    PERM_WRITE,
    QUEUES_MAX,
    DataVersion,
    TopicConfig,
    topic_error,
)
from rmqha.ha.events import Role
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import bool_field, int_field, text_field

HEART_BEAT, UNREGISTER_CLIENT = 34, 35
GET_ALL_CONSUMER_OFFSET, GET_ALL_DELAY_OFFSET = 43, 45
GET_ALL_SUBSCRIPTION_GROUP = 201
DELETE_TOPIC_IN_BROKER = 215
GET_TOPIC_CONFIG = 351


class AdminProcessor:
    """Answers mqadmin, slaves, and clients that only want to be known."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.put_topic,
            DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_topics,
            GET_TOPIC_CONFIG: self.one_topic,
            GET_ALL_CONSUMER_OFFSET: self.offsets,
            GET_ALL_DELAY_OFFSET: self.offsets,
            GET_ALL_SUBSCRIPTION_GROUP: self.groups,
            HEART_BEAT: self.accept,
            UNREGISTER_CLIENT: self.accept,
        }

    def accept(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """34 and 35: clients are welcome; nothing here depends on who they are yet."""
        return request.reply(ResponseCode.SUCCESS)

    def _not_master(self, request: RemotingCommand) -> RemotingCommand | None:
        if self._broker.role is Role.MASTER:
            return None
        return request.reply(ResponseCode.SYSTEM_ERROR, "topics are changed at the master only")

    def put_topic(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """17."""
        refused = self._not_master(request)
        if refused is not None:
            return refused
        fields = request.ext_fields
        name = text_field(fields, "topic", "")
        reads, writes = (
            int_field(fields, "readQueueNums", 0),
            int_field(fields, "writeQueueNums", 0),
        )
        error = topic_error(name)
        if error is None and not all(0 < count <= QUEUES_MAX for count in (reads, writes)):
            error = f"queue numbers must be from 1 to {QUEUES_MAX}"
        if error is not None:
            return request.reply(INVALID_PARAMETER, error)
        topic = TopicConfig(
            name,
            reads,
            writes,
            perm=int_field(fields, "perm", PERM_READ | PERM_WRITE) & 0xF,
            topic_filter_type=text_field(fields, "topicFilterType", "SINGLE_TAG"),
            topic_sys_flag=int_field(fields, "topicSysFlag", 0),
            order=bool_field(fields, "order"),
        )
        if self._broker.topics.table.put(topic, self._broker.clock.wall_ms()):
            self._broker.topics_changed()
        return request.reply(ResponseCode.SUCCESS)

    def delete_topic(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """215: the topic goes; its messages expire with the log."""
        refused = self._not_master(request)
        if refused is not None:
            return refused
        name = text_field(request.ext_fields, "topic", "")
        if self._broker.topics.table.delete(name, self._broker.clock.wall_ms()):
            self._broker.topics_changed()
        return request.reply(ResponseCode.SUCCESS)

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

    def offsets(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """43 and 45: no consumer's offset is kept here, and a slave keeps those that it has."""
        body = {"dataVersion": DataVersion().members(), "offsetTable": {}}
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(body))

    def groups(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """201 is refused: an empty table would make a slave forget the groups that it has."""
        return request.reply(ResponseCode.SYSTEM_ERROR, "subscription groups are not kept here")
