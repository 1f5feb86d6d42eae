"""Delayed, timed and transactional messages of topics whose logical queues moved on meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from rmqha.broker.deferred.aio.delay_delivery import AWAY_MAX
from rmqha.broker.deferred.aio.deliveries import Deliveries
from rmqha.broker.deferred.logical_queues import Elsewhere
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.mapping import LogicQueueMappingItem, Segments, TopicQueueMappingDetail
from rmqha.store.record import Message, Record
from tests.broker.broker_sets import STATIC, SetsCluster, segment
from tests.broker.replicas import NAME, QUEUES, TOPIC, ReplicaCluster, master_of, send_fields

pytestmark = pytest.mark.slow

LEVELS = "1s 5s 10s"
ELSEWHERE = "another-set"
OTHER_TOPIC = "Invoices"
Sender = Callable[[ReplicaCluster, int], None]


@pytest.fixture
def alone() -> Iterator[ReplicaCluster]:
    """One replica, which reigns."""
    with ReplicaCluster(seed=6, replicas=1, messageDelayLevel=LEVELS) as one:
        one.boot_all()
        yield one


def ask(
    cluster: ReplicaCluster, number: int, more: str, topic: str = TOPIC, **fields: str
) -> RemotingCommand:
    """Send one message to the queue of its number."""
    values = send_fields(number, topic)
    values["i"] += more
    address = master_of(cluster).config.address
    answer = cluster.ask(address, 310, {**values, **fields}, f"body-{number}".encode())
    assert answer.code == 0
    return answer


def delayed(cluster: ReplicaCluster, number: int) -> None:
    """By a level of 5 s."""
    ask(cluster, number, "DELAY\x012\x02")


def timed(cluster: ReplicaCluster, number: int) -> None:
    """By a timer of as long."""
    ask(cluster, number, f"TIMER_DELIVER_MS\x01{master_of(cluster).clock.wall_ms() + 6_000}\x02")


SENDERS = pytest.mark.parametrize("send", [delayed, timed])


def half(cluster: ReplicaCluster, number: int, more: str = "") -> dict[str, str]:
    """Send a half message; the fields of its commit."""
    answer = ask(cluster, number, f"TRAN_MSG\x01true\x02PGROUP\x01PG\x02{more}", f="4")
    got = answer.ext_fields
    assert got is not None
    return {
        "producerGroup": "PG", "tranStateTableOffset": got["queueOffset"],
        "commitLogOffset": str(int(got["msgId"][-16:], 16)), "fromTransactionCheck": "false",
        "commitOrRollback": "8",
    }  # fmt: skip


def commit(cluster: ReplicaCluster, fields: dict[str, str]) -> None:
    """Send 37."""
    assert cluster.ask(master_of(cluster).config.address, 37, fields).code == 0


def led(queue_id: int, *, decided: bool = True) -> Segments:
    """A logical queue that came to this set from another one."""
    return (
        LogicQueueMappingItem(0, 90 + queue_id, ELSEWHERE, 0),
        LogicQueueMappingItem(1, queue_id, NAME, 10_000 if decided else -1),
    )


def moved(queue_id: int) -> Segments:
    """One that has moved on from here."""
    return (
        LogicQueueMappingItem(0, queue_id, NAME, 0),
        LogicQueueMappingItem(1, 90 + queue_id, ELSEWHERE, 10_000),
    )


def mapping(*queues: Segments, epoch: int = 1) -> TopicQueueMappingDetail:
    """What the set knows."""
    return TopicQueueMappingDetail(
        TOPIC, QUEUES, NAME, epoch, hosted_queues=dict(enumerate(queues))
    )


def remap(cluster: ReplicaCluster, detail: TopicQueueMappingDetail) -> None:
    """The master's mapping becomes another."""
    master = master_of(cluster)
    assert master.mappings.table.put(detail, master.clock.wall_ms())
    master.mappings.changed()


def found(cluster: ReplicaCluster, topic: str = TOPIC) -> list[tuple[int, bytes]]:
    """Physical queue and body of every message of a topic."""
    reader = master_of(cluster).store.reader
    records: list[Record] = []
    for queue_id in range(18 if topic == "SCHEDULE_TOPIC_XXXX" else QUEUES):
        for at in range(reader.min_offset(topic, queue_id), reader.max_offset(topic, queue_id)):
            unit = reader.unit(topic, queue_id, at)
            record = None if unit is None else reader.look(unit.physical_offset)
            assert record is not None
            records.append(record)
    return [(one.queue_id, one.body) for one in records]


# -- in the simulator


@SENDERS
def test_message_when_its_queue_moved_on_meanwhile_then_it_comes_to_one_that_is_led_here(
    alone: ReplicaCluster, send: Sender
) -> None:
    """Behind the old segment's end nobody would read it."""
    for number in range(QUEUES):
        send(alone, number)
    remap(alone, mapping(moved(0), led(1), moved(2), led(3)))
    alone.until(lambda: len(found(alone)) == QUEUES, "the deliveries", 9_000)
    assert [(1, b"body-0"), (1, b"body-1"), (1, b"body-2"), (3, b"body-3")] == sorted(found(alone))


