"""Answers that take time: what goes wrong on the way is told to who asked, and ends nobody else."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from rmqha.base.errors import DiskFailed, InvariantBroken, RmqhaError, StoreCorrupted
from rmqha.base.ids import ConnectionId
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger

REASON_MAX = 1_000
"""Characters of a reason, at most."""

LONG_REQUESTS_MAX = 1_024
LONG_BYTES_MAX = 64 << 20
"""Long requests that wait for their turn, and their bodies; who finds no room asks again."""

Work = Generator[None, None, RemotingCommand | None]
"""What answers a request: it yields where others may have their turn. None where somebody else
answers."""


class _Long(NamedTuple):
    """A request that waits for its turn."""

    work: Work
    connection: Connection
    request: RemotingCommand


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
        self._waiting: deque[_Long] = deque()
        self._bytes = 0
        self._of: Counter[ConnectionId] = Counter()
        self._runner: asyncio.Task[Any] | None = None
        self.held = 0

    def __len__(self) -> int:
        """How many long requests wait for their turn."""
        return len(self._waiting)

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
        self, work: Work, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """The answer of a work that is short, as most are; a longer one goes on in turns.

        All long ones share one part in each turn of the loop. What the same connection asks here
        behind a long one waits for it, since of two words the later counts; and the connection is
        read no further meanwhile.

        Returns:
            None where the request will be answered.
        """
        if connection.id not in self._of:
            try:
                next(work)
            except StopIteration as end:
                answer: RemotingCommand | None = end.value
                return answer
        size = self._bytes + len(request.body)
        if len(self._waiting) >= LONG_REQUESTS_MAX or size > LONG_BYTES_MAX:
            return request.reply(ResponseCode.SYSTEM_BUSY, "too many long requests wait already")
        self._waiting.append(_Long(work, connection, request))
        self._bytes = size
        self._of[connection.id] += 1
        connection.wait([])
        self._run_on()
        return None

    def in_order(
        self,
        answer: Callable[[Connection, RemotingCommand], RemotingCommand],
        connection: Connection,
        request: RemotingCommand,
    ) -> RemotingCommand | None:
        """What ``answer`` says at once, or behind the long requests of the same connection."""
        if connection.id not in self._of:
            return answer(connection, request)
        return self.finish(_in_a_turn(answer, connection, request), connection, request)

    def _run_on(self) -> None:
        if self._waiting and self._runner is None:
            self._runner = self._tasks.start(self._run(), name="long requests")
            self._runner.add_done_callback(self._ran)

    async def _run(self) -> None:
        while self._waiting:
            one = self._waiting[0]
            if self._is_through(one):
                self._forget(one)
            await asyncio.sleep(0)

    def _is_through(self, one: _Long) -> bool:
        """Do one part."""
        with self._told(one.connection, one.request):
            try:
                next(one.work)
            except StopIteration as end:
                if end.value is not None and not one.request.is_oneway:
                    one.connection.send(end.value)
            else:
                return False
        return True

    def _forget(self, one: _Long) -> None:
        self._waiting.remove(one)
        self._bytes -= len(one.request.body)
        self._of[one.connection.id] -= 1
        if not self._of[one.connection.id]:
            del self._of[one.connection.id]
            # What it reads then may go wrong, and is not of this work.
            asyncio.get_running_loop().call_soon(one.connection.resume)

    def _ran(self, runner: asyncio.Task[Any]) -> None:
        self._runner = None
        if runner.cancelled():  # the broker ends
            for one in list(self._waiting):
                self._forget(one)
        self._run_on()

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


def _in_a_turn(
    answer: Callable[[Connection, RemotingCommand], RemotingCommand],
    connection: Connection,
    request: RemotingCommand,
) -> Work:
    yield
    return answer(connection, request)
