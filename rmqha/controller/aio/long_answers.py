"""Answers that take longer than a turn of the loop: one after another, and each in turns.

One at a time, for each may be a whole frame, and is kept until it is whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator

from rmqha.base.errors import LocalProtocolError
from rmqha.controller.aio.replies import reply_to
from rmqha.controller.metadata.answers import BUSY
from rmqha.controller.metadata.decision import Decision
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.aio.turns import in_turns

WAITING_MAX = 32
"""So many may wait; further ones are told to come again."""

LongWork = Generator[None, None, Decision | list[bytes]]
"""Returns a decision, or the body of an answer in pieces."""


class LongAnswers:
    """The ones of one node.

    Args:
        tasks: the work is started here.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._waiting: deque[tuple[Connection, RemotingCommand, LongWork]] = deque()
        self._is_going_on = False

    def add(self, connection: Connection, command: RemotingCommand, work: LongWork) -> None:
        """Answer a request with what the work returns."""
        if len(self._waiting) >= WAITING_MAX:
            _answer(connection, command, BUSY)
            return
        self._waiting.append((connection, command, work))
        self._begin()

    def _begin(self) -> None:
        if self._waiting and not self._is_going_on:
            self._is_going_on = True
            self._tasks.start(self._go_on(), name="long answers")

    async def _go_on(self) -> None:
        while self._waiting:
            connection, command, work = self._waiting.popleft()
            if connection.is_closing:
                continue
            try:
                found = await in_turns(work)
            except Exception as error:
                # This task ends with it, and its owner is told; the others still wait.
                self._is_going_on = False
                self._begin()
                _answer(connection, command, Decision(ResponseCode.SYSTEM_ERROR, repr(error)))
                raise
            _answer(connection, command, found)
        self._is_going_on = False


def _answer(
    connection: Connection, command: RemotingCommand, found: Decision | list[bytes]
) -> None:
    if command.is_oneway:
        return
    if isinstance(found, Decision):
        connection.answer(command, reply_to(command, found))
        return
    try:
        connection.send_pieces(command.reply(ResponseCode.SUCCESS), found)
    except LocalProtocolError as error:
        connection.send(command.reply(ResponseCode.SYSTEM_ERROR, str(error)))
