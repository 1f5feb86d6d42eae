"""What tools ask of a broker for their pages and charts: 305 (system topics), 315 (statistics)."""

from __future__ import annotations

from rmqha.broker.admin.stats_data import stats_data
from rmqha.broker.common.aio.ports import Broker, Handlers
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.topics.own_topics import given_topics
from rmqha.broker.topics.topic_table import system_topic_names
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import text_field


class FigureProcessor:
    """Answers the dashboard and the exporter."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            RequestCode.VIEW_BROKER_STATS_DATA: self.stats,
        }

    def system_topics(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with the topics that are the broker's own (305)."""
        names = system_topic_names(given_topics(self._broker.config))
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps({"topicList": names}))

    def stats(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with what was counted of one thing (315)."""
        fields, broker = request.ext_fields, self._broker
        found = stats_data(
            broker.statistics,
            text_field(fields, "statsName", ""),
            text_field(fields, "statsKey", ""),
            broker.config.cluster_name,
        )
        if isinstance(found, Refusal):
            return request.reply(found.code, found.remark)
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(found))
