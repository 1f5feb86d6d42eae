"""Answers that take time: what goes wrong on the way is told to who asked, and ends nobody else."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from rmqha.base.errors import DiskFailed, InvariantBroken, RmqhaError, StoreCorrupted
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.aio.turns import in_turns
from rmqha.runtime.logs import Logger

REASON_MAX = 1_000
"""Characters of a reason, at most."""


class Answers:
    """Requests that are being answered.

    Args:
        tasks: where the work runs; a failed disk or a broken safety rule is theirs.

    Attributes:
        held: how many of them wait for slaves (``held_answers``).
    """

    def __init__(self, tasks: Tasks, log: Logger) -> None:
        self._tasks = tasks
        self._log = log
        self.held = 0

    def start(
        self,
        work: Coroutine[Any, Any, None],
        connection: Connection,
        request: RemotingCommand,
        *,
        name: str,
    ) -> None:
        """Run what will answer ``request``; when it fails, the request is answered with 1."""
        task = self._tasks.start(self._answer(work, connection, request), name=name)
        # What is cancelled before its first step never came to its work.
        task.add_done_callback(lambda _: work.close())

    def finish(
        self,
        work: Generator[None, None, RemotingCommand | None],
        connection: Connection,
        request: RemotingCommand,
        *,
        name: str,
    ) -> RemotingCommand | None:
        """The answer of a work that is short, as most are; a longer one goes on in turns.

        Args:
            work: yields where others may have their turn; None is its answer where somebody else gives
                one.

        Returns:
            None where the request will be answered.
        """
        try:
            next(work)
        except StopIteration as end:
            answer: RemotingCommand | None = end.value
            return answer
        self.start(self._rest(work, connection, request), connection, request, name=name)
        return None

    async def _rest(
        self,
        work: Generator[None, None, RemotingCommand | None],
        connection: Connection,
        request: RemotingCommand,
    ) -> None:
        answer = await in_turns(work)
        if answer is not None and not request.is_oneway:
            connection.send(answer)

    async def _answer(
        self, work: Coroutine[Any, Any, None], connection: Connection, request: RemotingCommand
    ) -> None:
        with self._told(connection, request):
            await work

    def take(
        self, work: Callable[[], object], connection: Connection, request: RemotingCommand
    ) -> None:
        """Do at once what will answer ``request``; when it fails, the request is answered with 1."""
        with self._told(connection, request):
            work()

    @contextmanager
    def _told(self, connection: Connection, request: RemotingCommand) -> Iterator[None]:
        try:
            yield
        except (DiskFailed, StoreCorrupted, InvariantBroken):
            raise
        except Exception as error:  # noqa: BLE001 - its fault must not be the broker's
            # What others send may be anything; one that nobody thought of is named apart.
            event = "request_failed" if isinstance(error, RmqhaError) else "request_broken"
            self._log.log("error", event, code=request.code, error=repr(error))
            if not request.is_oneway:
                reason = str(error) or repr(error)
                connection.send(request.reply(ResponseCode.SYSTEM_ERROR, reason[:REASON_MAX]))
