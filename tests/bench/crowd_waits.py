"""The waits of a master's loop while a crowd of consumers does the same at once."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.topics.group_table import GroupConfig
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.cli.process import settle_memory
from rmqha.store.record import Message, pack_host
from rmqha.testing.aio_cluster import AioCluster
from tests.bench.crowd_clients import GROUP, TOPIC
from tests.bench.waiting import waits

HOST = pack_host("127.0.0.1", 10911)
CROWDS = (200, 1_000, 2_000)
WAITING_MAX = 1_000
"""Pops of one group and topic that a broker holds, by default a few more."""


async def crowd(root: Path) -> dict[str, float]:
    """One group of several sizes."""
    found: dict[str, float] = {}
    for count in CROWDS:
        cluster = await AioCluster.make(
            root / str(count), counts=(1, 1, 1), processes=False, seed=1, settings=({}, {}, {})
        )
        await cluster.start()
        (master,) = [one.service for one in cluster.of_kind("broker")]
        assert isinstance(master, BrokerReplica)
        master.topics.table.put(TopicConfig(TOPIC, 1, 1), 0)
        master.groups.table.put(GroupConfig(GROUP), 0)
        clients = await _clients(master.config.port, count)
        try:
            await _all(master, clients, count, found)
        finally:
            clients.kill()
            await clients.wait()
            await cluster.close()
    return found


async def _clients(port: int, count: int) -> Process:
    clients = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.crowd_clients", str(port), str(count),
        stdin=PIPE, stdout=PIPE,
    )  # fmt: skip
    await _line(clients)
    return clients


async def _all(
    master: BrokerReplica, clients: Process, count: int, found: dict[str, float]
) -> None:
    settle_memory()
    for what, name in (("join", "join a group at once"), ("leave", "half of them leave")):
        stood, _ = await waits(_do(clients, what))
        found[f"{count:,} consumers, {name}: longest wait, ms"] = stood
        found[f"{count:,} consumers, {name}: notices"] = float(_notices[-1])
    left = count - count // 2
    _append(master)
    await master.store.wait_dispatched(master.store.max_offset)
    await _do(clients, "pull")
    await _until(lambda: len(master._pull.waiting) == left)
    _append(master)
    stood, _ = await waits(_do(clients, "pulled"))
    found[f"a message for {left:,} that wait for it: longest wait, ms"] = stood
    stood, _ = await waits(_do(clients, "over"))
    found[f"{left:,} wait in vain, from one moment to another: longest wait, ms"] = stood
    if left > WAITING_MAX:
        return
    await _do(clients, "pop")
    waiting = left - 2  # the two messages of before are somebody's
    await _until(lambda: master.pop.pops.held_count == waiting)

    async def popped() -> None:
        for _ in range(waiting):
            _append(master)
            await asyncio.sleep(0.001)
        await _do(clients, "popped")

    stood, took = await waits(popped())
    found[f"{waiting:,} pops wait, and a message comes for each: longest wait, ms"] = stood
    found[f"{waiting:,} pops wait, and a message comes for each: it took, ms"] = took


_notices: list[int] = []


async def _do(clients: Process, what: str) -> None:
    assert clients.stdin is not None
    clients.stdin.write(f"{what}\n".encode())
    _notices.append(int(await _line(clients)))


async def _line(clients: Process) -> str:
    assert clients.stdout is not None
    line = (await clients.stdout.readline()).decode().strip()
    assert line, "the clients have ended"
    return line


def _append(master: BrokerReplica) -> None:
    master.services.writer.append(Message(TOPIC, 0, b"b" * 100, b"", 1_700_000_000_000, HOST, HOST))


async def _until(done: Callable[[], bool]) -> None:
    while not done():  # noqa: ASYNC110 - a bench looks from outside
        await asyncio.sleep(0.001)