def test_transaction_when_its_queue_moved_on_meanwhile_then_its_commit_comes_to_another(
    alone: ReplicaCluster,
) -> None:
    """The half message was stored with the queue of its time, also one that is delayed as well."""
    halves = [half(alone, 0), half(alone, 2, "DELAY\x011\x02")]
    remap(alone, mapping(moved(0), led(1), moved(2), led(3)))
    for fields in halves:
        commit(alone, fields)
    assert [(1, b"body-0")] == found(alone)
    alone.until(lambda: len(found(alone)) == 2, "the delivery", 3_000)
    assert [(1, b"body-0"), (1, b"body-2")] == sorted(found(alone))


@SENDERS
def test_message_when_the_set_leads_no_queue_then_it_waits_until_one_comes_back(
    alone: ReplicaCluster, send: Sender
) -> None:
    """It is neither lost nor in the way of others, also over a restart."""
    send(alone, 2)
    remap(alone, mapping(moved(0), moved(1), moved(2), moved(3)))
    ask(alone, 1, "DELAY\x012\x02", OTHER_TOPIC)
    alone.run_for(40_000)
    assert [] == found(alone)
    assert [(1, b"body-1")] == found(alone, OTHER_TOPIC)
    task = alone.loop.create_task(master_of(alone).stop())
    alone.until(task.done, "stop")
    host = alone.broker_hosts[0]
    alone.kill(host)
    alone.boot(host)
    alone.until(lambda: alone.master() is not None, "a master")
    remap(alone, mapping(moved(0), moved(1), moved(2), led(3), epoch=2))
    alone.until(lambda: found(alone) != [], "the delivery", 12_000)
    alone.run_for(25_000)
    assert [(3, b"body-2")] == found(alone)


def test_transaction_when_the_set_leads_no_queue_then_its_commit_holds_and_waits(
    alone: ReplicaCluster,
) -> None:
    """The producer has ended it, and is not asked again."""
    fields = half(alone, 0)
    remap(alone, mapping(moved(0)))
    commit(alone, fields)
    alone.run_for(15_000)
    assert [] == found(alone)
    remap(alone, mapping(led(1), epoch=2))
    alone.until(lambda: found(alone) != [], "the delivery", 12_000)
    assert [(1, b"body-0")] == found(alone)


@SENDERS
def test_message_when_where_its_queue_begins_is_undecided_then_it_goes_elsewhere_or_waits(
    alone: ReplicaCluster, send: Sender
) -> None:
    """The remap that would decide it may never be finished."""
    send(alone, 0)
    remap(alone, mapping(led(0, decided=False), moved(1)))
    alone.run_for(9_000)
    assert [] == found(alone)
    remap(alone, mapping(led(0), moved(1), epoch=2))
    alone.until(lambda: found(alone) != [], "the delivery", 12_000)
    assert [(0, b"body-0")] == found(alone)


@SENDERS
def test_messages_when_they_wait_once_more_then_no_more_often_than_they_need(
    alone: ReplicaCluster, send: Sender
) -> None:
    """Each time is a record in the log: the longest level of this broker is taken, 10 s."""
    send(alone, 0)
    remap(alone, mapping(moved(0)))
    alone.run_for(60_000)
    waits = [body for queue_id, body in found(alone, "SCHEDULE_TOPIC_XXXX") if queue_id == 2]
    assert 4 <= len(waits) <= 6


# -- with another set


@pytest.fixture
def two() -> Iterator[SetsCluster]:
    """Two sets of one replica; logical queue 0 is led by the first, as its physical queue 2."""
    with SetsCluster(seed=33, messageDelayLevel=LEVELS) as one:
        one.boot_all()
        one.tell("broker-a", 1_000, {0: [segment(0, 2, "broker-a", 0)]}, total=1, physical=3)
        one.tell("broker-b", 1_000, {}, total=1, physical=0)
        yield one


def send_three(cluster: SetsCluster) -> dict[str, str]:
    """A delayed message, a timer and a half message, to the first set; the half's commit."""
    plain = send_fields(0, STATIC)["i"]
    due = cluster.wall_ms() + 6_000
    for number, more in enumerate(("DELAY\x012\x02", f"TIMER_DELIVER_MS\x01{due}\x02")):
        assert cluster.put("broker-a", number, 0, i=plain + more).code == 0
    half_of = {"i": f"{plain}TRAN_MSG\x01true\x02PGROUP\x01PG\x02", "f": "4"}
    got = cluster.put("broker-a", 2, 0, **half_of).ext_fields or {}
    return {
        "producerGroup": "PG", "tranStateTableOffset": got["queueOffset"],
        "commitLogOffset": str(int(got["msgId"][-16:], 16)), "fromTransactionCheck": "false",
        "commitOrRollback": "8",
    }  # fmt: skip


def move(cluster: SetsCluster) -> None:
    """The queue moves to the second set, as its physical queue 1."""
    queues = {0: [segment(0, 2, "broker-a", 0), segment(1, 1, "broker-b", 10_000)]}
    cluster.tell("broker-b", 2_000, queues, total=1, physical=2)
    cluster.tell("broker-a", 2_000, queues, total=1, physical=3)


