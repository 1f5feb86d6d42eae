"""For how long a broker of its own process answers nothing while more is sent than its disk takes.

A part of ``bin/bench waits``, for root: a set of one replica whose store is on a slow disk, sends that
are always in flight, and beside them a question that needs no disk, asked again and again.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from rmqha.base.errors import RmqhaError
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.testing.cluster import RmqCluster
from tests.bench.pressure_waits import slow_disk

TOPIC = "pressed"
QUEUES = 4
BODY = b"b" * 2_000
SENDERS = 200
SECONDS = 30.0
ASK_EVERY_S = 0.005
LONG_MS = (20, 100)
"""The second is half of what the kernel lets a writer wait for at a time; no core is lost for so long."""
TIMEOUT_MS = 30_000
LOG_FILE_BYTES = 512 << 20


class Load:
    """Sends and questions to one broker, with what became of them.

    Args:
        delayed: every second message is for later, so the broker writes it twice.
    """

    def __init__(self, client: RemotingClient, address: str, *, delayed: bool) -> None:
        self._client = client
        self._delayed = delayed
        self._address = address
        self._end = time.monotonic() + SECONDS
        self.acked = self.refused = 0
        self.sends_ms: list[float] = []
        self.answers_ms: list[float] = []

    async def run(self) -> None:
        """All of it, for so long."""
        await asyncio.gather(self._ask(), *(self._send(one) for one in range(SENDERS)))

    async def _send(self, number: int) -> None:
        later = "DELAY\x011\x02" if self._delayed and number % 2 else ""
        fields = {
            "a": "PG", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(number % QUEUES),
            "f": "0", "g": "0", "h": "0", "i": f"KEYS\x01k{number}\x02{later}", "j": "0",
        }  # fmt: skip
        while time.monotonic() < self._end:
            code, took_ms = await self._timed(RequestCode.SEND_MESSAGE_V2, fields, BODY)
            self.acked += code == ResponseCode.SUCCESS
            self.refused += code != ResponseCode.SUCCESS
            self.sends_ms.append(took_ms)

    async def _ask(self) -> None:
        fields = {"topic": TOPIC, "queueId": "0"}
        while time.monotonic() < self._end:
            _, took_ms = await self._timed(RequestCode.GET_MAX_OFFSET, fields, b"")
            self.answers_ms.append(took_ms)
            await asyncio.sleep(ASK_EVERY_S)

    async def _timed(self, code: int, fields: dict[str, str], body: bytes) -> tuple[int, float]:
        began = time.perf_counter()
        command = RemotingCommand(code, ext_fields=dict(fields), body=body)
        try:
            found = (await self._client.invoke(self._address, command, TIMEOUT_MS)).code
        except RmqhaError:
            found = -1
        return found, (time.perf_counter() - began) * 1000


async def pressed_broker(root: Path, *, delayed: bool) -> dict[str, float]:
    """Send more than the disk of a broker takes, and ask meanwhile.

    Args:
        delayed: half of it for a second later.
    """
    with slow_disk(root / "broker-0"):
        cluster = await asyncio.to_thread(
            RmqCluster, root, replicas=1, processes=True,
            broker_settings={"mappedFileSizeCommitLog": LOG_FILE_BYTES},
        )  # fmt: skip
        try:
            await asyncio.to_thread(cluster.start)
            await asyncio.to_thread(lambda: cluster.produce(topic=TOPIC))
            client = RemotingClient(TcpNetwork(), SystemClock(), RemotingSettings())
            load = Load(client, cluster.brokers[0].address, delayed=delayed)
            await load.run()
            await client.close()
        finally:
            await asyncio.to_thread(cluster.close)
    name = "a broker to which more is sent than its disk takes"
    name += ", half of it for later" if delayed else ""
    return {
        f"{name}: questions": len(load.answers_ms),
        **{
            f"{name}: of these more than {limit} ms": sum(t > limit for t in load.answers_ms)
            for limit in LONG_MS
        },
        f"{name}: the longest, ms": max(load.answers_ms),
        f"{name}: messages acknowledged": load.acked,
        f"{name}: messages refused": load.refused,
        f"{name}: the longest send, ms": max(load.sends_ms),
    }
