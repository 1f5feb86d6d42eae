"""Mappings of logical queues are as safe as messages: they survive their master with its topics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.sync.aio import tables
from rmqha.broker.sync.aio.metadata_log import MetadataLog
from rmqha.broker.topics.aio.mapping_file import PERIOD_MS, MappingFile
from rmqha.broker.topics.metadata_change import Change
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.ha.events import Role
from rmqha.remoting.codes import RequestCode
from rmqha.sim.clock import SimClock
from rmqha.statictopic.mapping import TopicQueueMappingDetail
from rmqha.store.aio.metadata_reader import MetadataRecord
from tests.broker.mappings import FIELDS, T, detail, led, put_static
from tests.broker.replicas import ReplicaCluster, master_of

FILE = "/store/config/topicQueueMapping.json"
MOVED = detail(2, {0: (led(0), led(0, 1, "broker-b", 10_000)), 1: (led(1),), 2: (led(2),), 3: (led(3),)})  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """Three replicas in sync."""
    with ReplicaCluster(
        seed=41, syncSlaveMetadataPeriod=60_000, haHousekeepingInterval=20_000
    ) as one:
        one.boot_all()
        one.until(one.in_sync, "SyncStateSet of three")
        yield one


def put(cluster: ReplicaCluster, mapping: TopicQueueMappingDetail) -> None:
    """513 that succeeds."""
    answer = put_static(cluster, mapping)
    assert (answer.code, answer.remark) == (0, None)


def known(replica: BrokerReplica) -> TopicQueueMappingDetail | None:
    """The mapping that a replica has."""
    return replica.mappings.table.get(T)


def everywhere(cluster: ReplicaCluster, mapping: TopicQueueMappingDetail | None) -> bool:
    """Whether all replicas have the same."""
    return all(known(one) == mapping for one in cluster.replicas.values())


def restart(cluster: ReplicaCluster) -> None:
    """All hosts at once."""
    hosts = list(cluster.broker_hosts)
    for host in hosts:
        cluster.kill(host)
    for host in hosts:
        cluster.boot(host)
    cluster.until(lambda: cluster.master() is not None, "a master")


def test_mapping_when_changed_and_the_master_dies_then_the_next_one_has_it(
    cluster: ReplicaCluster,
) -> None:
    """A new master without it would take logical ids for physical ones."""
    told: dict[str, list[frozenset[str]]] = {}
    for host, replica in cluster.replicas.items():
        replica.mappings.on_changed.append(told.setdefault(host, []).append)
    put(cluster, detail())
    put(cluster, MOVED)
    old = master_of(cluster)
    cluster.kill(cluster.host_of(old))
    cluster.until(lambda: cluster.master() not in (None, old), "new master")
    master = master_of(cluster)
    assert known(master) == MOVED
    assert master.topics.table.get(T) == TopicConfig(T, 4, 4)
    cluster.until(lambda: everywhere(cluster, MOVED), "the other slave")
    assert list(told.values()) == [[frozenset({T})] * 2] * 3


@pytest.mark.costly
def test_mapping_when_nobody_confirmed_it_then_it_is_undone(cluster: ReplicaCluster) -> None:
    """The set's next master never had it, and its epoch may be given out again."""
    put(cluster, detail())
    cluster.until(lambda: everywhere(cluster, detail()), "all three")
    old = master_of(cluster)
    host = cluster.host_of(old)
    others = [*cluster.controller_hosts, *(one for one in cluster.broker_hosts if one != host)]
    for other in others:
        cluster.net.cut(host, other)
        cluster.net.cut(other, host)
    assert put_static(cluster, MOVED).code != 0
    assert known(old) == MOVED
    told: list[frozenset[str]] = []
    old.mappings.on_changed.append(told.append)
    cluster.until(lambda: cluster.master() not in (None, old), "new master")
    assert known(master_of(cluster)) == detail()
    cluster.net.heal()
    cluster.until(lambda: old.role is Role.SLAVE, "the old master as a slave")
    cluster.until(lambda: everywhere(cluster, detail()), "the mapping of before")
    assert told == [frozenset({T})]


@pytest.mark.costly
@pytest.mark.parametrize("keeps", ["its file", "no file", "an old file"])
def test_mapping_when_all_restart_then_it_is_there(cluster: ReplicaCluster, keeps: str) -> None:
    """The records behind the file count; without a file all that are left do."""
    put(cluster, detail())
    cluster.run_for(PERIOD_MS + 200)
    files = {host: cluster.disks[host].files[FILE] for host in cluster.broker_hosts}
    put(cluster, MOVED)
    cluster.run_for(PERIOD_MS + 200)
    for host in cluster.broker_hosts:
        disk = cluster.disks[host]
        if keeps == "no file":
            cluster.kill(host)
            cluster.loop.run_until_complete(disk.remove(FILE))
        elif keeps == "an old file":
            cluster.kill(host)
            disk.files[FILE] = files[host]
    restart(cluster)
    cluster.until(lambda: everywhere(cluster, MOVED), "all three")
    cluster.run_for(PERIOD_MS + 200)
    for host in cluster.broker_hosts:
        value = json.loads(cluster.loop.run_until_complete(cluster.disks[host].read(FILE)))
        assert value["rmqhaAppliedOffset"] > 0
        mapping = TopicQueueMappingDetail.of(value["topicQueueMappingInfoMap"][T])
        assert mapping == MOVED


def written(cluster: ReplicaCluster, host: str) -> TopicQueueMappingDetail:
    """The mapping that a replica's file has."""
    value = json.loads(cluster.loop.run_until_complete(cluster.disks[host].read(FILE)))
    return TopicQueueMappingDetail.of(value["topicQueueMappingInfoMap"][T])


