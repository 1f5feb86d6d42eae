"""How far a master's services are is copied by slaves, and must never run ahead of their logs.

The rule here is Java's default: one replica is enough for an acknowledgement, so a slave of the
SyncStateSet may be behind. What it has of a message is then all that is promised of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.base.errors import RequestTimeout
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.deferred.delay_offsets import DelayOffsets
from rmqha.broker.deferred.delays import SCHEDULE_TOPIC
from rmqha.broker.deferred.timers import TimerMark
from rmqha.broker.groups.aio.offset_file import OffsetFile
from rmqha.broker.topics.metadata import Change
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.ha.events import Role
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.test_pop_in_simulator import pop
from tests.broker.test_producer_services import bodies, send, stored

GROUP = "CG"


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """Three replicas in sync, with Java's rule for acknowledgements."""
    with ReplicaCluster(
        seed=21, messageDelayLevel="1s 5s", allAckInSyncStateSet="false", inSyncReplicas=1,
        haMaxTimeSlaveNotCatchup=60_000, syncSlaveMetadataPeriod=300, timerFlushIntervalMs=200,
        haHousekeepingInterval=60_000,
    ) as one:  # fmt: skip
        one.boot_all()
        one.until(one.in_sync, "SyncStateSet of three")
        yield one


def offset_of(file: OffsetFile) -> int | None:
    """How far the group is in the queue of the second delay level."""
    return file.table.query(GROUP, SCHEDULE_TOPIC, 1)


def slaves(cluster: ReplicaCluster) -> list[BrokerReplica]:
    """All but the master."""
    return [one for one in cluster.replicas.values() if one.role is Role.SLAVE]


def hold_replication(cluster: ReplicaCluster) -> None:
    """The log stops flowing to slaves; requests go on, as over a connection of their own."""
    for one in slaves(cluster):
        assert one.ha is not None
        one.ha._master[1]._transport.pause_reading()


def wait_for_logs(cluster: ReplicaCluster) -> None:
    """Every slave has what the master has."""
    master = master_of(cluster)
    cluster.until(
        lambda: {one.store.confirm_offset for one in slaves(cluster)} == {master.store.max_offset},
        "equal logs",
    )


def kill_master(cluster: ReplicaCluster) -> None:
    """And wait for the next one."""
    old = master_of(cluster)
    cluster.kill(cluster.host_of(old))
    cluster.until(lambda: cluster.master() not in (None, old), "new master")


@pytest.mark.costly
@pytest.mark.parametrize("more", ["DELAY\x011\x02", "TIMER_DELAY_MS\x011000\x02"])
def test_delivery_when_a_slave_lacks_it_then_the_slave_delivers_once_more(
    cluster: ReplicaCluster, more: str
) -> None:
    """The slave has the message and not its delivery: by the master's position it never came."""
    assert send(cluster, 1, more).code == 0
    wait_for_logs(cluster)
    hold_replication(cluster)
    cluster.until(lambda: stored(cluster, TOPIC), "the delivery")
    cluster.run_for(3_000)
    kill_master(cluster)
    cluster.until(lambda: bodies(stored(cluster, TOPIC)) == [b"body-1"], "the delivery", 10_000)


@pytest.mark.costly
def test_pop_when_a_slave_lacks_its_check_point_then_the_message_comes_again(
    cluster: ReplicaCluster,
) -> None:
    """The slave has the message and not its check point: by the group's offset it was consumed."""
    assert send(cluster, 1).code == 0
    wait_for_logs(cluster)
    hold_replication(cluster)
    code, found = pop(cluster)
    assert (code, [one.body for one in found]) == (0, [b"body-1"])
    cluster.run_for(3_000)
    kill_master(cluster)
    again: list[bytes] = []

    def popped() -> bool:
        again.extend(one.body for one in pop(cluster)[1])
        return bool(again)

    cluster.until(popped, "the message again", 10_000)
    assert again == [b"body-1"]


@pytest.mark.costly
def test_positions_when_the_log_has_caught_up_then_they_are_the_masters(
    cluster: ReplicaCluster,
) -> None:
    """Waiting for the log must end: a slave that never takes them delivers everything anew."""
    assert send(cluster, 1, "DELAY\x011\x02").code == 0
    cluster.until(lambda: stored(cluster, TOPIC), "the delivery")
    assert pop(cluster)[0] == 0
    wait_for_logs(cluster)
    cluster.run_for(1_500)
    master = master_of(cluster)
    expected = master.services.delay_offsets.offsets.kept
    assert expected[1] == 1
    for one in slaves(cluster):
        assert one.services.delay_offsets.offsets.kept == expected
        assert one.services.timer_mark.mark.read_ms > 0
        assert one.offsets.table.page(0).members["offsetTable"].keys() == (
            master.offsets.table.page(0).members["offsetTable"].keys()
        )


