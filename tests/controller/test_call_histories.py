"""Three real controllers on loopback under kills and partitions: their answers have one order."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from rmqha.base.errors import RmqhaError
from rmqha.remoting.codes import RequestCode
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.logs import Logger
from rmqha.sim.broker_agent import AgentSettings, BrokerAgent
from rmqha.sim.calls import CallLog
from rmqha.testing.aio_cluster import AioCluster
from rmqha.testing.disks import NodeDisk, SlowDisk
from rmqha.testing.life import Life, SeededRng
from rmqha.testing.links import Links
from rmqha.testing.sockets import LOOPBACK, NodeNetwork, Reserved

NAME = "broker-a"
ASKERS = 6
ROUNDS = 6
QUICK = AgentSettings(
    heartbeat_ms=100, heartbeat_timeout_ms=1000, find_leader_ms=100, poll_ms=50, sync_ms=50,
    sync_lost_ms=300, retry_ms=50, invoke_ms=400,
)  # fmt: skip


@contextlib.asynccontextmanager
async def _agents(
    folder: Path, controllers: tuple[str, ...], calls: CallLog
) -> AsyncIterator[list[BrokerAgent]]:
    reserved, life = Reserved(), Life()
    agents = [
        BrokerAgent(
            cluster="c", name=NAME, host=LOOPBACK, port=reserved.take(), controllers=controllers,
            store=str(folder / f"b{number}"), clock=SystemClock(), rng=SeededRng(str(number)),
            disk=NodeDisk(SlowDisk(), life), network=NodeNetwork(Links(), life, reserved),
            log=Logger(broker=number), settings=QUICK, calls=calls,
        )
        for number in range(3)
    ]  # fmt: skip
    try:
        for one in agents:
            await one.start()
        yield agents
    finally:
        await asyncio.gather(*(one.stop() for one in agents))
        reserved.close()


async def _asks_on(agent: BrokerAgent, rng: SeededRng) -> None:
    """Reads, elections and alters, one after another, with what this broker believes."""
    who = {"clusterName": "c", "brokerName": NAME}
    while True:
        broker_id = {"brokerId": str(rng.randint(1, 3))}
        epochs = {"masterBrokerId": str(agent.broker_id), "masterEpoch": str(agent.master_epoch)}
        members = {"syncStateSet": sorted({agent.broker_id, rng.randint(1, 3)}),
                   "syncStateSetEpoch": agent.sync_state_set_epoch}  # fmt: skip
        asks = [
            (RequestCode.CONTROLLER_GET_REPLICA_INFO, who, b""),
            (RequestCode.CONTROLLER_GET_REPLICA_INFO, who, b""),
            (RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, who, b""),
            (RequestCode.CONTROLLER_ELECT_MASTER,
             {**who, **broker_id, "designateElect": "true"}, b""),
            (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, {**who, **epochs}, orjson.dumps(members)),
        ]  # fmt: skip
        code, fields, body = asks[rng.randint(0, len(asks) - 1)]
        with contextlib.suppress(RmqhaError):
            await agent.ask(code, fields, body)
        await asyncio.sleep(0.002)


async def _until(what: object, done: object, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():  # type: ignore[operator]  # a function without arguments
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_answers_under_kills_and_partitions_of_the_leader_have_one_order(
    tmp_path: Path,
) -> None:
    """A stale read, a lost alter, or an id or epoch given twice would part the brokers of a set."""
    cluster = await AioCluster.make(
        tmp_path, counts=(3, 0, 0), processes=False, seed=5, settings=({}, {}, {})
    )
    calls = CallLog(time.monotonic)
    addresses = tuple(node.place.address for node in cluster.of_kind("controller"))
    try:
        await cluster.start()
        async with _agents(tmp_path, addresses, calls) as agents:
            await _until("all agents have roles", lambda: all(a.role != "starting" for a in agents))
            askers = [
                asyncio.create_task(_asks_on(agents[n % 3], SeededRng(f"asker {n}")))
                for n in range(ASKERS)
            ]
            for number in range(ROUNDS):
                await _break_leader(cluster, calls, kill=number % 2 == 0)
            for one in askers:
                one.cancel()
            await asyncio.gather(*askers, return_exceptions=True)
            epochs = {agent.master_epoch for agent in agents}
    finally:
        await cluster.close()
    calls.check()
    assert calls.tally.given_up == 0
    assert calls.tally.calls > 300
    assert max(epochs) > 3, "hardly anything was elected"


async def _break_leader(cluster: AioCluster, calls: CallLog, *, kill: bool) -> None:
    leader = await cluster.wait_for_leader()
    before = len(calls.history(NAME))
    others = [node for node in cluster.of_kind("controller") if node is not leader]
    if kill:
        await cluster.kill(leader)
    else:
        await cluster.partition(leader, others)
    await _until("calls go on", lambda: len(calls.history(NAME)) > before + 60)
    await cluster.heal()
    await cluster.wait_for_leader()
