"""A topic or a group is deleted while a group pops it: who makes it anew finds nothing of the old one,
no offset, nothing in flight, and no check point that brings the new one's messages twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.pop.check_points import CheckPoint
from rmqha.broker.pop.offsets import PopOffsets
from rmqha.broker.pop.order import OrderTable
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.subscriber import Subscriber
from tests.broker.test_pop_in_simulator import GROUP, INVISIBLE_MS, RETRY, ack, bodies, pop
from tests.broker.test_pop_order_in_simulator import ordered
from tests.broker.test_write_lease_in_simulator import said

POP = {
    "consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "maxMsgNums": 8, "pollTime": 0,
    "invisibleTime": INVISIBLE_MS, "bornTime": 0, "initMode": 0, "exp": "*", "expType": "TAG",
}  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica."""
    with ReplicaCluster(seed=21, replicas=1) as one:
        one.boot_all()
        yield one


def client(cluster: ReplicaCluster) -> Subscriber:
    """Of the master."""
    return Subscriber(cluster, master_of(cluster).config.address)


def send(cluster: ReplicaCluster, *numbers: int) -> None:
    """Messages of one queue."""
    for number in numbers:
        answer = cluster.send(number, e="0")
        assert answer is not None
        assert answer.code == 0


def stored(master: BrokerReplica) -> list[str]:
    """Topics in which the group has an offset."""
    return master.offsets.table.topics_of(GROUP)


def delete_amid_a_pop(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, code: int, fields: dict[str, str]
) -> None:
    """Pop, delete, and only then let the check point be safe."""
    master, one = master_of(cluster), client(cluster)
    writer, is_safe = master.services.writer, [False]
    settle = writer.settle

    async def settled(end: int, *, durable: bool = False) -> bool:
        # A change is told at once: it waits for a slave that pops are still waiting for.
        return (durable or is_safe[0]) and await settle(end, durable=durable)

    with monkeypatch.context() as held:
        held.setattr(writer, "settle", settled)
        popped = one.ask(200050, POP)
        assert popped.code == 0, popped.remark
        assert one.ask(code, fields).code == 0
        is_safe[0] = True
        cluster.run_for(1_000)


