"""Positions on the disk tell of no delivery that a power cut takes.

Seed 1001429 of stories with services: a slave took its master's mark of the timers, which stood on its
disk when the delivery did not; both lost power, the slave was elected, and the timer never came.
"""

from __future__ import annotations

import json

import pytest

from rmqha.remoting.codes import ResponseCode
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.test_power_loss import LosesAll
from tests.broker.test_producer_services import send, stored, wall_ms

NEVER_MS = 3_600_000


def started(flush: str, replicas: int) -> ReplicaCluster:
    """Replicas in sync; by itself no log is flushed."""
    keys = {
        "flushDiskType": flush, "allAckInSyncStateSet": "false", "inSyncReplicas": "1",
        "flushIntervalCommitLog": str(NEVER_MS), "timerFlushIntervalMs": "200",
        "flushDelayOffsetInterval": "200", "flushConsumerOffsetInterval": "200",
    }  # fmt: skip
    one = ReplicaCluster(71, replicas=replicas, **keys)
    one.boot_all()
    one.until(one.in_sync, "a SyncStateSet of all")
    return one


def cut_power(one: ReplicaCluster) -> None:
    """Of everybody; no byte survives that was not flushed."""
    for host in one.broker_hosts:
        one.disks[host].rng = LosesAll()
        one.kill(host, power=True)


@pytest.mark.few
@pytest.mark.parametrize("who", ["master", "slave"])
@pytest.mark.parametrize("kind", ["delay", "timer"])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_message_when_power_takes_its_delivery_then_it_is_delivered_again(
    flush: str, kind: str, who: str
) -> None:
    """It was stored and flushed long before; only the delivery was in memory."""
    with started(flush, 1 if who == "master" else 2) as cluster:
        master = master_of(cluster).config.host
        host = next(one for one in cluster.replicas if (one == master) is (who == "master"))
        due_ms = wall_ms(cluster) + 1_000
        later = "DELAY\x011\x02"
        if kind == "timer":
            later = f"TIMER_DELIVER_MS\x01{due_ms}\x02"
        assert send(cluster, 1, later).code == ResponseCode.SUCCESS
        logs = [one.store for one in cluster.replicas.values()]
        cluster.until(lambda: len({one.max_offset for one in logs}) == 1, "equal logs")
        for log in logs:
            cluster.loop.run_until_complete(log.flush_all())
        cluster.until(lambda: stored(cluster, TOPIC), "its delivery")
        cluster.until(
            lambda: is_told(cluster, host, kind, due_ms), "its position on the disk", 20_000
        )
        cut_power(cluster)
        cluster.boot(host)
        cluster.until(lambda: cluster.master() is not None, "a master")
        cluster.until(lambda: stored(cluster, TOPIC), "its delivery, or another one", 30_000)


def is_told(one: ReplicaCluster, host: str, kind: str, due_ms: int) -> bool:
    """Whether a file of a replica says that the message was delivered."""
    name = "delayOffset.json" if kind == "delay" else "rmqhaTimers.json"
    text = one.disks[host].survivors().get(f"/store/config/{name}")
    if text is None:
        return False
    value = json.loads(text)
    return bool(value["offsetTable"]["1"] if kind == "delay" else value["readTimeMs"] > due_ms)
