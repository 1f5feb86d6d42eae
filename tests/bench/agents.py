"""Scripted brokers for the benches: they register, are elected and stay alive by heartbeats.

Each set has replica 1 (master) and replica 2. Heartbeats go to every controller node, as those of
real brokers do; all replicas with the same number share one connection a node, as the brokers of a
broker container do. Role notifications end in a listener that reads and forgets.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import orjson

from tests.bench.load import BenchFailed, frame

CLUSTER = "bench"
REPLICAS = (1, 2)
HEARTBEAT_INTERVAL_S = 1.0
HEARTBEAT_TIMEOUT_MS = 10_000
CALL_TIMEOUT_S = 5.0
REGISTERING_MAX = 16
RETRIES_MAX = 40
RETRY_INTERVAL_S = 0.25


class Agents:
    """All replicas of ``sets`` broker sets.

    Args:
        nodes: every controller's address.
        leader: the address of the one that leads.
        sets: how many broker sets.
    """

    def __init__(self, nodes: Sequence[str], leader: str, sets: int) -> None:
        self.names = [f"broker-{number:04d}" for number in range(sets)]
        self._nodes = nodes
        self._leader = leader
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._sink: asyncio.Server | None = None
        self._address = ""

    async def __aenter__(self) -> Self:
        """Register every replica, elect replica 1 of each set, keep all alive."""
        # The base protocol reads and forgets.
        loop = asyncio.get_running_loop()
        self._sink = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        port = self._sink.sockets[0].getsockname()[1]
        self._address = f"127.0.0.1:{port}"
        for node, replica in itertools.product(self._nodes, REPLICAS):
            _, writer = await _connect(node)
            self._writers.append(writer)
            self._tasks.append(asyncio.create_task(self._keep_alive(writer, replica)))
        queue: asyncio.Queue[str] = asyncio.Queue()
        for name in self.names:
            queue.put_nowait(name)
        async with asyncio.TaskGroup() as group:
            for _ in range(REGISTERING_MAX):
                group.create_task(self._register_all(queue))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the heartbeats and close everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()
        if self._sink is not None:
            self._sink.close()

    def heartbeat(self, name: str, replica: int) -> dict[str, object]:
        """The fields of a replica's 904."""
        return {
            "clusterName": CLUSTER,
            "brokerAddr": self._address,
            "brokerName": name,
            "brokerId": replica,
            "epoch": 1,
            "maxOffset": 0,
            "confirmOffset": 0,
            "heartbeatTimeoutMills": HEARTBEAT_TIMEOUT_MS,
            "electionPriority": 2147483647,
        }

    async def _keep_alive(self, writer: asyncio.StreamWriter, replica: int) -> None:
        numbered = enumerate(self.names, 1)
        frames = [frame(904, self.heartbeat(name, replica), i, flag=2) for i, name in numbered]
        batch = b"".join(frames)
        while True:
            writer.write(batch)
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)

    async def _register_all(self, queue: asyncio.Queue[str]) -> None:
        call = Calls(self._leader)
        try:
            while not queue.empty():
                await self._register(call, queue.get_nowait())
        finally:
            call.close()

    async def _register(self, call: Calls, name: str) -> None:
        base = {"clusterName": CLUSTER, "brokerName": name}
        for replica in REPLICAS:
            answer = await call.ask(1012, base)
            if answer["nextBrokerId"] != str(replica):
                raise BenchFailed(f"{name}: id {answer['nextBrokerId']}, {replica} expected")
            check = f"{self._address};{_now_ms()}"
            await call.ask(1013, {**base, "appliedBrokerId": replica, "registerCheckCode": check})
            register = {**base, "brokerId": replica, "brokerAddress": self._address}
            await call.ask(1003, {**register, "invokeTime": _now_ms()})
        elect = {**base, "brokerId": 1, "designateElect": "false", "invokeTime": _now_ms()}
        elected = await call.ask(1002, elect)
        if elected["masterBrokerId"] != "1":
            raise BenchFailed(f"{name}: {elected['masterBrokerId']} was elected, 1 expected")


class Calls:
    """One connection for one call at a time."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._opaques = itertools.count(1)

    async def ask(self, code: int, ext: Mapping[str, object], body: bytes = b"") -> dict[str, str]:
        """Return the ext fields of a successful answer; a busy controller is asked again.

        Raises:
            BenchFailed: it was refused too often.
        """
        refusal: dict[str, Any] = {}
        for _ in range(RETRIES_MAX):
            async with asyncio.timeout(CALL_TIMEOUT_S):
                header = await self._call(code, ext, body)
            if header["code"] == 0:
                return header.get("extFields") or {}
            refusal = header
            await asyncio.sleep(RETRY_INTERVAL_S)
        raise BenchFailed(f"{code} {dict(ext)}: {refusal}")

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()

    async def _call(self, code: int, ext: Mapping[str, object], body: bytes) -> dict[str, Any]:
        if self._streams is None:
            self._streams = await _connect(self._address)
        reader, writer = self._streams
        writer.write(frame(code, ext, next(self._opaques), body=body))
        total, packed = struct.unpack(">II", await reader.readexactly(8))
        rest = await reader.readexactly(total - 4)
        header: dict[str, Any] = orjson.loads(rest[: packed & 0xFFFFFF])
        return header


async def _connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


def _now_ms() -> int:
    return int(time.time() * 1000)