def test_topic_when_deleted_amid_a_pop_then_one_made_anew_is_popped_from_its_start(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's offset came back behind the deletion, and passed messages that nobody had seen."""
    send(cluster, *range(16))
    delete_amid_a_pop(cluster, monkeypatch, 215, {"topic": TOPIC})
    assert stored(master_of(cluster)) == []
    send(cluster, 100, 101)
    cluster.until(lambda: bodies(pop(cluster)[1]) == [b"body-100", b"body-101"], "both", 2_000)


def test_group_when_deleted_with_its_offsets_amid_a_pop_then_it_has_none(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """207 with cleanOffset=true: mqadmin says that they are gone."""
    send(cluster, *range(16))
    fields = {"groupName": GROUP, "cleanOffset": "true"}
    delete_amid_a_pop(cluster, monkeypatch, 207, fields)
    assert stored(master_of(cluster)) == []


def test_held_pop_when_its_topic_or_group_was_deleted_then_it_is_told(
    cluster: ReplicaCluster,
) -> None:
    """It stored an offset for the topic at its end, or for the group that an operator had deleted."""
    send(cluster, 0)
    assert len(pop(cluster, invisibleTime=600_000)[1]) == 1
    one, master = client(cluster), master_of(cluster)
    for code, fields, told in (
        (207, {"groupName": GROUP, "cleanOffset": "true"}, 26),
        (215, {"topic": TOPIC}, 17),
    ):
        cluster.until(lambda: pop(cluster) == (210, []), "the end of the queue", 1_000)
        held = one.tell(200050, {**POP, "pollTime": 500})
        cluster.run_for(20)
        assert one.ask(code, fields).code == 0
        cluster.until(lambda number=held: number in one.answers, "an answer", 1_000)
        assert one.answers[held].code == told
        assert stored(master) == []
        assert (master.groups.table.get(GROUP) is None) == (code == 207)


def test_order_when_the_topic_is_made_anew_then_nothing_of_the_old_one_is_in_flight(
    cluster: ReplicaCluster,
) -> None:
    """The new topic's first message waited for the old invisible time."""
    send(cluster, *range(4))
    assert len(ordered(cluster, 4, invisibleTime=60_000)[1]) == 4
    one = client(cluster)
    assert one.ask(215, {"topic": TOPIC}).code == 0
    send(cluster, 100)
    cluster.until(lambda: ordered(cluster)[1], "the new topic's message", 1_000)


@pytest.mark.costly
def test_check_point_when_the_topic_is_made_anew_then_it_brings_none_of_its_messages(
    cluster: ReplicaCluster,
) -> None:
    """It names messages by their place in a queue, and others are there now: acknowledged ones."""
    send(cluster, *range(3))
    assert len(pop(cluster)[1]) == 3
    one = client(cluster)
    assert one.ask(215, {"topic": TOPIC}).code == 0
    send(cluster, 100, 101, 102)
    cluster.run_for(100)
    again = pop(cluster)[1]
    assert len(again) == 3
    assert [ack(cluster, message) for message in again[:2]] == [0, 0]
    master = master_of(cluster)
    cluster.until(lambda: master.pop.revive.revived, "the one that was not acknowledged", 12_000)
    cluster.run_for(2 * INVISIBLE_MS)
    assert said(cluster, "popped_messages_gone") == 1
    assert master.pop.revive.revived == 1
    assert bodies(pop(cluster)[1]) == [again[2].body]


@pytest.mark.costly
def test_check_point_when_nothing_of_it_is_left_then_no_retry_topic_is_made(
    cluster: ReplicaCluster,
) -> None:
    """One of a topic that was deleted would stay for ever."""
    send(cluster, 0)
    assert len(pop(cluster)[1]) == 1
    assert client(cluster).ask(215, {"topic": TOPIC}).code == 0
    cluster.until(lambda: said(cluster, "popped_messages_gone"), "its end", 2 * INVISIBLE_MS)
    assert master_of(cluster).topics.table.get(RETRY) is None


@pytest.mark.costly
def test_order_when_the_broker_ends_before_its_file_knows_of_the_end_then_the_log_says_it() -> None:
    """The file is written now and then; the record of the deletion is in the log at once."""
    with ReplicaCluster(seed=21, replicas=1, flushConsumerOffsetInterval=600_000) as cluster:
        cluster.boot_all()
        send(cluster, *range(4))
        assert len(ordered(cluster, 4, invisibleTime=900_000)[1]) == 4
        saved = cluster.loop.create_task(master_of(cluster).pop.save())
        cluster.until(saved.done, "the file")
        assert client(cluster).ask(215, {"topic": TOPIC}).code == 0
        send(cluster, 100)
        cluster.run_for(20_000)  # the store's checkpoint is behind the record
        host = cluster.host_of(master_of(cluster))
        cluster.kill(host)
        cluster.boot(host)
        cluster.until(lambda: cluster.master() is not None, "a master")
        cluster.until(lambda: ordered(cluster)[1], "the new topic's message", 5_000)


def test_offsets_when_a_topic_or_a_group_ends_then_only_others_are_kept() -> None:
    """What waits for its check point waits by topic and group."""
    offsets = PopOffsets()
    for group, topic in (("G", "T"), ("G", "U"), ("H", "T"), ("H", "U")):
        offsets.moved((group, topic, 0), 5, 10)
    offsets.ended({"T"}, {"H"})
    assert offsets.at(("G", "T", 0)) is None
    assert offsets.settled(10) == [(("G", "U", 0), 5)]
    assert len(offsets) == 0


def test_order_table_when_a_topic_or_a_group_ends_then_its_queues_are_named() -> None:
    """Others stay blocked by what is in flight."""
    table = OrderTable(10)
    for key in (("T", "G", 0), ("U", "G", 1), ("U", "H", 2)):
        table.handed(key, None, 1_000, 1_000, [0])
    assert table.of_ended({"T"}, {"H"}) == [("T", "G", 0), ("U", "H", 2)]


def test_check_point_when_it_says_where_the_log_ended_then_it_holds_what_stands_before() -> None:
    """A record at that place was written afterwards. One of Java's says nothing, and holds all."""
    point = CheckPoint(TOPIC, GROUP, 0, 0, 0, 1_000, "broker-a", (0,), log_end=100)
    assert [point.holds(offset) for offset in (0, 99, 100, 101)] == [True, True, False, False]
    assert point._replace(log_end=0).holds(1 << 40)
