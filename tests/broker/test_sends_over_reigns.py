"""What is written in one reign is not acknowledged in the next one of the same replica.

Whoever waits for the disk may wait so long that this replica is a slave meanwhile, whose log is cut, and
a master again, with other records in the same place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.ha.events import Role
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.cluster import CONTROLLER_PORT
from tests.broker.replicas import NAME, ReplicaCluster, master_of, send_fields


class Gate:
    """Where the syncs of a log wait for the test."""

    def __init__(self, replica: BrokerReplica) -> None:
        log = replica.store.commit_log
        self._sync = log.sync
        self.waiting: list[asyncio.Event] = []
        self.is_open = False
        log.sync = self.sync  # type: ignore[method-assign]

    async def sync(self, low: int, high: int) -> None:
        """In the place of the log's own."""
        if not self.is_open:
            self.waiting.append(asyncio.Event())
            await self.waiting[-1].wait()
        await self._sync(low, high)

    def let(self, number: int) -> None:
        """A sync goes on."""
        self.waiting[number].set()

    def let_all(self) -> None:
        """No sync waits any more."""
        self.is_open = True
        for one in self.waiting:
            one.set()


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """Two replicas in sync."""
    with ReplicaCluster(5, replicas=2, flushDiskType="SYNC_FLUSH") as one:
        one.boot_all()
        one.send_many(5)
        one.until(one.in_sync, "replicas in sync")
        yield one


def elect(cluster: ReplicaCluster, replica: BrokerReplica) -> None:
    """As an operator does, by the controllers."""
    leader = f"{cluster.leader()}:{CONTROLLER_PORT}"
    fields = {
        "clusterName": "DefaultCluster", "brokerName": NAME, "designateElect": "true",
        "brokerId": str(replica.replicas.broker_id),
    }  # fmt: skip
    answer = cluster.ask(leader, RequestCode.CONTROLLER_ELECT_MASTER, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    cluster.until(lambda: replica.role is Role.MASTER, "the elected master")


def asked(
    cluster: ReplicaCluster, address: str, code: int, number: int
) -> asyncio.Task[RemotingCommand]:
    """A request that is not waited for."""
    if code == RequestCode.SEND_MESSAGE_V2:
        command = RemotingCommand(code, ext_fields=send_fields(number), body=b"%d" % number)
    else:
        fields = {
            "topic": f"New{number}", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
            "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        command = RemotingCommand(code, ext_fields=fields)
    return cluster.loop.create_task(
        cluster._client.invoke(address, command, 60_000), context=cluster._client_context.copy()
    )


@pytest.mark.parametrize(
    "code",
    [RequestCode.SEND_MESSAGE_V2, RequestCode.UPDATE_AND_CREATE_TOPIC],
    ids=["send", "topic"],
)
def test_record_when_its_master_reigns_again_after_a_cut_then_it_is_not_acknowledged(
    cluster: ReplicaCluster, code: int
) -> None:
    """The disk takes long for it; meanwhile its place in the log is another record's."""
    first = master_of(cluster)
    (second,) = (one for one in cluster.replicas.values() if one is not first)
    begin, gate, address = first.store.max_offset, Gate(first), first.config.address
    # A cut ends with the files of the tables, which wait for a sync too. The rule leans on no such thing.
    first.store.on_truncated = None
    cluster.net.cut(first.config.host, second.config.host)
    early = asked(cluster, address, code, 100)
    cluster.until(lambda: gate.waiting, "a sync under way")
    late = asked(cluster, address, code, 101)
    lost = first.store.max_offset
    cluster.until(lambda: first.store.max_offset > lost, "a record behind what is synced")
    lost = first.store.max_offset

    elect(cluster, second)
    cluster.until(lambda: first.role is Role.SLAVE, "its role")
    cluster.net.heal()
    cluster.until(lambda: first.store.flusher.lock._waiters, "a cut that waits for the sync")
    gate.let(0)
    cluster.until(lambda: first.store.max_offset == begin, "the cut")
    cluster.until(lambda: len(gate.waiting) == 2, "another sync")
    cluster.until(cluster.in_sync, "both in sync")

    elect(cluster, first)
    cluster.until(lambda: second.role is Role.SLAVE, "its role")
    newer = [asked(cluster, address, RequestCode.SEND_MESSAGE_V2, one) for one in range(200, 230)]
    cluster.until(lambda: first.store.max_offset > lost, "records in the same place")
    gate.let_all()
    cluster.until(lambda: early.done() and late.done() and all(n.done() for n in newer), "answers")
    assert early.result().code != ResponseCode.SUCCESS
    assert late.result().code != ResponseCode.SUCCESS
    assert [one.result().code for one in newer] == [ResponseCode.SUCCESS] * len(newer)
