"""What an outsider sees of a broker set, many times a second: its master, and the route to it."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from rmqha.base.errors import InvariantBroken, RmqhaError
from rmqha.base.ids import BrokerId
from rmqha.testing.client import ClusterClient, SetInfo
from rmqha.testing.settings import BROKER_NAME
from rmqha.verify.masters import MastersProperty

LOOK_S = 0.01


class Seen(NamedTuple):
    """A change, and when it was seen."""

    at_ms: int
    value: str


class RoutedClient(ClusterClient):
    """A client that believes name servers alone, as producers and consumers do."""

    async def master(self) -> str | None:
        """The master by the first name server."""
        listed = await self.routed(self._plan.name_servers[0].address)
        return listed.get(0)


class Watch:
    """Notes elections and routes, and holds the controllers to the rules of masters.

    Attributes:
        elected: masters' addresses, with their epochs, as the controllers named them.
        routed: the same by the name server.
        broken: rules that did not hold; also, that nobody looks any more.
        now: what the controllers said last; None when nobody of them answers.
    """

    def __init__(self, client: ClusterClient, name_server: str) -> None:
        self._client, self._name_server = client, name_server
        self._masters = MastersProperty()
        self.elected: list[Seen] = []
        self.routed: list[Seen] = []
        self.broken: list[str] = []
        self.now: SetInfo | None = None
        self._asked_ms = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Look from now on."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._controllers(), name="controllers"),
            loop.create_task(self._routes(), name="routes"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Look no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def is_in_sync(self, replicas: int, since_ms: int) -> bool:
        """Whether so many are in sync under a master, by an answer to what was asked since then."""
        now = self.now
        if now is None or self._asked_ms < since_ms or now.master_address is None:
            return False
        return now.master_id in now.sync_state_set and len(now.sync_state_set) == replicas

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Somebody looks no more: what was seen last is not known to be so, nor any rule kept."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.now = None
            self.broken.append(f"nobody watches the {task.get_name()} any more: {error!r}")

    async def _controllers(self) -> None:
        while True:
            asked_ms = self._client.clock.now_ms()
            try:
                info = await self._client.set_info()
            except RmqhaError:
                info = None
            self._told(info, asked_ms)
            await asyncio.sleep(LOOK_S)

    def _told(self, info: SetInfo | None, asked_ms: int) -> None:
        self.now, self._asked_ms = info, asked_ms
        if info is None:
            return
        if info.master_id is None:
            return
        value = f"{info.master_address} {info.master_epoch}"
        if self.elected and self.elected[-1].value == value:
            return
        self.elected.append(Seen(self._client.clock.now_ms(), value))
        try:
            self._masters.observe(BROKER_NAME, info.master_epoch, BrokerId(info.master_id))
        except InvariantBroken as error:
            self.broken.append(str(error))

    async def _routes(self) -> None:
        while True:
            listed = await self._client.routed(self._name_server)
            master = listed.get(0, "")
            if master and (not self.routed or self.routed[-1].value != master):
                self.routed.append(Seen(self._client.clock.now_ms(), master))
            await asyncio.sleep(LOOK_S)


def first_since(seen: list[Seen], moment_ms: int) -> int | None:
    """How long after a moment the first change since was seen."""
    return next((one.at_ms - moment_ms for one in seen if one.at_ms >= moment_ms), None)
