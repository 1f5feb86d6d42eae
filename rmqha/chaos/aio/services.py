"""Delays, timers, transactions, pops and locks, used while a cell's faults go on.

The clients are those of the simulator (``sim/service_lives.py``), in front of real processes: each
request goes to the master that the name server names, and whose process that was is noted, for a lock
is a process's own. A producer that is asked how transactions ended shows itself to every new master.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable

from rmqha.base.errors import ConnectFailed, InvariantBroken, RmqhaError
from rmqha.base.ids import ConnectionId
from rmqha.chaos.aio.watch import RoutedClient
from rmqha.client.pull import Pulled, is_pulled, pull_request
from rmqha.client.routes import QueueKey
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.ports import Clock, Network
from rmqha.sim.service_lives import (
    LEVELS,
    TIMER_PRECISION_MS,
    Process,
    ServiceLives,
)
from rmqha.sim.service_reads import PRODUCERS, SERVED, records_of
from rmqha.sim.service_swarm import SERVED as EVERY_SERVICE
from rmqha.testing.settings import BROKER_NAME

SETTINGS = {
    "messageDelayLevel": LEVELS,
    "timerPrecisionMs": TIMER_PRECISION_MS,
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    "transactionCheckMax": 1_000,
}
"""Of brokers, so that what was promised comes within a round."""
ASK_MS = 1_500
CONNECT_MS = 500
BEAT_S = 0.5
LOOK_S = 0.1
AT_THE_END = 1
"""Of what is to happen: that the services were checked."""
READER = "rmqha_chaos_services"
PULLED_MAX = 32

ProcessOf = Callable[[str], int]
"""The process behind a broker's address; 0 for none."""


class Services:
    """All of these clients of one cell.

    Attributes:
        happened: what was acknowledged, asked, popped and read, counted.
        broken: rules that did not hold.

    Args:
        client: believes the name server.
        network, clock: the ports.
        process_of: see above.
        seed: for what the clients choose.
    """

    def __init__(
        self,
        client: RoutedClient,
        network: Network,
        clock: Clock,
        process_of: ProcessOf,
        seed: int,
    ) -> None:
        self.happened: Counter[str] = Counter()
        self.broken: list[str] = []
        self._client, self._network, self._clock = client, network, clock
        self._process_of = process_of
        self._ids = itertools.count(1)
        self._master: str | None = None
        self._asked: Connection | None = None
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []
        self._checks: set[asyncio.Task[None]] = set()
        dice = random.Random(f"services {seed}")
        self._lives = ServiceLives(
            BROKER_NAME, self._ask, lambda: clock.now_ms() / 1000, dice,
            lambda what: self.happened.update([what]), clock.wall_ms,
        )  # fmt: skip

    def start(self) -> None:
        """Use all services from now on."""
        works = dict(self._lives.tasks(lambda: self._is_over))
        works["transaction checks"] = self._be_asked()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._guarded(work), name=name) for name, work in works.items()
        ]

    async def finish(self, unused_s: float = 0.0) -> None:
        """Send no more, and wait for all that was promised; what is missing is in ``broken``.

        Args:
            unused_s: so long services go on that were not all used yet.
        """
        until_ms = self._clock.now_ms() + unused_s * 1000
        while len(self._unused()) > AT_THE_END and self._clock.now_ms() < until_ms:
            await self._clock.sleep(LOOK_S * 1000)
        self._is_over = True
        await asyncio.gather(*self._tasks[:-1])  # all but the one that waits to be asked
        await self._guarded(self._lives.finish(self._stored, lambda: 0))
        await self.close()
        if unused := self._unused():
            self.broken.append(f"services of which nothing came: {', '.join(unused)}")

    def _unused(self) -> list[str]:
        """What has not happened yet of all that is to happen."""
        return [name for name in EVERY_SERVICE if not self.happened[name]]

    async def close(self) -> None:
        """Stop at once."""
        self._is_over = True
        tasks = (*self._tasks, *self._checks)
        self._tasks = []
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        self.broken += [f"a client broke: {one!r}" for one in ends if isinstance(one, Exception)]
        if self._asked is not None:
            self._asked.close()

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except InvariantBroken as error:
            self.broken.append(str(error))

    async def _process(self) -> tuple[str, Process] | None:
        """The master's address, and its process."""
        address = self._master or await self._client.master()
        self._master = address
        return None if address is None else (address, (address, self._process_of(address)))

    async def _ask(self, command: RemotingCommand) -> tuple[RemotingCommand | None, Process]:
        found = await self._process()
        if found is None:
            return None, ("", 0)
        address, process = found
        try:
            answer = await self._client.ask(
                address, command.code, command.ext_fields, bytes(command.body), ASK_MS
            )
        except RmqhaError:
            self._master = None
            return None, process
        if answer.code:
            self._master = None  # it may be master no more: look again
        return (answer if self._process_of(address) == process[1] else None), process

    # -- what consumers can read ---------------------------------------------------------------------

    async def _stored(self) -> dict[bytes, int]:
        """When each message of the services' topic was stored first, read anew each time."""
        found: dict[bytes, int] = {}
        offset = 0
        while True:
            address = await self._client.master()
            if address is None:
                return found
            key = QueueKey(SERVED, BROKER_NAME, 0)
            asked = pull_request(READER, key, offset, PULLED_MAX)
            try:
                answer = await self._client.ask(
                    address, asked.code, asked.ext_fields, bytes(asked.body), ASK_MS
                )
            except RmqhaError:
                return found
            if not is_pulled(answer):
                return found
            pulled = Pulled.of(answer, offset)
            for record in records_of(bytes(pulled.body)):
                found.setdefault(bytes(record.body), record.store_timestamp)
            if pulled.next_offset <= offset:
                return found
            offset = pulled.next_offset

    # -- check backs ---------------------------------------------------------------------------------

    async def _be_asked(self) -> None:
        """Be a producer of the master, whoever that is, and answer what it asks."""
        known: Process | None = None
        beaten_ms = 0.0
        while True:
            await asyncio.sleep(LOOK_S)
            found = await self._process()
            if found is None:
                continue
            if found[1] != known or self._asked is None or self._asked.is_closing:
                known = found[1] if await self._introduce(found[0]) else None
            elif self._clock.now_ms() - beaten_ms > BEAT_S * 1000:
                beaten_ms = self._clock.now_ms()
                self._beat()

    async def _introduce(self, address: str) -> bool:
        if self._asked is not None:
            self._asked.close()
        connection = self._asked = Connection(
            ConnectionId(next(self._ids)), self._clock, RemotingSettings(),
            on_commands=self._heard, on_closed=lambda one, error: None,
        )  # fmt: skip
        host, _, port = address.rpartition(":")
        try:
            await self._network.connect(host, int(port), lambda: connection, timeout_ms=CONNECT_MS)
        except ConnectFailed:
            self._asked = None
            return False
        self._beat()
        return True

    def _beat(self) -> None:
        body = b'{"clientID":"p","producerDataSet":[{"groupName":"%s"}],"consumerDataSet":[]}'
        if self._asked is not None:
            self._asked.send(
                RemotingCommand(RequestCode.HEART_BEAT, 1, body=body % PRODUCERS.encode())
            )

    def _heard(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        for command in commands:
            if command.code == RequestCode.CHECK_TRANSACTION_STATE and not command.is_response:
                task = asyncio.get_running_loop().create_task(
                    self._guarded(self._lives.answer_check(command))
                )
                self._checks.add(task)
                task.add_done_callback(self._checks.discard)
