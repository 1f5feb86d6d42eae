"""Reviving, acknowledging and beginning again, at the moments between two steps: nothing that was
acknowledged comes again for that, and nothing that was not is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.base.errors import DiskFailed
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.pop.aio.revive import LOOK_MS, revived_message
from rmqha.broker.pop.check_points import (
    REVIVE_GROUP,
    REVIVE_TOPIC,
    Acks,
    CheckPoint,
    ReviveQueue,
)
from rmqha.store import properties as props
from rmqha.store.aio.commit_log import AppendResult
from rmqha.store.aio.record_walk import LOOK_TURNS, LOOKS_A_TURN
from rmqha.store.record import (
    Head,
    Message,
    check_record,
    decode,
    encode_into,
    encoded_size,
    pack_host,
)
from tests.broker.replicas import NAME, TOPIC, ReplicaCluster, master_of
from tests.broker.test_held_answers import resume_replication
from tests.broker.test_pop_in_simulator import (
    GROUP,
    INVISIBLE_MS,
    RETRY,
    Popped,
    bodies,
    pop,
    pop_until,
)
from tests.broker.test_positions_in_simulator import hold_replication, wait_for_logs
from tests.broker.test_write_lease_in_simulator import isolate, said
from tests.store.harness import message

HOST = pack_host("10.0.0.1", 1)


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica with a message, and a group that has popped it for long."""
    one = ReplicaCluster(seed=21, replicas=1)
    one.boot_all()
    one.send(0)
    assert len(pop(one, invisibleTime=600_000)[1]) == 1
    yield one
    one.close()


def revive_topic(master: BrokerReplica) -> str:
    """Of its cluster."""
    return REVIVE_TOPIC + str(master.config.cluster_name)


def kept(master: BrokerReplica, number: int = 0) -> int | None:
    """How far the service has come in a queue of the revive topic, as it survives a crash."""
    return master.offsets.table.query(REVIVE_GROUP, revive_topic(master), number)


