"""Registration with every name server: on a change at once, soon after its connection was lost (it
may have started anew, and knows nobody then), and every so often. Who they are may change meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rmqha.base.errors import RemoteProtocolError, RmqhaError
from rmqha.broker.common.aio.config_file import pause_after
from rmqha.broker.naming.messages import (
    MasterKnown,
    Registered,
    master_known,
    ordered_topics,
    registration_body,
    registration_fields,
    unregistration_fields,
)
from rmqha.broker.topics.mapping_table import MappingTable
from rmqha.broker.topics.topic_table import TopicTable
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, TimerHandle

UNREGISTER_TIMEOUT_MS = 3_000
FAILED_RETRY_MS = 1_000


class _Server:
    """One name server.

    Attributes:
        address: of it.
        changed: it is to be told something.
        told: changes that it was told, or could not be.
        is_gone: it is none any more.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.changed = asyncio.Event()
        self.told = 0
        self.is_gone = False


class NamesrvRegistration:
    """Keeps a broker listed.

    Args:
        client, clock, log, tasks: as everywhere.
        who: who to register as; None while this broker may not be seen yet.
        table, mappings: the topics to register, and the mappings of the static ones.
        permission: what the broker allows at all, as bits.
        period_ms: between two registrations without a change.
        timeout_ms: for one registration.
        on_master: told what a name server answers a slave.
        on_ordered: told the topics that a name server has an order configuration of, if any.
    """

    def __init__(
        self,
        *,
        client: RemotingClient,
        clock: Clock,
        log: Logger,
        tasks: Tasks,
        who: Callable[[], Registered | None],
        table: Callable[[], TopicTable],
        mappings: Callable[[], MappingTable],
        permission: Callable[[], int],
        period_ms: int,
        timeout_ms: int,
        on_master: Callable[[MasterKnown], None],
        on_ordered: Callable[[frozenset[str]], None],
    ) -> None:
        self._servers: dict[str, _Server] = {}
        self._client = client
        self._clock = clock
        self._log = log
        self._tasks = tasks
        self._who = who
        self._table = table
        self._mappings = mappings
        self._permission = permission
        self._period_ms = period_ms
        self._timeout_ms = timeout_ms
        self._on_master = on_master
        self._on_ordered = on_ordered
        self._changes = 0
        self._progress = asyncio.Event()
        self._pause_ms = 0
        self._listed: Registered | None = None

    def changed(self) -> None:
        """Role or topics have changed: register soon. Several changes may become one request."""
        self._changes += 1
        for server in self._servers.values():
            server.changed.set()

    def lost(self, address: str) -> None:
        """A connection has ended; if it was a name server's, register with it again soon."""
        server = self._servers.get(address)
        if server is not None:
            # Not at once: it would be asked without a rest if it closed after each answer.
            self._clock.call_later(FAILED_RETRY_MS, server.changed.set)

    def named(self, servers: tuple[str, ...]) -> None:
        """These are the name servers from here on; none before the first call.

        Each is registered with at its own pace, so that a dead one delays nobody. New ones are told at
        once. Nobody waits for those that are none any more, and they are not told to forget this broker:
        one that was only away from a list for a moment would send its clients off. They forget by
        themselves who registers no more.
        """
        for address in [one for one in self._servers if one not in servers]:
            gone = self._servers.pop(address)
            gone.is_gone = True
            gone.changed.set()
        for address in servers:
            if address not in self._servers:
                server = self._servers[address] = _Server(address)
                server.changed.set()
                self._tasks.start(self._keep(server), name=f"name server {address}")
        self._progress.set()

    async def told(self, timeout_ms: int) -> bool:
        """Wait until every name server has been told of all changes so far, or could not be.

        Returns:
            Whether that came about in time.
        """
        changes, end_ms = self._changes, self._clock.now_ms() + timeout_ms
        timer = self._clock.call_later(timeout_ms, self._progress.set)
        try:
            while any(server.told < changes for server in self._servers.values()):
                if self._clock.now_ms() >= end_ms:
                    return False
                self._progress.clear()
                await self._progress.wait()
            return True
        finally:
            timer.cancel()

    async def _keep(self, server: _Server) -> None:
        """Register until it is no name server any more."""
        timer: TimerHandle | None = None
        while True:
            await server.changed.wait()
            server.changed.clear()
            changes = self._changes
            if timer is not None:
                timer.cancel()
            if server.is_gone:
                return
            broker = self._who()
            if broker is not None:
                done = await self._register(server.address, broker)
                delay_ms = self._period_ms if done else FAILED_RETRY_MS
                timer = self._clock.call_later(delay_ms, server.changed.set)
            server.told = changes
            self._progress.set()
            if self._pause_ms:
                await self._clock.sleep(self._pause_ms)

    async def _register(self, server: str, broker: Registered) -> bool:
        begun_ms = self._clock.now_ms()
        body = registration_body(
            self._table(), self._clock.wall_ms(), self._permission(), self._mappings()
        )
        self._pause_ms = pause_after(self._clock.now_ms() - begun_ms)
        fields = registration_fields(broker, body)
        command = RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=fields, body=body)
        try:
            answer = await self._client.invoke(server, command, self._timeout_ms)
        except RmqhaError as error:
            self._log.log("warning", "registration_failed", name_server=server, reason=str(error))
            return False
        if answer.code != ResponseCode.SUCCESS:
            self._log.log(
                "warning", "registration_refused", name_server=server, code=answer.code,
                remark=answer.remark,
            )  # fmt: skip
            return False
        if broker != self._listed:
            self._listed = broker
            self._log.log("info", "registered", name_server=server, broker_id=broker.broker_id)
        self._on_master(master_known(answer.ext_fields))
        if answer.body:
            self._ordered(server, answer.body)
        return True

    def _ordered(self, server: str, body: bytes | memoryview) -> None:
        try:
            topics = ordered_topics(bytes(body))
        except RemoteProtocolError as error:
            self._log.log("warning", "order_refused", name_server=server, reason=str(error))
            return
        self._on_ordered(topics)

    async def unregister(self) -> None:
        """Leave every name server; failures are logged only, for this broker is going."""
        if self._listed is None:
            return
        await asyncio.gather(*(self._leave(server, self._listed) for server in self._servers))

    async def _leave(self, server: str, broker: Registered) -> None:
        command = RemotingCommand(
            RequestCode.UNREGISTER_BROKER, ext_fields=unregistration_fields(broker)
        )
        try:
            await self._client.invoke(server, command, UNREGISTER_TIMEOUT_MS)
        except RmqhaError as error:
            self._log.log("warning", "unregistration_failed", name_server=server, reason=str(error))
