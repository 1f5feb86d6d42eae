"""A slave that was away for longer than files are kept, as a whole broker."""

from __future__ import annotations

import json

import pytest

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.common.aio.config_file import APPLIED_OFFSET
from tests.broker.replicas import (
    QUEUES,
    TOPIC,
    Acked,
    ReplicaCluster,
    master_of,
    send_fields,
)
from tests.broker.test_metadata_in_simulator import ASK, ask

GROUP = "CG"
HOURS = ";".join(f"{hour:02}" for hour in range(24))
KEYS: dict[str, object] = {
    "fileReservedTime": 0,
    "deleteWhen": HOURS,
    "haMaxTimeSlaveNotCatchup": 3_000,
    "haHousekeepingInterval": 20_000,
}


def fill(cluster: ReplicaCluster, until_min: int) -> None:
    """Send until the master's log begins behind ``until_min``."""
    number = 10_000
    while master_of(cluster).store.min_offset <= until_min:
        address = master_of(cluster).config.address
        requests = [(send_fields(number + one), b"x" * 2_000) for one in range(20)]
        number += 20
        for (_, body), answer in zip(
            requests, cluster.ask_together(address, 310, requests), strict=True
        ):
            if answer.code == 0:
                got = answer.ext_fields or {}
                place = int(got["queueId"]), int(got["queueOffset"])
                cluster.acked.append(Acked(body, *place, address))
        cluster.run_for(500)


def left_behind(cluster: ReplicaCluster, *, changes: bool = True) -> tuple[str, int]:
    """The host of a slave that is away while all that it needs next expires, and its log's end.

    Args:
        changes: its log holds records of topics.
    """
    cluster.boot_all()
    cluster.until(cluster.in_sync, "SyncStateSet of three")
    if changes:
        for topic in ("Gone", "Stays"):
            ask(cluster, 17, {"topic": topic, **ASK})
        cluster.send_many(20)
    else:
        address = master_of(cluster).config.address
        assert cluster.ask(address, 310, send_fields(1, "BenchmarkTest"), b"first").code == 0
    cluster.run_for(3_000)
    host = next(
        one for one in cluster.broker_hosts if cluster.replicas[one] is not cluster.master()
    )
    slave = cluster.replicas[host]
    end = slave.store.max_offset
    assert end == master_of(cluster).store.max_offset
    cluster.kill(host)
    cluster.until(lambda: len(cluster.controller_set()) == 2, "a SyncStateSet of two")
    # The records of these changes expire before the slave is back.
    ask(cluster, 17, {"topic": "Late", **ASK})
    if changes:
        ask(cluster, 215, {"topic": "Gone"})
    changed = master_of(cluster).store.max_offset
    fill(cluster, max(end, changed))
    return host, end


def mark_as_of_the_beginning(cluster: ReplicaCluster, host: str) -> None:
    """Tables that no record has changed are written seldom: their files may be that old."""
    disk = cluster.disks[host]

    async def rewrite() -> None:
        for name in ("topics.json", "subscriptionGroup.json"):
            path = f"/store/config/{name}"
            members = json.loads(await disk.read(path))
            await disk.write_atomic(path, json.dumps({**members, APPLIED_OFFSET: 0}).encode())

    task = cluster.loop.create_task(rewrite())
    cluster.until(task.done, "older files")
    task.result()


async def never() -> bool:
    """Tables that do not come."""
    return False


def kept(cluster: ReplicaCluster, replica: BrokerReplica) -> list[Acked]:
    """Acknowledged messages whose queues still reach back to them on a replica."""
    ends = [replica.store.reader.min_offset(TOPIC, queue) for queue in range(QUEUES)]
    return [one for one in cluster.acked if one.queue_offset >= ends[one.queue_id]]


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("changes", [False, True])
def test_slave_when_it_starts_over_then_it_joins_and_reigns_with_all_that_is_kept(
    changes: bool, crash: bool
) -> None:
    """It never came back by itself; the tables are the master's, too: their records expired."""
    with ReplicaCluster(seed=11, slaveStartOverEnable="true", **KEYS) as cluster:
        host, end = left_behind(cluster, changes=changes)
        cluster.boot(host)
        back = cluster.replicas[host]
        if crash:
            # It dies with an empty log, before it has the master's tables.
            back._copies.tables.copy = never  # type: ignore[method-assign]  # a master that is silent
            cluster.until(lambda: back.store.max_offset == end, "its log")
            cluster.until(lambda: not back.store.max_offset, "an empty log", 120_000)
            cluster.run_for(3_000)
            cluster.kill(host, power=True)
            if not changes:
                mark_as_of_the_beginning(cluster, host)
            cluster.boot(host)
            back = cluster.replicas[host]
        cluster.until(cluster.in_sync, "SyncStateSet of three", 120_000)
        assert back.store.min_offset > end
        cluster.send_many(40)
        wanted = kept(cluster, master_of(cluster))
        assert len(wanted) > 20
        master = cluster.host_of(master_of(cluster))
        # One by one: the other slave could be elected in its last moment.
        cluster.kill(next(one for one in cluster.broker_hosts if one not in (host, master)))
        cluster.until(lambda: len(cluster.controller_set()) == 2, "a SyncStateSet of two")
        cluster.kill(master)
        cluster.until(lambda: cluster.master() is back, "the returned slave as master", 120_000)
        missing = cluster.missing_on(back)
        reached = kept(cluster, back)
        assert [one for one in reached if one in missing] == []
        assert {(one.queue_id, one.queue_offset) for one in wanted} <= {
            (one.queue_id, one.queue_offset) for one in reached
        }
        assert back.topics.table.get("Late") is not None
        assert (back.topics.table.get("Stays") is not None) is changes
        assert back.topics.table.get("Gone") is None


@pytest.mark.slow
def test_slave_when_not_told_to_start_over_then_it_stays_out_and_says_so_once() -> None:
    """Its operator may have a reason: the default touches no log."""
    with ReplicaCluster(seed=11, **KEYS) as cluster:
        host, end = left_behind(cluster)
        begun = len(cluster.trace.lines)
        cluster.boot(host)
        cluster.run_for(60_000)
        lines = [line for line in cluster.trace.lines[begun:] if "ha_" in line]
        assert sum("slaveStartOverEnable=true" in line for line in lines) == 1
        assert sum("ha_slave_too_late" in line for line in lines) == 1
        assert sum("ha_transfer_started" in line for line in lines) == 1
        assert cluster.replicas[host].store.max_offset == end
        assert len(cluster.controller_set()) == 2
