"""The waits of a loop in which a master and a slave with a million consumer offsets live."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.topics.group_table import GroupConfig
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.cli.process import settle_memory
from rmqha.ha.events import Role
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.frame import encode
from rmqha.remoting.settings import FRAME_BYTES_MAX
from rmqha.testing.aio_cluster import AioCluster
from tests.bench.waiting import waits

TOPICS, GROUPS, QUEUES = 250, 500, 8
GROUPS_OF_317 = 5_000
LOOK_S = 0.02
RECEIVED_BYTES = 1 << 20


async def offsets(root: Path) -> dict[str, float]:
    """Write, tell and copy 1,000,000 offsets; and 317 of 5,000 groups."""
    cluster = await AioCluster.make(
        root, counts=(1, 1, 2), processes=False, seed=1,
        settings=({}, {}, {"flushConsumerOffsetInterval": 3_600_000}),
    )  # fmt: skip
    await cluster.start()
    services = [node.service for node in cluster.of_kind("broker")]
    replicas = [one for one in services if isinstance(one, BrokerReplica)]
    (master,) = [one for one in replicas if one.role is Role.MASTER]
    (slave,) = [one for one in replicas if one.role is Role.SLAVE]
    found = {}
    name = f"{TOPICS * GROUPS * QUEUES:,} consumer offsets"

    async def measured(what: str, work: object) -> None:
        stood, took = await waits(work)  # type: ignore[arg-type]  # coroutines of several results
        found[f"{what}: longest wait, ms"] = stood
        found[f"{what}: it took, ms"] = took

    async def copied(by: int) -> None:
        last = _group(GROUPS - 1), _topic(TOPICS - 1), QUEUES - 1
        while slave.offsets.table.query(*last) != by:  # noqa: ASYNC110 - old releases tell nobody
            await asyncio.sleep(LOOK_S)

    settle_memory()
    for by, what in ((1_000_000, "copied by a slave"), (2_000_000, "changes of all copied")):
        copying = asyncio.create_task(copied(by))
        _fill(master, by)
        await measured(f"{name}: {what}", copying)
        # As if the processes had been started with them.
        settle_memory()
    master.offsets.changed()
    await measured(f"{name}: file written", master.offsets.file.save())
    # The second file is written beside the copy of the first.
    master.offsets.changed()
    await measured(f"{name}: file written again", master.offsets.file.save())
    told = asyncio.to_thread(_ask, master.config.address, RequestCode.GET_ALL_CONSUMER_OFFSET)
    await measured(f"{name}: 43 answered whole", told)
    for number in range(GROUPS_OF_317):
        group = f"few{number:05d}"
        master.groups.table.put(GroupConfig(group), 0)
        for queue_id in range(QUEUES):
            master.offsets.table.commit(group, _topic(number % TOPICS), queue_id, 7, 0)
    for number in range(TOPICS):
        master.topics.table.put(TopicConfig(_topic(number), QUEUES, QUEUES), 0)
    await asyncio.sleep(1)
    told = asyncio.to_thread(_ask, master.config.address, RequestCode.GET_BROKER_CONSUME_STATS)
    await measured(f"317 of {GROUPS_OF_317:,} groups with {QUEUES} queues", told)
    await cluster.close()
    return found


def _topic(number: int) -> str:
    return f"topic{number:04d}"


def _group(number: int) -> str:
    return f"group{number:04d}"


def _fill(master: BrokerReplica, by: int) -> None:
    for topic in range(TOPICS):
        for group in range(GROUPS):
            for queue_id in range(QUEUES):
                master.offsets.table.commit(_group(group), _topic(topic), queue_id, by, 0)


def _ask(address: str, code: RequestCode) -> None:
    """Ask as a slave of Java's does, in a thread that waits for bytes and looks at none.

    Raises:
        SystemExit: there is no answer of this size.
    """
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall(encode(RemotingCommand(code), FRAME_BYTES_MAX))
        left = int.from_bytes(peer.recv(4, socket.MSG_WAITALL), "big")
        buffer = bytearray(RECEIVED_BYTES)
        if left < RECEIVED_BYTES:
            raise SystemExit(f"{code.name}: {peer.recv(left, socket.MSG_WAITALL)!r}")
        while left:
            left -= peer.recv_into(buffer, min(left, RECEIVED_BYTES))
