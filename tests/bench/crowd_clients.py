"""Very many consumers of one group in a process of their own, each with a connection: what the crowd of
``bin/bench waits --phases crowd`` does.

Recipe: ``python -m tests.bench.crowd_clients PORT COUNT``; then a line for each thing to do, answered by
one when it is done.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Awaitable, Callable

from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.loop import run
from rmqha.runtime.aio.net import TcpNetwork
from tests.broker.subscriber import heartbeat, pull_fields

TOPIC, GROUP = "crowd", "Crowd"
POP = {
    "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "maxMsgNums": "1",
    "invisibleTime": "60000", "pollTime": "30000", "bornTime": "0", "initMode": "1",
    "expType": "TAG", "exp": "*",
}  # fmt: skip
SUSPENDED_MS = 2_000
ASKED_AGAIN_S = 1.0
"""How often a Java client shares out its queues at most, whatever it is told."""

QUIET_S = 2.0
"""After so long without a notice everybody knows."""

_ids = itertools.count(1)


class Member:
    """One consumer.

    Attributes:
        answers: how many its own requests of the last kind got.
        found: those of them that brought something.
    """

    def __init__(self, crowd: Crowd, number: int) -> None:
        self._crowd = crowd
        self._name = f"10.0.{number >> 8}.{number & 255}@{number}#{number:016x}"
        self.answers = self.found = 0
        self._asks: asyncio.TimerHandle | None = None
        self._asked_s = 0.0
        self.connection = Connection(
            next(_ids), crowd.clock, RemotingSettings(), on_commands=self._on_commands,
            on_closed=lambda *_: None,
        )  # fmt: skip

    def beat(self) -> None:
        """Send a heartbeat."""
        self._ask(RequestCode.HEART_BEAT, None, heartbeat(self._name, GROUP, TOPIC))

    def pull(self, offset: int, suspended_ms: int) -> None:
        """Ask for what comes next in the queue."""
        fields = pull_fields(GROUP, TOPIC, offset, suspendTimeoutMillis=suspended_ms)
        self._ask(RequestCode.PULL_MESSAGE, {name: str(value) for name, value in fields.items()})

    def pop(self) -> None:
        """Ask for one message."""
        self._ask(RequestCode.POP_MESSAGE, POP)

    def _ask(self, code: int, fields: dict[str, str] | None, body: bytes = b"") -> None:
        self.answers = self.found = 0
        self.connection.send(RemotingCommand(code, next(_ids), ext_fields=fields, body=body))

    def _on_commands(self, _: Connection, commands: list[RemotingCommand]) -> None:
        loop = asyncio.get_running_loop()
        for one in commands:
            if one.is_response:
                self.answers += 1
                self.found += one.code == ResponseCode.SUCCESS
            elif one.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                self._crowd.notices += 1
                self._crowd.noticed_s = loop.time()
                if self._asks is None:
                    at = max(loop.time(), self._asked_s + ASKED_AGAIN_S)
                    self._asks = loop.call_at(at, self._share_queues)

    def _share_queues(self) -> None:
        self._asks, self._asked_s = None, asyncio.get_running_loop().time()
        fields = {"consumerGroup": GROUP}
        self.connection.send(
            RemotingCommand(RequestCode.GET_CONSUMER_LIST_BY_GROUP, next(_ids), ext_fields=fields)
        )


class Crowd:
    """All of them."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.members: list[Member] = []
        self.notices = 0
        self.noticed_s = 0.0

    async def come(self, port: int, count: int) -> None:
        """Connect."""
        network = TcpNetwork()
        for number in range(count):
            one = Member(self, number)
            await network.connect(
                "127.0.0.1", port, lambda one=one: one.connection, timeout_ms=5_000  # type: ignore[misc]
            )  # fmt: skip
            self.members.append(one)

    async def join(self) -> None:
        """Become members at once; done when nobody is told anything any more."""
        for one in self.members:
            one.beat()
        await self._until(lambda: all(one.answers for one in self.members))
        await self._quiet()

    async def leave(self) -> None:
        """Every other one goes at once."""
        for one in self.members[::2]:
            one.connection.abort()
        del self.members[::2]
        await self._quiet()

    async def pull(self) -> None:
        """All wait for the same queue, and ask again once they have an answer."""
        for one in self.members:
            one.pull(1, 60_000)

    async def pulled(self) -> None:
        """Each has what came."""
        await self._until(lambda: all(one.found for one in self.members))

    async def over(self) -> None:
        """All wait in vain, and for as long."""
        for one in self.members:
            one.pull(2, SUSPENDED_MS)
        await self._until(lambda: all(one.answers for one in self.members))

    async def pop(self) -> None:
        """All wait for a message each."""
        for one in self.members:
            one.pop()

    async def popped(self) -> None:
        """Each has one."""
        await self._until(lambda: all(one.found for one in self.members))

    async def _quiet(self) -> None:
        loop = asyncio.get_running_loop()
        self.noticed_s = max(self.noticed_s, loop.time())
        await self._until(lambda: loop.time() - self.noticed_s > QUIET_S)

    async def _until(self, done: Callable[[], bool]) -> None:
        while not done():  # noqa: ASYNC110 - a bench looks from outside
            await asyncio.sleep(0.002)


async def main(port: int, count: int) -> None:
    """Do what is asked for, line by line, until there is none."""
    crowd = Crowd()
    await crowd.come(port, count)
    doings: dict[str, Callable[[], Awaitable[None]]] = {
        name: getattr(crowd, name)
        for name in ("join", "leave", "pull", "pulled", "over", "pop", "popped")
    }
    print("here", flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    while line := (await lines.readline()).decode().strip():
        await doings[line]()
        print(crowd.notices, flush=True)
        crowd.notices = 0


if __name__ == "__main__":
    run(main(*map(int, sys.argv[1:])))