@pytest.mark.costly
def test_positions_when_the_log_loses_its_tail_then_they_end_where_it_does(
    cluster: ReplicaCluster,
) -> None:
    """Elected before it was told others, it would pass over what took the tail's place; so would one
    that reads its files at the next start."""
    assert send(cluster, 1, "DELAY\x012\x02").code == 0
    wait_for_logs(cluster)
    slave = slaves(cluster)[0]
    services, store = slave.services, slave.store
    cluster.until(lambda: store.reader.max_offset(SCHEDULE_TOPIC, 1) == 1, "its queue")
    services.delay_offsets.offsets = DelayOffsets({1: 7, 2: 9})
    services.timer_mark.mark = TimerMark(5, 9, 8, 7, (3,))
    assert slave.offsets.table.commit(GROUP, SCHEDULE_TOPIC, 1, 9, 0)

    async def cut() -> None:
        assert store.on_truncated is not None
        await store.rebuild_queue_offsets()
        await store.on_truncated(store.max_offset, store.max_offset)

    task = cluster.loop.create_task(cut())
    cluster.until(task.done, "the cut", limit_ms=250)
    task.result()
    assert services.delay_offsets.offsets.kept == {1: 0, 2: 1}
    assert services.timer_mark.mark == TimerMark(5, 0, 0, 0)
    files = cluster.disks[cluster.host_of(slave)].files
    (written,) = [one for path, one in files.items() if path.endswith("/delayOffset.json")]
    assert json.loads(written.content)["offsetTable"] == {"1": 0, "2": 1}
    assert offset_of(slave.offsets) == 1
    (written,) = [one for path, one in files.items() if path.endswith("/consumerOffset.json")]
    assert json.loads(written.content)["offsetTable"][f"{SCHEDULE_TOPIC}@{GROUP}"] == {"1": 1}


@pytest.mark.costly
@pytest.mark.parametrize(
    "lost", [RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_BROKER_RUNTIME_INFO]
)
def test_positions_when_an_answer_is_lost_then_they_are_still_less_than_a_second_behind(
    lost: RequestCode,
) -> None:
    """With the default period: a slave that sat one out would be elected with positions of before."""
    with ReplicaCluster(seed=22, replicas=2) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of two")
        (slave,), master = slaves(cluster), master_of(cluster)
        cluster.run_for(3_000)
        failures = lose_answers(slave, lost, 1)
        assert master.offsets.table.commit(GROUP, TOPIC, 0, 7, 0)
        cluster.until(lambda: failures, "a lost answer")
        cluster.until(
            lambda: slave.offsets.table.query(GROUP, TOPIC, 0) == 7, "the position", limit_ms=1_000
        )


@pytest.mark.costly
def test_positions_when_a_master_answers_nothing_then_it_is_asked_less_and_less_often() -> None:
    """A master that is in trouble is not helped by more questions."""
    with ReplicaCluster(seed=22, replicas=2) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of two")
        (slave,) = slaves(cluster)
        cluster.run_for(3_000)
        failures = lose_answers(slave, RequestCode.GET_BROKER_RUNTIME_INFO, 1_000)
        cluster.run_for(3_000)
        assert len(failures) == 4  # at once, then after 300, 600 and 1,200 ms
        cluster.run_for(30_000)
        assert len(failures) in range(12, 16)  # every 3 s since, and what a question takes


def lose_answers(slave: BrokerReplica, code: RequestCode, count: int) -> list[int]:
    """The next answers to this request never come to the slave; the result counts them."""
    client, lost = slave._copies.questions._client, []
    invoke = client.invoke

    async def losing(address: str, command: RemotingCommand, *given: Any, **named: Any) -> Any:
        answer = await invoke(address, command, *given, **named)
        if command.code == code and len(lost) < count:
            lost.append(code)
            raise RequestTimeout("lost")
        return answer

    client.invoke = losing  # type: ignore[method-assign]
    return lost


@pytest.mark.costly
def test_offset_when_its_topic_ends_and_begins_anew_during_a_look_then_the_next_look_brings_it(
    cluster: ReplicaCluster,
) -> None:
    """A look waits for the log, which then says that the topic has ended: what was told of its next life
    was left out, and never asked for again."""
    wait_for_logs(cluster)
    hold_replication(cluster)
    master = master_of(cluster)
    for change in Change(ended_topics=(TOPIC,)), Change(topics=(TopicConfig(TOPIC),)):
        cluster.loop.call_soon(master.metadata.commit, change)
        cluster.run_for(50)
    assert master.offsets.table.commit(GROUP, TOPIC, 0, 1, 0)
    cluster.run_for(1_000)
    for one in slaves(cluster):
        assert one.offsets.table.query(GROUP, TOPIC, 0) is None
        assert one.ha is not None
        one.ha._master[1]._transport.resume_reading()
    cluster.until(
        lambda: {one.offsets.table.query(GROUP, TOPIC, 0) for one in slaves(cluster)} == {1},
        "the offset at all slaves",
    )
