"""What slaves copy of delays and timers: 45, 60 and 61."""

from __future__ import annotations

from rmqha.broker.common.aio.held_answers import send_confirmed, tells_at_once
from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.deferred.aio.master_services import MasterServices
from rmqha.broker.deferred.timers import timer_counts_body
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
            RequestCode.GET_TIMER_METRICS: self.timer_counts,
        }

    def delay_offsets(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """45: how far each delay level is delivered, as far as that is safe."""
        body = self._services.delay_offsets.offsets.members()
        answer = request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(body))
        return self._confirmed(connection, request, answer)

    def _confirmed(
        self, connection: Connection, request: RemotingCommand, answer: RemotingCommand
    ) -> RemotingCommand | None:
        """An answer that may be known, now or later."""
        if tells_at_once(self._broker, request):
            return answer
        work = send_confirmed(self._broker, connection, request, lambda: connection.send(answer))
        self._broker.answers.start(work, connection, request, name="positions")
        return None

    def timer_mark(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """60: how far timers are delivered."""
        mark = self._services.timer_mark.mark
        if not mark.read_ms:
            # A slave of Java's would begin in 1970, and go on second by second.
            return request.reply(ResponseCode.SYSTEM_ERROR, "no timers have been looked at yet")
        version = DataVersion(self._broker.topics.table.version.state_version, 0, 0)
        body = mark.encode(version, self._services.rules.precision_ms)
        answer = request.reply(ResponseCode.SUCCESS, body=body)
        return self._confirmed(connection, request, answer)

    def timer_counts(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """61: how many timers of each topic wait, as a slave of Java's takes it for its own count.

        A figure, which no delivery hangs on: it waits for nothing to be safe.
        """
        if not self._services.has_timers:
            return request.reply(ResponseCode.SYSTEM_ERROR, "no timers run here")
        body = timer_counts_body(
            self._services.timers.waiting,
            DataVersion(
                self._broker.topics.table.version.state_version, self._services.since_ms,
                self._broker.statistics.timers_in + self._broker.statistics.timers_out,
            ),
            self._broker.clock.wall_ms(),
        )  # fmt: skip
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(body))
