"""What slaves copy of delays and timers: 45 and 60."""

from __future__ import annotations

from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.deferred.aio.master_services import MasterServices
from rmqha.broker.topics.aio.ports import Broker
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.data_version import DataVersion


class DeferredProcessor:
    """Answers slaves that copy delays and timers."""

    def __init__(self, broker: Broker, services: MasterServices) -> None:
        self._broker = broker
        self._services = services

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.GET_ALL_DELAY_OFFSET: self.delay_offsets,
            RequestCode.GET_TIMER_CHECK_POINT: self.timer_mark,
        }

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
