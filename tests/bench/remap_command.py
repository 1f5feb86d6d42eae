"""A remap by our mqadmin's code, in a process of its own, as mqadmin is one; with times of its calls.

What the command computes does not hold up the producers that are measured, and what it needs to be
imported is there before it begins.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import uvloop

from rmqha.admin.commands import remapping_static_topic
from rmqha.admin.report import Report
from rmqha.admin.spec import Here
from rmqha.client.aio.exchanges import ExchangeClient
from rmqha.client.exchange import Exchange
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork


class _TimedClient(RemotingClient):
    """Notes every call: its code, its address, and when it began and ended."""

    def __init__(self) -> None:
        super().__init__(TcpNetwork(), SystemClock(), RemotingSettings())
        self.calls: list[tuple[int, str, float, float]] = []

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int, *args: Any, **more: Any
    ) -> RemotingCommand:
        """Ask as usual."""
        begun = time.monotonic()
        try:
            return await super().invoke(address, command, timeout_ms, *args, **more)
        finally:
            self.calls.append((command.code, address, begun, time.monotonic()))


async def run(client: RemotingClient, exchange: Exchange[Report]) -> None:
    """Carry a command out to its end.

    Raises:
        RmqhaError: it has failed.
    """
    runner = ExchangeClient(client)
    report = await runner.run(exchange)
    while report.then is not None:
        report = await runner.run(report.then)
    if report.failures:
        raise report.failures[0]


async def remap(server: str, topic: str, target: str) -> dict[str, Any]:
    """Move all queues to one broker set.

    Returns:
        ``begun`` and ``ended``, and ``calls`` with these of their own; of the monotonic clock, in
        seconds.
    """
    client = _TimedClient()
    begun = time.monotonic()
    here = Here(int(time.time() * 1000), 1)
    await run(client, remapping_static_topic.run(
        (server,), topic, (target,), (), None, False, False, here
    ))  # fmt: skip
    ended = time.monotonic()
    await client.close()
    return {"begun": begun, "ended": ended, "calls": client.calls}


class RemapProcess:
    """The process, waiting for :meth:`run`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, server: str, topic: str, target: str) -> RemapProcess:
        """Start it, and wait until it has imported everything."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.remap_command", server, topic, target,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 24,
        )  # fmt: skip
        assert process.stdout is not None
        await process.stdout.readline()
        return cls(process)

    async def run(self) -> dict[str, Any]:
        """Let it remap; what :func:`remap` tells.

        Raises:
            RuntimeError: it has failed; it has said why.
        """
        told, _ = await self._process.communicate(b"\n")
        if self._process.returncode:
            raise RuntimeError("the remap has failed")
        found: dict[str, Any] = json.loads(told)
        return found


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(uvloop.run(remap(sys.argv[1], sys.argv[2], sys.argv[3]))))
