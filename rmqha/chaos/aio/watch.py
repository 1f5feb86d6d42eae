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
        broken: rules that did not hold.
        now: what the controllers said last.
    """

    def __init__(self, client: ClusterClient, name_server: str) -> None:
        self._client, self._name_server = client, name_server
        self._masters = MastersProperty()
        self.elected: list[Seen] = []
        self.routed: list[Seen] = []
        self.broken: list[str] = []
        self.now: SetInfo | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Look from now on."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._controllers()), loop.create_task(self._routes())]

    async def close(self) -> None:
        """Look no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _controllers(self) -> None:
        while True:
            try:
                info = await self._client.set_info()
            except RmqhaError:
                info = None
            if info is not None:
                self._told(info)
            await asyncio.sleep(LOOK_S)

    def _told(self, info: SetInfo) -> None:
        self.now = info
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
