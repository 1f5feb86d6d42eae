"""Stands before a server's handler and lets pass what may pass.

It is there only where authentication is on: a server without it calls nothing of this.
"""

from __future__ import annotations

from collections import Counter

from rmqha.auth.check import Check
from rmqha.auth.refused import Refused
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import ServerHandler
from rmqha.remoting.codes import ResponseCode, request_name
from rmqha.remoting.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand
from rmqha.runtime.logs import STRANGERS_LINES_PER_SECOND_MAX, Logger


class Refusals:
    """What was refused, for metrics and people.

    The log would drop lines of a flood itself, but only once they are made, which takes more than
    all else that a refused request costs.

    Attributes:
        counts: by reason.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._second = self._told = self._left_out = 0
        self.counts: Counter[str] = Counter()

    def refuse(self, connection: Connection, request: RemotingCommand, why: Refused) -> None:
        """Answer a request with the reason, and note it."""
        self.note(connection, request, why)
        if not request.flag & FLAG_ONEWAY:
            connection.send(request.reply(ResponseCode.NO_PERMISSION, str(why)))

    def note(self, connection: Connection, request: RemotingCommand, why: Refused) -> None:
        """Count what was refused, and tell the first ones of a second."""
        self.counts[why.reason] += 1
        second = connection.active_ms // 1000
        if second != self._second:
            self._second, self._told = second, 0
        if self._told < STRANGERS_LINES_PER_SECOND_MAX:
            self._told += 1
            self._tell(connection, request, why)
        else:
            self._left_out += 1

    def _tell(self, connection: Connection, request: RemotingCommand, why: Refused) -> None:
        left_out = {"requests_left_out": self._left_out} if self._left_out else {}
        self._left_out = 0
        self._log.log(
            "warning", "request_refused", address=connection.peer, reason=str(why.reason),
            code=request_name(request.code), remark=str(why)[:200], **left_out,
        )  # fmt: skip


class Guard:
    """A server's handler that asks before it hands on.

    Args:
        passes: codes that peers prove otherwise.
    """

    def __init__(
        self,
        handler: ServerHandler,
        check: Check,
        refusals: Refusals,
        passes: frozenset[int] = frozenset(),
    ) -> None:
        self._handler = handler
        self._check = check
        self._refusals = refusals
        self._passes = passes

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        """Hand on those of a chunk that may pass, in order; answer the others."""
        check, peer, refused = self._check, connection.peer, 0
        for at, command in enumerate(commands):
            if command.flag & FLAG_RESPONSE or command.code in self._passes:
                continue
            try:
                check(command, peer)
            except Refused as why:
                if not refused:
                    commands = commands[:]  # the caller's list is the caller's
                refused += 1
                commands[at] = _GONE
                self._refusals.refuse(connection, command, why)
        if refused:
            commands = [command for command in commands if command is not _GONE]
        if commands:
            self._handler.on_commands(connection, commands)

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        """The connection has ended."""
        self._handler.on_closed(connection, error)


_GONE = RemotingCommand(-1)
