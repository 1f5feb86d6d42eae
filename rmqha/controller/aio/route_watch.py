"""Sees when the name servers name a new master, so that its slaves may be told.

A slave asks its name servers where to replicate from as soon as it hears of an election, and goes
by what they say for a long time. The controller does not know the name servers; the new master
does, and tells (26 GET_BROKER_CONFIG). They are then asked (901 GET_BROKER_MEMBER_GROUP) until
each that answers has the new master under id 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rmqha.auth.registered import ProvenAddresses
from rmqha.base.errors import ConfigInvalid, RemoteProtocolError, RmqhaError
from rmqha.controller.metadata.messages import (
    RouteFollowed,
    RouteUnknown,
    RouteUpdated,
    WatchRoute,
)
from rmqha.remoting import fastjson
from rmqha.remoting.address import parse_address, split_addresses
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock
from rmqha.runtime.properties import parse_properties

ASK_TIMEOUT_MS = 1000
PAUSE_FIRST_MS = 10
PAUSE_MAX_MS = 100
WATCHES_MAX = 256
NAME_SERVERS_MAX = 16
MASTER_ID = "0"

CONFIG_BYTES_MAX = 128 * 1024
"""Of a broker's answer: ten times what Java's has, and read in 40 ms. The leader reads it in one turn
of its loop, and whoever registered that broker chose its size: 16 MB took 9 s."""

MEMBERS_BYTES_MAX = 32 * 1024
"""Of a name server's: some hundred brokers of one set, for all name servers may answer at once."""


class RouteWatch:
    """The watches of one controller, one a broker set.

    Args:
        client: for brokers and name servers; signs nothing by itself.
        proven: the brokers that are sent a signature, and the name servers that these name.
        clock: for pauses.
        log: for what people want to know.
        give: takes the result.
    """

    def __init__(
        self,
        client: RemotingClient,
        proven: ProvenAddresses,
        clock: Clock,
        log: Logger,
        give: Callable[[RouteFollowed | RouteUpdated | RouteUnknown], None],
    ) -> None:
        self._client = client
        self._proven = proven
        self._clock = clock
        self._log = log
        self._give = give
        self._tasks = Tasks(log)
        self._running: dict[str, asyncio.Task[None]] = {}

    def watch(self, wanted: WatchRoute) -> None:
        """Begin; an older watch of the same set ends without a result."""
        older = self._running.pop(wanted.broker_name, None)
        if older is not None:
            older.cancel()
        if len(self._running) >= WATCHES_MAX:
            self._give(RouteUnknown(wanted.broker_name, wanted.master_epoch))
            return
        name = wanted.broker_name
        task = self._tasks.start(self._watch(wanted), name=f"route of {name}")
        self._running[name] = task
        task.add_done_callback(lambda done: self._ended(name, done))

    async def close(self) -> None:
        """End all watches."""
        await self._tasks.close()

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        if self._running.get(name) is task:
            del self._running[name]

    async def _watch(self, wanted: WatchRoute) -> None:
        started_ms = self._clock.now_ms()
        try:
            seen = await self._wait_for_route(wanted, started_ms + wanted.timeout_ms)
        except (RmqhaError, ConfigInvalid) as error:
            seen, reason = False, str(error)
        else:
            reason = "not in time"
        waited_ms = self._clock.now_ms() - started_ms
        facts = {"broker_name": wanted.broker_name, "master_epoch": wanted.master_epoch}
        if seen:
            self._log.log("info", "master_route_seen", **facts, waited_ms=waited_ms)
            self._give(RouteUpdated(wanted.broker_name, wanted.master_epoch))
        else:
            self._log.log(
                "info", "master_route_unknown", **facts, waited_ms=waited_ms, reason=reason
            )
            self._give(RouteUnknown(wanted.broker_name, wanted.master_epoch))

    async def _wait_for_route(self, wanted: WatchRoute, deadline_ms: int) -> bool:
        waiting = await self._name_servers(wanted.master_address)
        answered = False
        pause_ms = PAUSE_FIRST_MS
        while True:
            shown = await asyncio.gather(*(self._shows(one, wanted) for one in waiting))
            if not answered and any(one is not None for one in shown):
                answered = True
                self._give(RouteFollowed(wanted.broker_name, wanted.master_epoch))
            # A name server that is away is not asked by slaves either.
            waiting = [one for one, shows in zip(waiting, shown, strict=True) if shows is False]
            if not waiting:
                if not answered:
                    raise RemoteProtocolError("no name server answers")
                return True
            if self._clock.now_ms() + pause_ms >= deadline_ms:
                return False
            await self._clock.sleep(pause_ms)
            pause_ms = min(PAUSE_MAX_MS, pause_ms * 2)

    async def _name_servers(self, broker: str) -> list[str]:
        """Whom this broker registers with.

        Raises:
            RmqhaError: it does not say, or does not answer.
        """
        request = RemotingCommand(RequestCode.GET_BROKER_CONFIG)
        self._proven.sign(broker, request)
        answer = await self._client.invoke(broker, request, ASK_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise RemoteProtocolError(f"{broker} does not show its config: {answer.remark}")
        _check_size(answer.body, CONFIG_BYTES_MAX, broker)
        values = parse_properties(answer.body.decode("utf-8", errors="replace"))
        found = split_addresses(values.get("namesrvAddr", ""))[:NAME_SERVERS_MAX]
        if not found:
            raise RemoteProtocolError(f"{broker} names no name server")
        for address in found:
            parse_address(address)
        return found

    async def _shows(self, name_server: str, wanted: WatchRoute) -> bool | None:
        """Whether it names the new master; None when it cannot be asked."""
        fields = {"clusterName": wanted.cluster_name, "brokerName": wanted.broker_name}
        request = RemotingCommand(RequestCode.GET_BROKER_MEMBER_GROUP, ext_fields=fields)
        self._proven.sign(wanted.master_address, request)
        try:
            answer = await self._client.invoke(name_server, request, ASK_TIMEOUT_MS)
            if answer.code != ResponseCode.SUCCESS:
                return None
            _check_size(answer.body, MEMBERS_BYTES_MAX, name_server)
            return _master_address(answer.body) == wanted.master_address
        except RmqhaError:
            return None


def _check_size(body: bytes, most: int, who: str) -> None:
    """See that an answer is not too long to be read.

    Raises:
        RemoteProtocolError: it is.
    """
    if len(body) > most:
        raise RemoteProtocolError(f"{who} answers with {len(body)} bytes, {most} are read at most")


def _master_address(body: bytes) -> str | None:
    """The address under id 0 in ``{"brokerMemberGroup":{"brokerAddrs":{0:"host:port"}}}``."""
    members = fastjson.loads(body)
    group = members.get("brokerMemberGroup") if isinstance(members, dict) else None
    addresses = group.get("brokerAddrs") if isinstance(group, dict) else None
    return addresses.get(MASTER_ID) if isinstance(addresses, dict) else None
