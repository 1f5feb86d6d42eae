"""A blocking client of a cluster: routes, edges of queues, epochs, pulls and sends.

Every request goes to the master of its broker set, whoever that is; while there is none, or it is
just taking over, it is asked again until ``failover_timeout_ms`` have passed. The event loop stands
still between two calls, so that a Spark worker needs no thread for it.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from rmqha.auth.signature import Credentials
from rmqha.base.errors import (
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
)
from rmqha.client.access import Access
from rmqha.client.aio.masters import PASSING, Masters, succeeded
from rmqha.client.aio.writable import WritableQueues
from rmqha.client.exchange import Refused, Unreachable
from rmqha.client.logical import begins_at, decode_segments, is_logical, mapping_request
from rmqha.client.offsets import Edge
from rmqha.client.pull import Pulled, is_pulled, pull_request
from rmqha.client.routes import QueueKey, TopicRoute
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.bodies import EpochEntryCache
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields, long_field
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.loop import loop_runner
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.aio.tls import Tls
from rmqha.runtime.logs import Logger
from rmqha.statictopic.mapping import Segments

ASKED_AT_ONCE = 64
"""Requests of one call that wait for answers at a time."""
CONNECT_TIMEOUT_MS = 1_000

_CONTROLLERS_ONLY = "controllerMode"

T = TypeVar("T")
K = TypeVar("K")


def _has_no_epochs(answer: RemotingCommand) -> bool:
    """A broker without controllers, or one from before there were any."""
    is_alone = answer.code == ResponseCode.SYSTEM_ERROR and _CONTROLLERS_ONLY in (
        answer.remark or ""
    )
    return is_alone or answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


class MasterClient:
    """Use it as a context manager, or close it.

    Args:
        name_servers: addresses, asked in turn.
        timeout_ms: of one request to a broker.
        failover_timeout_ms: of all attempts of one request together.
        group: to pull as.
        access: what lets it in; None for open doors.

    Raises:
        ConfigInvalid: files of ``access`` cannot be used.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        *,
        timeout_ms: int,
        failover_timeout_ms: int,
        group: str,
        access: Access | None = None,
    ) -> None:
        self.failover_timeout_ms = failover_timeout_ms
        self._group = group
        self.clock = SystemClock()
        self._runner = loop_runner()
        self._is_closed = False
        settings = RemotingSettings(connect_timeout_ms=min(CONNECT_TIMEOUT_MS, timeout_ms))
        access = access or Access()
        tls = Tls(access.tls, Logger()) if access.tls else None
        user = Credentials(access.access_key, access.secret_key) if access.access_key else None
        self._remoting = RemotingClient(
            TcpNetwork(tls), self.clock, settings, sign=None if user is None else user.sign
        )
        self._masters = Masters(
            name_servers,
            self._remoting,
            self.clock,
            timeout_ms=timeout_ms,
            failover_timeout_ms=failover_timeout_ms,
        )
        self._writables = WritableQueues(self._masters, self.clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; twice is as good as once."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._runner.run(self._remoting.close())
        finally:
            self._runner.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the event loop.

        Raises:
            LocalProtocolError: the client is closed.
        """
        if self._is_closed:
            work.close()  # else Python warns that it was never awaited
            raise LocalProtocolError("the client is closed")
        return self._runner.run(work)

    def sleep(self, delay_ms: float) -> None:
        """Wait for so many milliseconds."""
        self.call(self.clock.sleep(delay_ms))

    # -- name servers ------------------------------------------------------------------------------

    def topics(self) -> tuple[list[str], frozenset[str]]:
        """All topics, and those of them that the brokers keep for themselves.

        Raises:
            Unreachable, Refused: no name server tells.
        """
        return self.call(self._masters.topics())

    def route(self, topic: str) -> TopicRoute | None:
        """Where a topic is; None when nobody has it.

        Raises:
            Unreachable, Refused: no name server tells.
        """
        return self.call(self._masters.find_route(topic))

    def routes(self, topics: Iterable[str]) -> dict[str, TopicRoute | None]:
        """Where topics are, asked for many at a time; raises as ``route``."""
        return self.call(self._each(topics, self._masters.find_route))

    def forget_masters(self) -> None:
        """Ask the name servers again who is master, leads a logical queue, or takes messages."""
        self._masters.forget()
        self._writables.forget()

    # -- queues ------------------------------------------------------------------------------------

    def edges(self, queues: Iterable[QueueKey]) -> dict[QueueKey, Edge]:
        """Where queues begin and end; a master shows what is confirmed, and nothing beyond it.

        Raises:
            Refused, Unreachable: as ``Masters.on_master``.
        """
        return self.call(self._each(queues, self._edge))

    async def _edge(self, queue: QueueKey) -> Edge:
        low = await self._offset(queue, RequestCode.GET_MIN_OFFSET)
        high = await self._offset(queue, RequestCode.GET_MAX_OFFSET)
        return Edge(max(0, low), max(0, high))

    def offsets_at(self, times_ms: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        """The first message of each queue that was stored at or after its moment, else its end."""

        async def offset(queue: QueueKey) -> int:
            code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            return max(0, await self._offset(queue, code, times_ms[queue]))

        return self.call(self._each(times_ms, offset))

    async def _offset(self, queue: QueueKey, code: RequestCode, time_ms: int | None = None) -> int:
        fields = ext_fields(
            topic=queue.topic, queueId=queue.queue_id, timestamp=time_ms, bname=queue.broker_name
        )
        answer = await self._masters.on_queue(
            queue, lambda: RemotingCommand(code, ext_fields=dict(fields))
        )
        found = long_field(answer.ext_fields, "offset", None)
        if found is None:
            raise RemoteProtocolError(f"{queue}: an answer without an offset")
        return found

    async def _each(
        self, subjects: Iterable[K], ask: Callable[[K], Coroutine[Any, Any, T]]
    ) -> dict[K, T]:
        room = asyncio.Semaphore(ASKED_AT_ONCE)
        listed = list(subjects)

        async def one(subject: K) -> T:
            async with room:
                return await ask(subject)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(subject)) for subject in listed]
        except ExceptionGroup as errors:
            # One reason is enough: the others are mostly the same.
            raise errors.exceptions[0] from errors
        return {subject: task.result() for subject, task in zip(listed, tasks, strict=True)}

    # -- records -----------------------------------------------------------------------------------

    def pulls(
        self, queue: QueueKey, ranges: Sequence[tuple[int, int]], expression: str = "*"
    ) -> list[Pulled]:
        """Ask for records from several offsets on, all at once; no offset is stored.

        The first is asked for until it is answered, the others once.

        Args:
            ranges: offsets, and how many records from each.

        Returns:
            Answers in the order of ``ranges``, up to the first that failed.

        Raises:
            Refused, Unreachable: the first, as ``Masters.on_master``.
        """
        return self.call(self._pulls(queue, ranges, expression))

    async def _pulls(
        self, queue: QueueKey, ranges: Sequence[tuple[int, int]], expression: str
    ) -> list[Pulled]:
        first, *others = ranges
        address = await self._masters.master_for(queue)

        async def ahead(wanted: tuple[int, int]) -> Pulled | None:
            if address is None:
                return None
            try:
                answer = await self._masters.ask(
                    address, pull_request(self._group, queue, *wanted, expression), is_pulled
                )
            except (ConnectFailed, ConnectionLost, RequestTimeout, Refused):
                return None
            return Pulled.of(answer, wanted[0])

        try:
            async with asyncio.TaskGroup() as group:
                awaited = group.create_task(self._pull(queue, *first, expression))
                tasks = [group.create_task(ahead(wanted)) for wanted in others]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        found = [awaited.result()]
        for task in tasks:
            answer = task.result()
            if answer is None:
                break
            found.append(answer)
        return found

    async def _pull(self, queue: QueueKey, offset: int, count: int, expression: str) -> Pulled:
        answer = await self._masters.on_queue(
            queue,
            lambda: pull_request(self._group, queue, offset, count, expression),
            is_pulled,
        )
        return Pulled.of(answer, offset)

    def record_ends(self, offsets: dict[QueueKey, int]) -> dict[QueueKey, tuple[int, int] | None]:
        """Where in the log the record at an offset of each queue begins and ends; None without one."""

        async def ends(queue: QueueKey) -> tuple[int, int] | None:
            pulled = await self._pull(queue, offsets[queue], 1, "*")
            # Where a segment has ended, the next one's first message comes.
            is_other = is_logical(queue) and pulled.first_offset != offsets[queue]
            return None if is_other else pulled.first_record

        return self.call(self._each(offsets, ends))

    # -- segments of logical queues ----------------------------------------------------------------

    def segments(self, queues: Iterable[QueueKey]) -> dict[QueueKey, Segments]:
        """The segments of each logical queue among these, as its leader knows them.

        A queue without a leader that knows it just now is left out.

        Raises:
            Refused, Unreachable: as ``Masters.on_master``.
            RemoteProtocolError: a leader's mapping is malformed.
        """
        return self.call(self._segments(queues))

    async def _segments(self, queues: Iterable[QueueKey]) -> dict[QueueKey, Segments]:
        led: dict[tuple[str, str], list[QueueKey]] = {}
        for queue in queues:
            if is_logical(queue) and (name := await self._masters.leader(queue)) is not None:
                led.setdefault((name, queue.topic), []).append(queue)
        found: dict[QueueKey, Segments] = {}
        for (name, topic), listed in led.items():
            answer = await self._masters.on_master(name, functools.partial(mapping_request, topic))
            lists = decode_segments(answer.body)
            found |= {one: lists[one.queue_id] for one in listed if lists.get(one.queue_id)}
        return found

    def next_offset(self, queue: QueueKey, offset: int, history: Segments) -> int:
        """The first offset from ``offset`` on that a logical queue can have a message at.

        Between two segments there are none.

        Raises:
            Refused, Unreachable: as ``Masters.on_master``.
        """
        pulled = self.call(self._pull(queue, offset, 1, "*"))
        if pulled.first_offset is not None:
            return max(offset, pulled.first_offset)
        is_gap = pulled.next_offset > offset and begins_at(history, pulled.next_offset)
        return pulled.next_offset if is_gap else offset

    # -- sending -----------------------------------------------------------------------------------

    def writable(self, topic: str) -> list[QueueKey]:
        """The queues of a topic that take messages; empty while none does.

        They are as a name server told half a minute ago at most, unless it tells nothing since.

        Raises:
            Refused, Unreachable: no name server tells, and nothing is known.
        """
        return self.call(self._writable(topic))

    async def send(
        self,
        topic: str,
        turn: int,
        make: Callable[[QueueKey], RemotingCommand],
        only: QueueKey | None = None,
    ) -> RemotingCommand:
        """Store a message, or a batch, in some queue of a topic; in another one if that fails.

        Args:
            turn: which of the writable queues is the first to be tried.
            make: the request for a queue, anew for each attempt.
            only: the one queue that it may be stored in.

        Raises:
            Refused: a broker will not store it, now or later.
            Unreachable: nobody stored it in time; what was heard last is in the message.
        """
        deadline_ms = self.clock.now_ms() + self.failover_timeout_ms
        while True:
            problem: Exception = Unreachable(f"no broker takes messages of {topic}")
            queues = await self._writable(topic) if only is None else [only]
            if queues:
                queue = queues[turn % len(queues)]
                try:
                    return await self._stored(queue, make(queue))
                except (ConnectFailed, ConnectionLost, RequestTimeout, Unreachable) as error:
                    problem = error
                except Refused as error:
                    if error.code not in PASSING:
                        raise
                    problem = error
            turn += 1
            self.forget_masters()
            await self._masters.before_next(deadline_ms, f"{topic} took no message", problem)

    async def _stored(self, queue: QueueKey, command: RemotingCommand) -> RemotingCommand:
        address = await self._masters.master_for(queue)
        if address is None:
            raise Unreachable(f"{queue} has no master")
        return await self._masters.ask(address, command)

    async def _writable(self, topic: str) -> list[QueueKey]:
        return await self._writables.of(topic)

    # -- epochs ------------------------------------------------------------------------------------

    def epochs(self, broker_name: str) -> EpochEntryCache | None:
        """The epochs of a master's log (1007); None for a broker without controllers.

        Raises:
            Refused, Unreachable: as ``Masters.on_master``.
        """
        return self.call(self._epochs(broker_name))

    async def _epochs(self, broker_name: str) -> EpochEntryCache | None:
        answer = await self._masters.on_master(
            broker_name,
            lambda: RemotingCommand(RequestCode.GET_BROKER_EPOCH_CACHE),
            lambda answer: succeeded(answer) or _has_no_epochs(answer),
        )
        if answer.code == ResponseCode.SUCCESS:
            return EpochEntryCache.decode(answer.body)
        return None
