"""Which processor a request goes to, and what becomes of its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rmqha.base.errors import InvariantBroken, RmqhaError
from rmqha.broker.common.aio.ports import Handler, Handlers
from rmqha.broker.send.plain_request import PlainSend
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import unsupported
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand
from rmqha.runtime.logs import Logger

OnResponse = Callable[[Connection, RemotingCommand], None]
OnMessages = Callable[[Connection, Sequence[RemotingCommand], int], int]
OnClosed = Callable[[Connection], None]


class Router:
    """The handler of both of a broker's ports.

    Args:
        messages: takes the message that is there in a chunk, and those like most that stand behind
            it; answers them and says how many.
        families: handlers by request code; of two for one code the later one counts.
        on_response: gets what clients answer to the broker's own requests.
        on_closed: told, in this order, of every connection that has ended.

    Attributes:
        handlers: by request code.
    """

    def __init__(
        self,
        log: Logger,
        messages: OnMessages,
        *families: Handlers,
        on_response: OnResponse | None = None,
        on_closed: Sequence[OnClosed] = (),
    ) -> None:
        self._log = log
        self._messages = messages
        self._on_response = on_response
        self._on_closed = tuple(on_closed)
        self.handlers: dict[int, Handler] = {}
        for family in families:
            self.handlers.update(family)

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        """Handle the commands of one chunk, in order."""
        count, at = len(commands), 0
        while at < count:
            request = commands[at]
            if request.flag & FLAG_RESPONSE:
                at += 1
                if self._on_response is not None:
                    self._on_response(connection, request)
                continue
            if type(request) is PlainSend:
                try:
                    at += self._messages(connection, commands, at)
                    continue
                except RmqhaError as error:
                    answer: RemotingCommand | None = self._failed(request, error)
            else:
                answer = self._handle(connection, request)
            at += 1
            if answer is not None and not request.flag & FLAG_ONEWAY:
                connection.answer(request, answer)

    def _handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        handler = self.handlers.get(request.code)
        if handler is None:
            return unsupported(request)
        try:
            return handler(connection, request)
        except RmqhaError as error:
            return self._failed(request, error)

    def _failed(self, request: RemotingCommand, error: RmqhaError) -> RemotingCommand:
        """What a request is answered whose handler raised; a broken rule is for the process."""
        if isinstance(error, InvariantBroken):
            raise error
        self._log.log("error", "request_failed", code=request.code, error=repr(error))
        return request.reply(ResponseCode.SYSTEM_ERROR, str(error))

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        """Tell everybody who keeps something of a connection."""
        for told in self._on_closed:
            told(connection)
