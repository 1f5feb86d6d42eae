"""What brokers say of themselves (request 28), for pages that people look at.

Nobody waits for a broker: ``of`` gives what was last heard, and asks again in the background when
that is old. Java's brokers and ours answer alike.
"""

from __future__ import annotations

from collections.abc import Iterable

from rmqha.base.errors import RmqhaError
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.broker_figures import UNKNOWN, Figures, read_figures
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock

ASK_TIMEOUT_MS = 1000
FRESH_MS = 900
OLD_MS = 10_000
BROKERS_MAX = 1000
ASKING_MAX = 50


class BrokerFigures:
    """The last figures of each broker.

    Args:
        client: whose connections are used.
        brokers_max: addresses remembered; more are shown without figures.
    """

    def __init__(
        self, client: RemotingClient, clock: Clock, log: Logger, *, brokers_max: int = BROKERS_MAX
    ) -> None:
        self._client = client
        self._clock = clock
        self._tasks = Tasks(log)
        self._max = brokers_max
        self._heard: dict[str, tuple[int, Figures]] = {}
        self._asked_ms: dict[str, int] = {}
        self._asking: set[str] = set()

    def of(self, addresses: Iterable[str]) -> dict[str, Figures]:
        """What is known of these brokers now; the others are forgotten."""
        now_ms = self._clock.now_ms()
        wanted = list(dict.fromkeys(addresses))[: self._max]
        self._heard = {one: self._heard[one] for one in wanted if one in self._heard}
        self._asked_ms = {one: self._asked_ms[one] for one in wanted if one in self._asked_ms}
        for address in wanted:
            self._ask_if_old(now_ms, address)
        fresh = {one: f for one, (at_ms, f) in self._heard.items() if now_ms - at_ms < OLD_MS}
        return {one: fresh.get(one, UNKNOWN) for one in wanted}

    async def close(self) -> None:
        """Stop asking for figures."""
        await self._tasks.close()

    def _ask_if_old(self, now_ms: int, address: str) -> None:
        asked_ms = self._asked_ms.get(address)
        due = asked_ms is None or now_ms - asked_ms >= FRESH_MS
        if due and address not in self._asking and len(self._asking) < ASKING_MAX:
            self._asked_ms[address] = now_ms
            self._asking.add(address)
            self._tasks.start(self._ask(address), name=f"figures of {address}")

    async def _ask(self, address: str) -> None:
        try:
            request = RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)
            answer = await self._client.invoke(address, request, ASK_TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS:
                self._heard[address] = self._clock.now_ms(), read_figures(answer.body)
        except RmqhaError:
            pass  # shown as a dash
        finally:
            self._asking.discard(address)
