"""The shell around ``StallWatch``: it looks at the page, and speaks with the controllers.

It runs where a broker that stands still does not hold it up: in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqha.base.errors import RmqhaError
from rmqha.base.invariants import unknown_effect
from rmqha.base.machine import Note
from rmqha.broker.membership.aio.asking import ask
from rmqha.broker.membership.events import Ask, Beat
from rmqha.broker.membership.stall_page import StallPage
from rmqha.broker.membership.stall_watch import (
    LOOK_MS,
    Looked,
    LowerFence,
    RaiseFence,
    StallWatch,
    WatchEffect,
    WatchEvent,
    WatchSettings,
)
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.runtime.aio.driver import Driver
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.ports import Clock


class StallWatcher:
    """Watches one broker until it is cancelled.

    Args:
        settings: whom to watch.
        page: what the broker writes.
        client: connections of its own.
        clock: the port; the same clock as the broker's.
        tasks: owns the requests.
        tell: takes notes for people.
    """

    def __init__(
        self, settings: WatchSettings, page: StallPage, client: RemotingClient, clock: Clock,
        tasks: Tasks, tell: Callable[[Note], None],
    ) -> None:  # fmt: skip
        self.core = StallWatch(settings)
        self._driver: Driver[WatchEvent, WatchEffect] = Driver(self.core, clock, self._carry_out)
        self._page = page
        self._client = client
        self._clock = clock
        self._tasks = tasks
        self._tell = tell
        self._beating: set[str] = set()

    async def run(self) -> None:
        """Look, for ever."""
        page = self._page
        while True:
            looked = Looked(page.facts, page.is_fenced, page.is_fence_seen, page.controllers())
            self._driver.give(looked)
            await self._clock.sleep(LOOK_MS)

    def _carry_out(self, effect: WatchEffect) -> None:
        match effect:
            case RaiseFence():
                self._page.raise_fence()
            case LowerFence():
                self._page.lower_fence()
            case Note():
                self._tell(effect)
            case Ask():
                self._tasks.start(self._ask(effect), name=f"ask {effect.code}")
            case Beat(addresses, fields):
                for address in addresses:
                    if address not in self._beating:
                        self._beating.add(address)
                        self._tasks.start(self._beat(address, fields), name=f"beat {address}")
            case _:
                unknown_effect(effect)

    async def _ask(self, effect: Ask) -> None:
        self._driver.give(await ask(self._client, effect))

    async def _beat(self, address: str, fields: dict[str, str]) -> None:
        command = RemotingCommand(RequestCode.BROKER_HEARTBEAT, flag=FLAG_ONEWAY, ext_fields=fields)
        try:
            await self._client.invoke_oneway(address, command)
        except RmqhaError as error:
            facts = {"to": address, "reason": str(error)}
            self._tell(Note("heartbeat_not_sent", "debug", facts))
        finally:
            self._beating.discard(address)
