"""The waits of a master's loop while very much that was to come later is due at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.deferred.aio.master_services import delay_rules
from rmqha.broker.deferred.delays import SCHEDULE_TOPIC, place
from rmqha.broker.deferred.transactions import HALF_TOPIC, half_message
from rmqha.broker.pop.check_points import REVIVE_TOPIC, CheckPoint
from rmqha.broker.topics.group_table import GroupConfig
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.cli.process import settle_memory
from rmqha.store import properties as props
from rmqha.store.record import Message, pack_host
from rmqha.testing.aio_cluster import AioCluster
from tests.bench.waiting import waits

HOST = pack_host("127.0.0.1", 10911)
BODY = b"b" * 100
DELAYED, TIMERS, HALVES, CHECK_POINTS, POPPED = 20_000, 20_000, 5_000, 1_000, 32
DUE_S, ASKED_EVERY_S, LOOK_S = 20, 10, 0.001
APPENDED_AT_ONCE = 100
TOPIC, GROUP = "due", "G"


async def due(root: Path) -> dict[str, float]:
    """Delayed messages, timers, transactions that nobody decides, popped ones that nobody acknowledges."""
    found: dict[str, float] = {}
    for what, (fill, count) in KINDS.items():
        cluster = await AioCluster.make(
            root / what.split()[0], counts=(1, 1, 1), processes=False, seed=1,
            settings=({}, {}, {
                "messageDelayLevel": f"{DUE_S}s", "transactionTimeOut": 1_000, "reviveQueueNum": 1,
                "transactionCheckInterval": ASKED_EVERY_S * 1_000, "transactionCheckMax": 1,
            }),
        )  # fmt: skip
        await cluster.start()
        (master,) = [one.service for one in cluster.of_kind("broker")]
        assert isinstance(master, BrokerReplica)
        master.topics.table.put(TopicConfig(TOPIC, 1, 1), 0)
        master.groups.table.put(GroupConfig(GROUP), 0)
        written = await fill(master)
        settle_memory()
        await _until(written, 1)
        stood, took = await waits(_until(written, count))
        found[f"{count:,} {what}: longest wait, ms"] = stood
        found[f"{count:,} {what}: it took, ms"] = took
        await cluster.close()
    return found


async def _until(written: Callable[[], int], count: int) -> None:
    while written() < count:  # noqa: ASYNC110 - a bench looks from outside
        await asyncio.sleep(LOOK_S)


async def _append(master: BrokerReplica, messages: list[Message]) -> None:
    for first in range(0, len(messages), APPENDED_AT_ONCE):
        for one in messages[first : first + APPENDED_AT_ONCE]:
            master.services.writer.append(one)
        await asyncio.sleep(0)
    await master.store.wait_dispatched(master.store.max_offset)


def _message(**pairs: str) -> Message:
    return Message(TOPIC, 0, BODY, props.encode(pairs), 1_700_000_000_000, HOST, HOST)


def _placed(master: BrokerReplica, message: Message) -> Message:
    stored = place(message, delay_rules(master.config), master.clock.wall_ms())
    assert isinstance(stored, Message)
    return stored


def _length(master: BrokerReplica, topic: str) -> int:
    return master.store.reader.max_offset(topic, 0)


async def _delayed(master: BrokerReplica) -> Callable[[], int]:
    message = _placed(master, _message(DELAY="1"))
    assert message.topic == SCHEDULE_TOPIC
    await _append(master, [message] * DELAYED)
    return lambda: _length(master, TOPIC)


async def _timers(master: BrokerReplica) -> Callable[[], int]:
    due_ms = master.clock.wall_ms() + DUE_S * 1_000
    message = _placed(master, _message(TIMER_DELIVER_MS=str(due_ms)))
    await _append(master, [message] * TIMERS)
    return lambda: _length(master, TOPIC)


async def _halves(master: BrokerReplica) -> Callable[[], int]:
    pairs = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": "U"}
    message = _message(**pairs)
    half = half_message(message, props.by_name(message.properties))
    assert isinstance(half, Message)
    await _append(master, [half] * HALVES)
    # Each is renewed when it is asked about.
    return lambda: _length(master, HALF_TOPIC) - HALVES


async def _popped(master: BrokerReplica) -> Callable[[], int]:
    await _append(master, [_message(TAGS="T")] * POPPED)
    revive, wall_ms = master.pop.revive, master.clock.wall_ms()
    points = [
        CheckPoint(TOPIC, GROUP, 0, 0, wall_ms + number, DUE_S * 1_000, master.config.broker_name,
                   tuple(range(POPPED)))
        for number in range(CHECK_POINTS)
    ]  # fmt: skip
    topic = REVIVE_TOPIC + master.config.cluster_name
    messages = [_placed(master, one.message(topic, 0, HOST, wall_ms)) for one in points]
    await _append(master, messages)
    return lambda: revive.revived


KINDS = {
    "delayed messages": (_delayed, DELAYED),
    "timers": (_timers, TIMERS),
    "transactions that are asked about": (_halves, HALVES),
    "popped messages that come again": (_popped, CHECK_POINTS * POPPED),
}