@pytest.mark.costly
def test_mapping_when_it_is_remapped_then_its_file_is_written_afterwards(
    cluster: ReplicaCluster,
) -> None:
    """The bytes of a long history take the loop, and messages wait for a remap to end."""
    host = cluster.host_of(master_of(cluster))
    put(cluster, detail())
    cluster.run_for(PERIOD_MS + 200)
    put(cluster, MOVED)
    cluster.run_for(200)
    assert written(cluster, host) == detail()
    cluster.run_for(PERIOD_MS)
    assert written(cluster, host) == MOVED


def test_mapping_when_its_master_has_written_it_then_it_does_not_read_it(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has in its tables it would read again from its log, while messages wait."""
    read: list[MetadataLog] = []
    look = MetadataLog._read

    def noted(log: MetadataLog, record: MetadataRecord) -> Change | None:
        read.append(log)
        return look(log, record)

    monkeypatch.setattr(MetadataLog, "_read", noted)
    put(cluster, detail())
    cluster.until(lambda: everywhere(cluster, detail()), "all three")
    slaves = [one.metadata for one in cluster.replicas.values() if one.role is Role.SLAVE]
    assert len(slaves) == 2
    assert {*map(id, read)} == {*map(id, slaves)}


@pytest.mark.costly
def test_mapping_when_its_topic_is_deleted_and_made_anew_then_no_replica_has_it(
    cluster: ReplicaCluster,
) -> None:
    """The topic of the second life is an ordinary one, on each that may be elected."""
    put(cluster, detail())
    address = master_of(cluster).config.address
    assert cluster.ask(address, 215, {"topic": T}).code == 0
    assert cluster.ask(address, 17, FIELDS).code == 0
    cluster.until(lambda: everywhere(cluster, None), "all three")
    restart(cluster)
    cluster.until(lambda: everywhere(cluster, None), "all three")
    assert master_of(cluster).topics.table.get(T) is not None


@pytest.mark.costly
def test_mapping_when_a_replica_begins_anew_then_it_takes_its_masters(
    cluster: ReplicaCluster,
) -> None:
    """A new disk: the table comes by 21, with the place of the log that it is of."""
    put(cluster, detail())
    slave = next(one for one in cluster.replicas.values() if one.role is Role.SLAVE)
    host = cluster.host_of(slave)
    cluster.run_for(PERIOD_MS + 200)
    cluster.kill(host)
    for name in ("topics.json", "topicQueueMapping.json"):
        disk, path = cluster.disks[host], f"/store/config/{name}"
        value = json.loads(cluster.loop.run_until_complete(disk.read(path)))
        del value["rmqhaAppliedOffset"]
        value.pop("topicQueueMappingInfoMap", None)
        cluster.loop.run_until_complete(disk.write_atomic(path, json.dumps(value).encode()))
    put(cluster, MOVED)
    cluster.boot(host)
    cluster.until(cluster.in_sync, "all three", 120_000)
    assert known(cluster.replicas[host]) == MOVED


class JavaMaster:
    """Answers 21 and 201 as a Java master does; the rest of MasterQuestions is not asked."""

    master = "10.0.0.9:10911"

    def __init__(self, *mappings: TopicQueueMappingDetail) -> None:
        self.mappings = mappings

    async def ask(
        self, master: str, code: RequestCode, read: Callable[[bytes], Any], *how: object
    ) -> Any:
        """One answer."""
        details = {one.topic: one.members() for one in self.mappings}
        topics = {one.topic: {"topicName": one.topic} for one in self.mappings}
        version = {"counter": len(details), "stateVersion": 0, "timestamp": 1}
        wrapper = {
            "dataVersion": version, "topicConfigTable": topics, "mappingDataVersion": version,
            "topicQueueMappingDetailMap": details, "topicQueueMappingInfoMap": {},
        }  # fmt: skip
        body = wrapper if code == RequestCode.GET_ALL_TOPIC_CONFIG else {}
        return read(json.dumps(body).encode())


@pytest.mark.costly
def test_slave_of_java_when_it_copies_then_it_keeps_the_mappings(cluster: ReplicaCluster) -> None:
    """B17: a Python replica that became master of a Java set knew no logical queue."""
    replica = next(one for one in cluster.replicas.values() if one.role is Role.SLAVE)
    java = JavaMaster(detail(), detail(topic="Other"))
    sync = tables.SlaveSync(
        broker=replica, metadata=replica.metadata, questions=java, log=replica._log, period_ms=1  # type: ignore[arg-type]  # a master in its place
    )  # fmt: skip

    def copy() -> None:
        task = cluster.loop.create_task(sync.copy())
        cluster.until(task.done, "the copy")

    told: list[frozenset[str]] = []
    replica.mappings.on_changed.append(told.append)
    replica.mappings.table.put(detail(topic="Own"), 0)
    copy()
    assert known(replica) == detail()
    # One just elected may lack what this replica has; what it had and has no more is gone.
    assert sorted(replica.mappings.table.items) == ["Other", "Own", T]
    java.mappings = (MOVED,)
    copy()
    assert sorted(replica.mappings.table.items) == ["Own", T]
    assert known(replica) == MOVED
    assert told == [frozenset({T, "Other"})] * 2
    cluster.run_for(PERIOD_MS + 200)
    disk = cluster.disks[cluster.host_of(replica)]
    file = MappingFile(disk, SimClock(cluster.loop), FILE, replica.troubles)
    cluster.loop.run_until_complete(file.load())
    assert sorted(file.table.items) == ["Own", T]