def test_revive_when_acknowledgements_are_far_behind_their_check_points_then_they_are_read_first(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage everything is overdue, and more is there than is read at a time."""
    master = master_of(cluster)
    count = LOOKS_A_TURN * LOOK_TURNS + 1
    topic, revive = revive_topic(master), master.pop.revive
    begin = master.clock.wall_ms() - 600_000
    points = [
        CheckPoint(TOPIC, GROUP, 0, 0, begin + number, 1_000, NAME, (0,)) for number in range(count)
    ]
    acks = [Acks(*point.key, (0,)) for point in points]
    messages = [
        *(point.message(topic, 0, HOST, begin) for point in points),
        *(one.message(topic, 0, 1_000, HOST, begin) for one in acks),
    ]
    high = master.store.reader.max_offset(topic, 0)
    with monkeypatch.context() as waits:
        # Until all of them are to be read.
        waits.setattr(revive, "_read", lambda *_: False)
        for message in messages:
            cluster.loop.call_soon(master.services.writer.append, message)
        cluster.until(
            lambda: master.store.reader.max_offset(topic, 0) == high + len(messages), "all records"
        )
    cluster.until(lambda: kept(master) == high + len(messages) - 1, "the end of the queue")
    assert (revive.revived, revive.open_count) == (0, 0)


def test_revive_when_slaves_lack_what_it_wrote_then_it_passes_the_check_point_later() -> None:
    """A slave that took over would go on behind the check point, without the message."""
    keys = {"haMaxTimeSlaveNotCatchup": 60_000, "haHousekeepingInterval": 60_000}
    with ReplicaCluster(seed=21, replicas=2, **keys) as two:
        two.boot_all()
        two.until(two.in_sync, "SyncStateSet")
        two.send(0)
        (popped,) = pop(two, invisibleTime=3_000)[1]
        number = int(popped.key.split(" ")[3])
        master = master_of(two)
        topic, reader = revive_topic(master), master.store.reader
        two.until(lambda: reader.max_offset(topic, number) == 1, "the check point")
        wait_for_logs(two)
        hold_replication(two)
        two.until(lambda: master.pop.revive.revived == 1, "the message once more", 10_000)
        two.run_for(2_000)
        assert kept(master, number) in (None, -1)
        assert master.pop.revive.open_count == 1
        resume_replication(two)
        two.until(lambda: kept(master, number) == 0, "its end", 10_000)
        assert (master.pop.revive.revived, master.pop.revive.open_count) == (1, 0)


def test_revive_when_the_group_was_deleted_then_its_messages_are_left_out() -> None:
    """Where groups are not made by themselves: a retry topic of nobody would stay for ever."""
    keys = {"autoCreateSubscriptionGroup": "false"}
    with ReplicaCluster(seed=21, replicas=1, **keys) as one:
        one.boot_all()
        one.send(0)
        master = master_of(one)
        address = master.config.address
        group = f'{{"groupName":"{GROUP}"}}'.encode()
        assert one.ask(address, 200, {}, group).code == 0
        assert len(pop(one)[1]) == 1
        assert one.ask(address, 207, {"groupName": GROUP}).code == 0
        one.until(lambda: said(one, "check_point_dropped"), "the line in the log", 2 * INVISIBLE_MS)
        one.run_for(1_000)
        assert said(one, "check_point_dropped") == 1
        assert (master.pop.revive.revived, master.pop.revive.open_count) == (0, 0)
        assert master.topics.table.get(RETRY) is None


def test_kept_when_a_check_point_is_there_twice_then_none_between_is_passed() -> None:
    """A timer that was delivered again after a failover brings it again, behind others."""

    def point(number: int) -> CheckPoint:
        return CheckPoint("T", "G", 0, number, 1_000, 1_000, "b", (number,))

    queue = ReviveQueue(0, 10)
    for number in (1, 2, 1):
        queue.add(point(number), 1 << 50)
    assert queue.kept == 0, "the first record is of no use any more, and the second is open"
    (second, first) = queue.due(10**9, 10)
    assert [one.point.start_offset for one in (second, first)] == [2, 1]
    queue.done(second)
    assert queue.kept == 1
    queue.done(first)
    assert queue.kept == 2


def test_invisible_time_when_its_second_record_cannot_be_written_then_the_message_comes_again(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were the acknowledgement of the old time written first, the message would be lost."""
    cluster.send(1)
    (one,) = pop(cluster)[1]
    writer = master_of(cluster).services.writer
    real, written = writer.append, list[Message]()

    def append(message: Message) -> AppendResult:
        written.append(message)
        if len(written) == 2:
            raise DiskFailed("no space left")
        return real(message)

    fields = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": str(one.queue_id),
        "offset": str(one.offset), "extraInfo": one.key, "invisibleTime": "2000",
    }  # fmt: skip
    with monkeypatch.context() as full:
        full.setattr(writer, "append", append)
        answer = cluster.ask(master_of(cluster).config.address, 200053, fields)
    assert (answer.code, answer.remark) == (1, "no space left")
    assert bodies(pop_until(cluster)) == [one.body]


@pytest.mark.costly
def test_pop_when_a_master_reigns_again_then_it_begins_at_the_kept_offset() -> None:
    """What it handed out when nobody had copied the check point was cut off with its log."""
    with ReplicaCluster(seed=4, replicas=2) as one:
        one.boot_all()
        one.until(one.in_sync, "SyncStateSet")
        one.send(0)
        first = master_of(one)
        assert len(pop(one)[1]) == 1
        place = (GROUP, TOPIC, 0)
        one.until(lambda: first.pop.pops.popped_to(place) is None, "a safe check point")
        one.send(4)
        one.run_for(8_000)  # the offset is copied
        isolate(one, first)
        assert one.master() is first, "it does not know yet"
        assert b"body-4" in bodies(pop(one)[1])
        assert first.pop.pops.popped_to(place) is not None
        one.until(lambda: one.master() not in (None, first), "another master")
        one.net.heal()
        one.until(one.in_sync, "SyncStateSet again")
        second = master_of(one)
        one.kill(one.host_of(second))
        one.until(lambda: one.master() is first, "the first master again")
        seen: list[Popped] = []

        def is_there() -> bool:
            seen.extend(pop(one)[1])
            return b"body-4" in bodies(seen)

        one.until(is_there, "the message", 20_000)


def restart(cluster: ReplicaCluster) -> BrokerReplica:
    """End the only replica in order, so that its files are written, and start it again."""
    master = master_of(cluster)
    stopped = cluster.loop.create_task(master.stop())
    cluster.until(stopped.done, "its end")
    host = cluster.host_of(master)
    cluster.kill(host)
    cluster.boot(host)
    cluster.until(lambda: cluster.master() is not None, "a master")
    return master_of(cluster)


