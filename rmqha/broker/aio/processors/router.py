"""Which processor a request goes to, and what becomes of its answer."""

from __future__ import annotations

from rmqha.base.errors import InvariantBroken, RmqhaError
from rmqha.broker.aio.processors import Handler, Handlers
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import unsupported
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.logs import Logger


class Router:
    """The handler of both of a broker's ports."""

    def __init__(self, log: Logger, *families: Handlers) -> None:
        self._log = log
        self._handlers: dict[int, Handler] = {}
        for family in families:
            self._handlers.update(family)

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        """Handle the commands of one chunk, in order."""
        for request in commands:
            if request.is_response:
                continue
            answer = self._handle(connection, request)
            if answer is not None and not request.is_oneway:
                connection.send(answer)

    def _handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        handler = self._handlers.get(request.code)
        if handler is None:
            return unsupported(request)
        try:
            return handler(connection, request)
        except InvariantBroken:
            raise
        except RmqhaError as error:
            self._log.log("error", "request_failed", code=request.code, error=repr(error))
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        """Nothing is kept of a connection."""
