"""What servers say of themselves, for pages that people look at.

Nobody waits for them: ``of`` gives what was last heard, and asks again in the background when that
is old. Java's brokers and ours answer 28 alike; where a status page is, only ours say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from rmqha.base.errors import RmqhaError
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.broker_figures import STATUS_PAGE, UNKNOWN, Figures, read_figures
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


AnswerT = TypeVar("AnswerT")


class Asked(Generic[AnswerT]):
    """The last answer of each server.

    Args:
        client: whose connections are used.
        code: what they are asked.
        read: takes an answer apart.
        unknown: stands for no answer.
        servers_max: addresses remembered; more are shown without what they say.
    """

    def __init__(
        self,
        client: RemotingClient,
        clock: Clock,
        log: Logger,
        code: RequestCode,
        read: Callable[[RemotingCommand], AnswerT],
        unknown: AnswerT,
        *,
        servers_max: int = BROKERS_MAX,
    ) -> None:
        self._client = client
        self._code = code
        self._read = read
        self._unknown = unknown
        self._clock = clock
        self._tasks = Tasks(log)
        self._max = servers_max
        self._heard: dict[str, tuple[int, AnswerT]] = {}
        self._asked_ms: dict[str, int] = {}
        self._asking: set[str] = set()

    def of(self, addresses: Iterable[str]) -> dict[str, AnswerT]:
        """What is known of these servers now; the others are forgotten."""
        now_ms = self._clock.now_ms()
        wanted = list(dict.fromkeys(addresses))[: self._max]
        self._heard = {one: self._heard[one] for one in wanted if one in self._heard}
        self._asked_ms = {one: self._asked_ms[one] for one in wanted if one in self._asked_ms}
        for address in wanted:
            self._ask_if_old(now_ms, address)
        fresh = {one: f for one, (at_ms, f) in self._heard.items() if now_ms - at_ms < OLD_MS}
        return {one: fresh.get(one, self._unknown) for one in wanted}

    async def close(self) -> None:
        """Stop asking servers in the background."""
        await self._tasks.close()

    def _ask_if_old(self, now_ms: int, address: str) -> None:
        asked_ms = self._asked_ms.get(address)
        due = asked_ms is None or now_ms - asked_ms >= FRESH_MS
        if due and address not in self._asking and len(self._asking) < ASKING_MAX:
            self._asked_ms[address] = now_ms
            self._asking.add(address)
            self._tasks.start(self._ask(address), name=f"{self._code.name} of {address}")

    async def _ask(self, address: str) -> None:
        try:
            request = RemotingCommand(self._code)
            answer = await self._client.invoke(address, request, ASK_TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS:
                self._heard[address] = self._clock.now_ms(), self._read(answer)
        except RmqhaError:
            pass  # shown as a dash
        finally:
            self._asking.discard(address)


def figures_of_brokers(client: RemotingClient, clock: Clock, log: Logger) -> Asked[Figures]:
    """The figures of brokers (28)."""
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    return Asked(client, clock, log, code, lambda one: read_figures(one.body), UNKNOWN)


def pages_of(
    client: RemotingClient, clock: Clock, log: Logger, code: RequestCode
) -> Asked[str | None]:
    """Where controllers (1005) or name servers (319) have their status pages."""
    return Asked(client, clock, log, code, _page, None)


def _page(answer: RemotingCommand) -> str | None:
    return (answer.ext_fields or {}).get(STATUS_PAGE)