@pytest.mark.costly
@pytest.mark.parametrize("kept_offset", [1_000_000, 2])
def test_revive_when_its_offset_is_beyond_the_queue_then_all_that_comes_is_delivered(
    monkeypatch: pytest.MonkeyPatch, kept_offset: int
) -> None:
    """A client could store any; nothing was revived for as long as the offset stood there."""
    with ReplicaCluster(seed=21, replicas=1, reviveQueueNum=1) as one:
        one.boot_all()
        one.send(0)
        master = master_of(one)
        monkeypatch.setattr(master.pop.revive, "_keep", lambda *_: None)
        place = REVIVE_GROUP, revive_topic(master), 0
        master.offsets.table.commit(*place, kept_offset, master.clock.wall_ms())
        master.offsets.changed()
        master = restart(one)
        for number in (1, 2):
            assert len(pop(one, invisibleTime=2_000)[1]) == 1
            one.until(lambda number=number: kept(master) == number - 1, "its end", 10_000)
            assert master.pop.revive.revived == number
        # What is kept is true again: another start passes over nothing, and brings nothing twice.
        master = restart(one)
        assert len(pop(one, invisibleTime=2_000)[1]) == 1
        one.until(lambda: master.pop.revive.revived == 1, "the third", 10_000)
        one.run_for(1_000)
        assert (kept(master), master.pop.revive.revived) == (2, 1)


@pytest.mark.costly
def test_revive_when_it_begins_anew_then_it_reads_the_first_record_that_is_not_done() -> None:
    """The kept offset is that of the last one that is: what stands behind it is read."""
    with ReplicaCluster(seed=21, replicas=1, reviveQueueNum=1) as one:
        one.boot_all()
        one.send(0)
        one.send(4)
        master = master_of(one)
        reader, topic = master.store.reader, revive_topic(master)
        assert len(pop(one, 1, invisibleTime=2_000)[1]) == 1
        one.until(lambda: kept(master) == 0, "the first one's end", 10_000)
        assert len(pop(one, 1, queueId=0, invisibleTime=2_000)[1]) == 1
        one.until(lambda: reader.max_offset(topic, 0) == 2, "its check point", 10_000)
        one.until(lambda: master.pop.revive.open_count == 1, "that it is read", 1_000)
        assert kept(master) == 0
        master = restart(one)
        one.until(lambda: kept(master) == 1, "its end", 10_000)
        assert master.pop.revive.revived == 1


@pytest.mark.costly
def test_revive_when_no_more_check_points_may_be_open_then_it_looks_no_more_often() -> None:
    """Until one is over there is nothing to do: a core was busy with that."""
    with ReplicaCluster(seed=21, replicas=1, popCheckPointsMax=1, reviveQueueNum=1) as cluster:
        cluster.boot_all()
        cluster.send_many(3)
        cluster.run_for(100)
        for _ in range(3):
            pop(cluster, 1, invisibleTime=3_000)
        revive, looks = master_of(cluster).pop.revive, []
        read = revive._read
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(revive, "_read", lambda *asked: looks.append(0) or read(*asked))
            cluster.run_for(2_000)
        assert 5 <= len(looks) <= 2 * 2_000 // LOOK_MS
        assert len(pop_until(cluster, limit_ms=20_000)) >= 1


@pytest.mark.parametrize(
    ("times", "before", "after"),
    [(0, None, b"77"), (0, b"5", b"77"), (2, b"5", b"5"), (2, None, b"77")],
)
def test_message_when_it_comes_again_then_its_first_pop_is_that_of_its_first_delivery(
    times: int, before: bytes | None, after: bytes
) -> None:
    """Clients tell from it how long a message was on its way; and it names no half message."""
    properties = b"" if before is None else b"1ST_POP_TIME\x01" + before + b"\x02"
    stored = message(
        properties=properties, reconsume_times=times, prepared_transaction_offset=9, sys_flag=8
    )
    data = bytearray(encoded_size(stored, property_crc=False))
    encode_into(
        data, 0, stored, size=len(data), queue_offset=0, physical_offset=0, store_timestamp=1
    )
    head = check_record(memoryview(data), 0, len(data), 0, check_crc=True)
    assert isinstance(head, Head)
    again = revived_message(decode(memoryview(data), head), "%RETRY%G_T", 77, HOST)
    assert props.find(again.properties, b"1ST_POP_TIME") == after
    assert (again.reconsume_times, again.prepared_transaction_offset) == (times + 1, 0)
