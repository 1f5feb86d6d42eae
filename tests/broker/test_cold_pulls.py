"""Pulls of messages that are in no memory: others are served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rmqha.broker.pull.aio import pull_requests as pull_processor
from rmqha.ha.events import Role
from rmqha.remoting.command import RemotingCommand
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of

READ_MS = 400.0


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReplicaCluster]:
    """A set whose log counts as long from its first byte on, with messages in it."""
    monkeypatch.setattr(pull_processor, "COLD_BYTES", -1)
    one = ReplicaCluster(seed=31, replicas=2, slaveReadEnable="true")
    one.boot_all()
    one.until(one.in_sync, "SyncStateSet of two")
    one.send_many(4)
    one.run_for(500)
    yield one
    one.close()


def fields() -> dict[str, str]:
    """Of a pull of the first queue from its begin."""
    return {
        "consumerGroup": "G", "topic": TOPIC, "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip


def pull(cluster: ReplicaCluster) -> RemotingCommand:
    """One pull, answered."""
    return cluster.ask(master_of(cluster).config.address, 11, fields())


def test_pull_when_cold_then_it_is_answered_after_the_read_and_others_before(
    cluster: ReplicaCluster,
) -> None:
    """The loop stood still for it: 34 ms for everybody."""
    master = master_of(cluster)
    hot = pull(cluster)
    cluster.disks[master.config.host].mood.read_ms = READ_MS
    begun_s = cluster.loop.time()
    cluster.ask_later(master.config.address, 11, fields())
    assert cluster.send(7).code == 0  # type: ignore[union-attr]  # it answers
    assert (cluster.loop.time() - begun_s) * 1000 < READ_MS
    cold = pull(cluster)
    assert (cluster.loop.time() - begun_s) * 1000 >= READ_MS
    assert (hot.code, cold.code) == (0, 0)
    assert cold.body[: len(hot.body)] == hot.body


def test_pull_when_the_role_ends_during_its_read_then_it_is_refused(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log may be cut meanwhile: what was found before is not sent any more."""
    master = master_of(cluster)
    cluster.disks[master.config.host].mood.read_ms = READ_MS
    cluster.loop.call_later(READ_MS / 2000, setattr, master, "_serving", None)
    answer = pull(cluster)
    assert answer.code == 14
    master._serving = Role.MASTER


def test_pull_when_the_disk_fails_then_the_broker_stops_as_with_any_failed_disk(
    cluster: ReplicaCluster,
) -> None:
    """A page that cannot be read was a SIGBUS."""
    master = master_of(cluster)
    mood = cluster.disks[master.config.host].mood
    mood.read_ms, mood.unreadable = READ_MS, True
    cluster.ask_later(master.config.address, 11, fields())
    for _ in range(100):
        cluster.loop.run_until_complete(_turn())
        if cluster.loop.errors:
            break
    assert "cannot be read" in str(cluster.loop.errors[0])
    cluster.loop.errors.clear()


async def _turn() -> None:
    """A little virtual time, whatever fails in it."""
    await asyncio.sleep(0.01)