def send_delayed(cluster: SetsCluster, count: int) -> None:
    """As many messages for the same moment."""
    plain = send_fields(0, STATIC)
    fields = {**plain, "e": "0", "i": plain["i"] + "DELAY\x013\x02"}
    address = cluster.address("broker-a")
    answers = [cluster.collect(address, 310, fields, b"body-%d" % one) for one in range(count)]
    cluster.until(lambda: all(answers), "the answers")
    assert {0} == {answer.code for (answer,) in answers}


BODIES = [b"body-0", b"body-1", b"body-2"]


def test_messages_when_another_set_leads_the_only_queue_then_they_come_there(
    two: SetsCluster,
) -> None:
    """A set that was drained has nothing left that is to come, and can be retired.

    Soon after they are due: a second, the shortest level, for what is no delay level's.
    """
    begun = two.wall_ms()
    commit_of = send_three(two)
    move(two)
    assert two.ask(two.address("broker-a"), 37, commit_of).code == 0
    two.until(lambda: len(two.consume("broker-b", 0)) == 3, "the deliveries", 12_000)
    assert two.wall_ms() - begun < 9_000
    two.run_for(25_000)
    read = two.consume("broker-b", 0)
    assert BODIES == sorted(body for _, body in read)
    assert [10_000, 10_001, 10_002] == [offset for offset, _ in read]


def test_messages_when_very_many_are_for_another_set_then_so_many_at_a_time_are_in_memory(
    two: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may have megabytes."""
    sent: list[int] = []
    send_on = Deliveries.send_on

    async def counted(one: Deliveries, messages: Sequence[tuple[Message, Elsewhere]]) -> int:
        sent.append(len(messages))
        return await send_on(one, messages)

    monkeypatch.setattr(Deliveries, "send_on", counted)
    count = 3 * AWAY_MAX
    send_delayed(two, count)
    move(two)
    two.until(lambda: len(two.consume("broker-b", 0)) == count, "the deliveries", 11_000)
    bodies = sorted(body for _, body in two.consume("broker-b", 0))
    assert sorted(b"body-%d" % number for number in range(count)) == bodies
    assert (count, AWAY_MAX) == (sum(sent), max(sent))


def test_messages_when_the_other_set_refuses_them_then_they_wait(two: SetsCluster) -> None:
    """What it says it has not stored is not gone from here."""
    plain = send_fields(0, STATIC)["i"]
    assert two.put("broker-a", 0, 0, i=plain + "DELAY\x012\x02").code == 0
    queues = {0: [segment(0, 2, "broker-a", 0), segment(1, 1, "broker-b", 10_000)]}
    two.tell("broker-a", 2_000, queues, total=1, physical=3)
    two.run_for(20_000)
    two.tell("broker-b", 2_000, queues, total=1, physical=2)
    two.until(lambda: len(two.consume("broker-b", 0)) == 1, "the delivery", 90_000)


def test_messages_when_the_other_set_cannot_be_reached_then_they_wait_for_it(
    two: SetsCluster,
) -> None:
    """Tried once a minute, and none is lost."""
    commit_of = send_three(two)
    move(two)
    (host,) = two.hosts_of["broker-b"]
    two.kill(host)
    assert two.ask(two.address("broker-a"), 37, commit_of).code == 0
    two.run_for(20_000)
    two.boot(host)
    two.until(lambda: two.master_of("broker-b") is not None, "a master", 60_000)
    two.until(lambda: len(two.consume("broker-b", 0)) >= 3, "the deliveries", 90_000)
    assert BODIES == sorted(body for _, body in two.consume("broker-b", 0))


def test_messages_when_the_master_dies_while_it_sends_them_on_then_the_next_one_goes_on() -> None:
    """What is on its way counts as waiting, here and for the slaves that ask every 200 ms."""
    with SetsCluster(
        seed=34, replicas=3, messageDelayLevel=LEVELS, syncSlaveMetadataPeriod=200
    ) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "all in sync")
        cluster.tell("broker-a", 1_000, {0: [segment(0, 2, "broker-a", 0)]}, total=1, physical=3)
        cluster.tell("broker-b", 1_000, {}, total=1, physical=0)
        count = 2 * AWAY_MAX
        send_delayed(cluster, count)
        move(cluster)
        for one in cluster.hosts_of["broker-a"]:
            for other in cluster.hosts_of["broker-b"]:
                cluster.net.cut(one, other)
        # They are due after 10 s, and each is given up after 3 s more.
        cluster.run_for(11_500)
        old = cluster.master_of("broker-a")
        assert old is not None
        cluster.kill(cluster.host_of(old))
        cluster.net.heal()
        expected = {b"body-%d" % number for number in range(count)}
        cluster.until(lambda: at_the_end(cluster) >= count, "all of them", 120_000)
        cluster.run_for(15_000)
        assert expected == {body for _, body in cluster.consume("broker-b", 0)}


def at_the_end(cluster: SetsCluster) -> int:
    """How many messages the second set has in its segment."""
    master = cluster.master_of("broker-b")
    return 0 if master is None else master.store.reader.max_offset(STATIC, 1)
