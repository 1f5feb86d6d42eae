"""What slaves copy (43, 201), and clients' life signs (34, 35)."""

from __future__ import annotations

from rmqha.broker.aio.processors import Broker, Handlers
from rmqha.broker.topics import DataVersion
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand

HEART_BEAT, UNREGISTER_CLIENT = 34, 35
GET_ALL_CONSUMER_OFFSET = 43
GET_ALL_SUBSCRIPTION_GROUP = 201


class AdminProcessor:
    """Answers mqadmin, slaves, and clients that only want to be known."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            GET_ALL_CONSUMER_OFFSET: self.offsets,
            GET_ALL_SUBSCRIPTION_GROUP: self.groups,
            HEART_BEAT: self.accept,
            UNREGISTER_CLIENT: self.accept,
        }

    def accept(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """34 and 35: clients are welcome; nothing here depends on who they are yet."""
        return request.reply(ResponseCode.SUCCESS)

    def offsets(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """43: no consumer's offset is kept here, and a slave keeps those that it has."""
        body = {"dataVersion": DataVersion().members(), "offsetTable": {}}
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(body))

    def groups(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """201 is refused: an empty table would make a slave forget the groups that it has."""
        return request.reply(ResponseCode.SYSTEM_ERROR, "subscription groups are not kept here")
