"""Requests that look into the log, also where it has left the memory: then they are answered later."""

from __future__ import annotations

from rmqha.broker.common.aio.ports import Broker, Handler
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.command import RemotingCommand
from rmqha.store.aio.cold_reads import NotInMemory


def patient(broker: Broker, handler: Handler) -> Handler:
    """A handler that is asked again once what it looks for has been read.

    Args:
        handler: changes nothing before it has seen all that it looks at.
    """
    cold = broker.store.cold

    def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        try:
            return cold.now(lambda: handler(connection, request))
        except NotInMemory as missing:
            work = later(connection, request, missing)
            broker.answers.start(work, connection, request, name="cold look")
            return None

    async def later(connection: Connection, request: RemotingCommand, missing: NotInMemory) -> None:
        answer = await cold.look(lambda: handler(connection, request), missing)
        if answer is not None and not request.is_oneway:
            connection.send(answer)

    return handle
