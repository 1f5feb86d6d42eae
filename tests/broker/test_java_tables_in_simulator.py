"""What a replica copied from a Java master is no record of the log: once it reigns, all are to have it.

The Java master is one of ours that treats its tables as Java's does (``rmqha/sim/java_peer.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.sync.aio.metadata_log import MetadataLog
from rmqha.ha.events import PutStatus, Role
from rmqha.ha.membership import Membership
from rmqha.remoting.codes import ResponseCode
from rmqha.sim.java_peer import JavaReplica
from rmqha.statictopic.mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from tests.broker.replicas import ReplicaCluster, master_of, send_fields
from tests.broker.test_metadata_in_simulator import ASK

JAVA, COPIER, OTHER = "10.0.0.1", "10.0.0.2", "10.0.0.3"
T = "Young"
OFTEN_MS, SELDOM_MS = 500, 600_000


class JavaCluster(ReplicaCluster):
    """A set whose first replica is like Java's. The second one copies its tables often, the third seldom."""

    def _maker(self, host: str) -> Callable[..., BrokerReplica]:
        return partial(JavaReplica, Counter().update) if host == JAVA else BrokerReplica

    def _keys_of(self, host: str) -> dict[str, object]:
        period_ms = SELDOM_MS if host == OTHER else OFTEN_MS
        return {**self.keys, "syncSlaveMetadataPeriod": period_ms}

    def serves(self, host: str) -> bool:
        """Whether it is the master."""
        one = self.replicas.get(host)
        return one is not None and one.role is Role.MASTER

    def are_in_sync(self, hosts: Sequence[str]) -> bool:
        """Whether the set is of these."""
        ids = {self.replicas[host].replicas.broker_id for host in hosts}
        return self.controller_set() == ids


@pytest.fixture
def cluster() -> Iterator[JavaCluster]:
    """The Java master reigns; both others follow it, and have tables of a moment of the log."""
    with JavaCluster(seed=41, haHousekeepingInterval=20_000) as one:
        one.boot_all()
        one.until(one.in_sync, "all three")
        assert one.serves(JAVA)
        assert one.send(1) is not None  # who has an empty log knows nothing of it
        for host, follower in ((JAVA, COPIER), (COPIER, JAVA)):
            one.run_for(2_000)  # the files are written
            # Of two with the same log the smaller id is elected.
            one.kill(host)
            one.until(lambda f=follower: one.serves(f), "the next master", 120_000)  # type: ignore[misc]
            one.boot(host)
            one.until(one.in_sync, "all three", 120_000)
        assert all(one.replicas[host].metadata.is_known for host in (COPIER, OTHER))
        yield one


def copied(cluster: JavaCluster, made: Callable[[], object] = bool) -> None:
    """A topic is made at the Java master, and one replica copies it before that master dies."""
    answer = cluster.ask(master_of(cluster).config.address, 17, {"topic": T, **ASK})
    assert answer.code == 0
    made()
    copier = cluster.replicas[COPIER]
    cluster.until(lambda: copier.topics.table.get(T), "the copy")
    cluster.run_for(500)
    assert cluster.replicas[OTHER].topics.table.get(T) is None
    assert cluster.replicas[OTHER].metadata.is_known
    cluster.kill(OTHER)
    cluster.until(lambda: cluster.are_in_sync((JAVA, COPIER)), "a set of two", 120_000)
    cluster.kill(JAVA)


def boot(cluster: JavaCluster, host: str) -> None:
    """And wait until it serves."""
    cluster.boot(host)
    cluster.until(lambda: cluster.serves(host), f"{host} to serve", 120_000)


def other_has_it(cluster: JavaCluster) -> None:
    """The replica that copied nothing is the next master, and has the topic."""
    cluster.boot(OTHER)
    cluster.until(lambda: cluster.are_in_sync((COPIER, OTHER)), "both", 120_000)
    cluster.run_for(1_000)
    cluster.kill(COPIER)
    cluster.until(lambda: cluster.serves(OTHER), "the next master", 120_000)
    topic = cluster.replicas[OTHER].topics.table.get(T)
    assert topic is not None
    assert topic.read_queue_nums == 8


@pytest.mark.costly
def test_tables_of_java_when_their_copier_dies_before_it_reigns_then_the_others_get_them(
    cluster: JavaCluster,
) -> None:
    """That they were to be told was known to the memory of the process alone."""
    copied(cluster)
    cluster.kill(COPIER)
    boot(cluster, COPIER)
    other_has_it(cluster)


