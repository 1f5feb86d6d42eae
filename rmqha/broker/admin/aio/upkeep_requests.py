"""What operators ask a broker to tidy up at once: 306 (files of queues), 329 (files of the log)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rmqha.broker.common.aio.ports import Broker, Handler, Handlers
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand

ROUNDS_MAX = 20
"""Of one 329, each of ten files at most; Java's number."""


class UpkeepProcessor:
    """Does now what the store does by itself at its hour."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._when_done(
                self._broker.store.expiring.expire_queues, "expired queues"
            ),
            RequestCode.DELETE_EXPIRED_COMMITLOG: self._when_done(self._expire, "expired files"),
        }

    async def _expire(self) -> None:
        for _ in range(ROUNDS_MAX):
            if not await self._broker.store.expiring.expire(is_asked=True):
                return

    def _when_done(self, work: Callable[[], Awaitable[None]], name: str) -> Handler:
        """Answer once the files are gone; a disk that cannot remove one is the broker's end."""

        async def answered(connection: Connection, request: RemotingCommand) -> None:
            await work()
            if not request.is_oneway:
                connection.send(request.reply(ResponseCode.SUCCESS))

        def handle(connection: Connection, request: RemotingCommand) -> None:
            done = answered(connection, request)
            self._broker.answers.start(done, connection, request, name=name)

        return handle