@pytest.mark.costly
def test_tables_of_java_when_their_copier_dies_before_all_is_told_then_it_tells_when_it_comes_back(
    cluster: JavaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files said that they are those of a moment of the log as soon as it reigned."""
    copied(cluster)
    with monkeypatch.context() as patch:
        refused = Refusal(ResponseCode.SYSTEM_BUSY, "not now")
        patch.setattr(MetadataLog, "_written", lambda self, change: refused)
        cluster.until(lambda: cluster.serves(COPIER), "the next master", 120_000)
        cluster.run_for(3_000)
        cluster.kill(COPIER, power=True)
    boot(cluster, COPIER)
    other_has_it(cluster)


@pytest.mark.costly
@pytest.mark.parametrize("dies", [False, True])
def test_tables_of_java_when_their_copier_is_replaced_before_it_tells_then_all_have_the_same(
    cluster: JavaCluster, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """It would have gone on with a topic that no master knows, until it reigned again."""
    copied(cluster)
    refused = Refusal(ResponseCode.SYSTEM_BUSY, "not now")
    monkeypatch.setattr(MetadataLog, "_written", lambda self, change: refused)
    cluster.until(lambda: cluster.serves(COPIER), "the next master", 120_000)
    cluster.boot(OTHER)
    cluster.until(lambda: cluster.are_in_sync((COPIER, OTHER)), "both", 120_000)
    if dies:
        cluster.kill(COPIER)
    else:
        for other in (*cluster.controller_hosts, OTHER):
            cluster.net.cut(COPIER, other)
            cluster.net.cut(other, COPIER)
    cluster.until(lambda: cluster.serves(OTHER), "the next master", 120_000)
    assert cluster.replicas[OTHER].topics.table.get(T) is None
    cluster.net.heal()
    if dies:
        cluster.boot(COPIER)
    cluster.until(lambda: cluster.are_in_sync((COPIER, OTHER)), "both", 120_000)
    cluster.run_for(1_000)
    assert not cluster.serves(COPIER)
    names = [sorted(cluster.replicas[host].topics.table.topics) for host in (COPIER, OTHER)]
    assert names[0] == names[1]


@pytest.mark.costly
def test_tables_of_java_when_told_then_they_stand_before_all_that_is_written_after(
    cluster: JavaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has an acknowledged message has its topic; one that came first would have none."""
    copied(cluster)
    check, refused = Membership.check_put, [PutStatus.WRITE_LEASE_EXPIRED]

    def checked(self: Membership, **given: Any) -> PutStatus:
        """The first who asks is refused; nobody asks again at once."""
        return refused.pop() if refused else check(self, **given)

    monkeypatch.setattr(Membership, "check_put", checked)
    sent = {**send_fields(1, T), "e": "0"}
    address = cluster.replicas[COPIER].config.address
    codes: list[int] = []
    while 0 not in codes:
        cluster.ask_later(
            address, 310, sent, b"body", told=lambda answer: codes.append(answer.code)
        )
        cluster.run_for(1)
    cluster.run_for(1_000)
    store = cluster.replicas[COPIER].store
    first = store.pulling.place(T, 0, 0)
    told = store.pulling.place(
        "rmq_sys_METADATA", 0, store.reader.max_offset("rmq_sys_METADATA", 0) - 1
    )
    assert first is not None
    assert told is not None
    assert told < first


@pytest.mark.costly
def test_logical_queues_of_java_when_their_copier_reigns_then_the_others_get_them(
    cluster: JavaCluster,
) -> None:
    """Without them a static topic's queue would be an ordinary one to the next master."""
    items = (LogicQueueMappingItem(0, 0, "broker-a", 0),)
    mapping = TopicQueueMappingDetail(T, 1, "broker-a", 1, hosted_queues={0: items})
    java = cluster.replicas[JAVA]
    copied(cluster, lambda: java.mappings.table.put(mapping, java.clock.wall_ms()))
    cluster.until(lambda: cluster.serves(COPIER), "the next master", 120_000)
    assert cluster.replicas[COPIER].mappings.table.get(T) is not None
    other_has_it(cluster)
    assert cluster.replicas[OTHER].mappings.table.get(T) == mapping
