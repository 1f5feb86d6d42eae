"""Bits that flip in a replica's commit log: nobody is shown them, and whole copies mend them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.sync import scrub
from rmqha.broker.sync.aio import comparing
from rmqha.broker.sync.aio import scrubbing as scrubbing_module
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.pages import SimPages
from rmqha.store.record import check_record
from rmqha.store.whole import Whole, pass_whole
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of

pytestmark = pytest.mark.slow

BODY_AT = 88
QUEUE_OFFSET_AT = 20
RATE = 1 << 20


def _cluster(replicas: int, **keys: object) -> ReplicaCluster:
    settings = {"slaveReadEnable": "true", "uncheckedTailBytes": 0, **keys}
    one = ReplicaCluster(seed=44, replicas=replicas, **settings)
    one.boot_all()
    one.until(one.in_sync, "a whole set")
    one.send_many(12)
    one.run_for(2_000)
    return one


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """Three replicas that scrub nothing by themselves."""
    one = _cluster(3)
    yield one
    one.close()


@pytest.fixture
def alone() -> Iterator[ReplicaCluster]:
    """One replica: no other has a copy."""
    one = _cluster(1)
    yield one
    one.close()


@pytest.fixture
def scrubbing() -> Iterator[ReplicaCluster]:
    """Three that scrub."""
    one = _cluster(3, scrubBytesPerSecond=RATE, scrubPassIntervalMs=2_000)
    yield one
    one.close()


def place(replica: BrokerReplica, queue_offset: int = 1) -> int:
    """Where a message of the first queue is in the log."""
    found = replica.store.pulling.place(TOPIC, 0, queue_offset)
    assert found is not None
    return found


def flip(replica: BrokerReplica, byte: int) -> None:
    """Turn a bit of the log."""
    buffer, start = replica.store.commit_log.file_of(byte)
    buffer[byte - start] ^= 0x10


def logs_equal(cluster: ReplicaCluster) -> bool:
    """Whether every replica has the same confirmed bytes."""
    stores = [one.store for one in cluster.replicas.values()]
    end, size = min(one.limit() for one in stores), stores[0].file_size
    logs = {
        b"".join(one.view(at, min(size, end - at)) for at in range(0, end, size)) for one in stores
    }
    return len(logs) == 1


def pull(cluster: ReplicaCluster, replica: BrokerReplica, offset: int = 0) -> RemotingCommand:
    """Messages of the first queue."""
    fields = {
        "consumerGroup": "G", "topic": TOPIC, "queueId": "0", "queueOffset": str(offset),
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    return cluster.ask(replica.config.address, 11, fields)


def figure(cluster: ReplicaCluster, replica: BrokerReplica, name: str) -> int:
    """One of the runtime figures that mqadmin brokerStatus shows."""
    answer = cluster.ask(replica.config.address, 28)
    return int(json.loads(answer.body)["table"][name])


def whole_records(body: bytes) -> int:
    """How many records an answer has; each is whole."""
    at = count = 0
    while at < len(body):
        physical = int.from_bytes(body[at + 28 : at + 36])
        head = check_record(body, at, len(body), physical, check_crc=True)
        assert head.size > 0, head.reason
        at, count = at + head.size, count + 1
    return count


def test_pull_when_a_body_bit_has_flipped_and_nobody_has_a_copy_then_it_is_refused(
    alone: ReplicaCluster,
) -> None:
    """A consumer took what was never sent for a message."""
    master = master_of(alone)
    flip(master, place(master) + BODY_AT)
    before = pull(alone, master)
    assert before.code == 0
    assert figure(alone, master, "recordsDamaged") == 1
    assert whole_records(before.body) == 1
    assert before.ext_fields["nextBeginOffset"] == "1"
    refused = pull(alone, master, 1)
    assert refused.code == 1
    assert str(place(master)) in (refused.remark or "")
    assert pull(alone, master, 2).code == 0
    assert list(master.store.mending.damaged) == [place(master)]
    assert any("record_damaged" in line for line in alone.trace.lines)


def test_pull_when_a_body_bit_has_flipped_then_it_waits_for_a_whole_copy(
    cluster: ReplicaCluster,
) -> None:
    """A record that others have whole stayed lost for this broker's consumers."""
    master = master_of(cluster)
    flip(master, place(master) + BODY_AT)
    assert pull(cluster, master).ext_fields["nextBeginOffset"] == "1"
    answer = pull(cluster, master, 1)
    assert answer.code == 0
    assert whole_records(answer.body) == 2
    assert master.store.mending.mended == 1
    assert not master.store.mending.damaged
    assert logs_equal(cluster)


def test_pull_at_the_end_of_the_log_when_damage_is_known_then_it_is_checked_too() -> None:
    """What a broker wrote itself a moment ago is shown unchecked, until its memory proves untrue."""
    one = _cluster(1, uncheckedTailBytes=64 << 20)
    master = master_of(one)
    flip(master, place(master) + BODY_AT)
    assert pull(one, master, 1).code == 0
    assert ask_view(one, master).code == 1
    assert pull(one, master, 1).code == 1
    one.close()


def test_pull_when_a_slave_is_read_then_it_is_mended_as_well(cluster: ReplicaCluster) -> None:
    """Slaves serve consumers, too."""
    master = master_of(cluster)
    slave = next(one for one in cluster.replicas.values() if one is not master)
    flip(slave, place(slave, 0) + BODY_AT)
    answer = pull(cluster, slave)
    assert whole_records(answer.body) == 3
    assert logs_equal(cluster)


def ask_view(cluster: ReplicaCluster, replica: BrokerReplica) -> RemotingCommand:
    """The message by its place."""
    return cluster.ask(replica.config.address, 33, {"offset": str(place(replica))})


def ask_query(cluster: ReplicaCluster, replica: BrokerReplica) -> RemotingCommand:
    """The message by its unique key."""
    record = replica.store.reader.look(place(replica, 0))
    assert record is not None
    flip(replica, place(replica, 0) + BODY_AT)
    key = record.property_map()["UNIQ_KEY"]
    fields = {"topic": TOPIC, "key": key, "maxNum": "9", "_UNIQUE_KEY_QUERY": "true",
              "beginTimestamp": "0", "endTimestamp": str(1 << 60)}  # fmt: skip
    return cluster.ask(replica.config.address, 12, fields)


@pytest.mark.parametrize("ask", [ask_view, ask_query])
def test_look_when_the_record_is_damaged_then_it_is_mended_or_refused(
    cluster: ReplicaCluster, alone: ReplicaCluster,
    ask: Callable[[ReplicaCluster, BrokerReplica], RemotingCommand],
) -> None:  # fmt: skip
    """Operators were shown damage as if it had been sent."""
    for one in (cluster, alone):
        master = master_of(one)
        flip(master, place(master) + BODY_AT)
        answer = ask(one, master)
        if one is alone:
            assert answer.code != 0
            assert not answer.body
        else:
            assert answer.code == 0
            assert whole_records(answer.body) == 1


def test_pop_when_the_first_message_is_damaged_then_it_is_handed_out_once_it_is_whole(
    cluster: ReplicaCluster,
) -> None:
    """Pops serve by another way than pulls."""
    master = master_of(cluster)
    flip(master, place(master, 0) + BODY_AT)
    fields = {
        "consumerGroup": "P", "topic": TOPIC, "queueId": "0", "maxMsgNums": "8",
        "invisibleTime": "60000", "pollTime": "3000", "bornTime": str(cluster.loop.time()),
        "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
    }  # fmt: skip
    fields["bornTime"] = str(master.clock.wall_ms())
    answer = cluster.ask(master.config.address, 200050, fields, timeout_ms=4_000)
    assert answer.code == 0, answer.remark
    assert whole_records(answer.body) == 3
    assert master.store.mending.mended == 1


@pytest.mark.parametrize("at", [BODY_AT, 0, 4, 28], ids=["body", "size", "magic", "offset"])
@pytest.mark.parametrize("who", ["master", "slave"])
def test_scrub_when_a_bit_flips_then_it_is_mended_before_anybody_reads(
    scrubbing: ReplicaCluster, who: str, at: int
) -> None:
    """Damage waited for the consumer that needs the message, until no whole copy was left."""
    master = master_of(scrubbing)
    replica = master
    if who == "slave":
        replica = next(one for one in scrubbing.replicas.values() if one is not master)
    on_disk = scrubbing.disks[replica.config.host]
    (path,) = [path for path in on_disk.files if "/commitlog/" in path]
    pages = on_disk.files[path]
    assert isinstance(pages, SimPages)
    scrubbing.run_for(1_000)
    flip(replica, place(replica) + at)
    pages.durable = bytes(pages.cached)
    assert not logs_equal(scrubbing)
    scrubbing.until(lambda: replica.store.mending.mended, "a mended record", 20_000)
    assert logs_equal(scrubbing)
    assert pages.durable[:1500] == bytes(replica.store.view(0, 1500))
    assert not replica.store.mending.damaged
    assert any("record_mended" in line for line in scrubbing.trace.lines)
    before = bytes(replica.store.view(0, 500))
    scrubbing.kill(replica.config.host, power=True)
    scrubbing.boot(replica.config.host)
    scrubbing.run_for(500)
    assert on_disk.cuts
    assert bytes(scrubbing.replicas[replica.config.host].store.view(0, 500)) == before


def test_scrub_when_a_bit_flips_that_no_crc_covers_then_two_that_agree_mend_it(
    scrubbing: ReplicaCluster,
) -> None:
    """The CRC of a record covers its body only."""
    master = master_of(scrubbing)
    flip(master, place(master) + QUEUE_OFFSET_AT + 7)
    scrubbing.until(lambda: master.store.mending.mended, "a mended record", 20_000)
    assert logs_equal(scrubbing)
    assert figure(scrubbing, master, "recordsMended") == 1
    assert figure(scrubbing, master, "recordsDamaged") == 0
    assert figure(scrubbing, master, "scrubComparedBytes") >= master.store.limit()


def test_scrub_when_two_of_three_are_damaged_at_one_place_then_the_whole_one_mends_both(
    scrubbing: ReplicaCluster,
) -> None:
    """One whole copy is enough where the CRC tells which it is."""
    damaged = sorted(scrubbing.replicas.values(), key=lambda one: one.config.host)[:2]
    for bit, replica in enumerate(damaged):
        flip(replica, place(replica) + BODY_AT + bit)
    scrubbing.until(lambda: all(o.store.mending.mended for o in damaged), "mended ones", 20_000)
    assert logs_equal(scrubbing)


def test_scrub_when_messages_are_small_then_senders_have_their_turns_meanwhile(
    scrubbing: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range of 256 KiB was checked in one turn of the loop: 5 ms on a slow machine."""
    master = master_of(scrubbing)
    passed: list[int] = []

    def noted(*args: Any) -> Whole:
        whole = pass_whole(*args)
        passed.append(whole.records)
        return whole

    monkeypatch.setattr(scrubbing_module, "pass_whole", noted)
    scrubbing.send_many(300)
    end = master.store.limit()
    compared = figure(scrubbing, master, "scrubComparedBytes")
    scrubbing.until(
        lambda: figure(scrubbing, master, "scrubComparedBytes") >= compared + end, "a pass", 20_000
    )
    assert max(passed) == scrub.RECORDS_A_TURN
    assert sum(passed) > 300


def test_scrub_when_a_range_has_expired_meanwhile_then_nothing_of_it_is_judged(
    alone: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that is there no more was no damaged one."""
    scrubs = master_of(alone).scrub
    monkeypatch.setattr(scrubs, "_is_confirmed", lambda offset: False)
    assert alone.loop.run_until_complete(scrubs._range(0)) == 0
    assert not master_of(alone).store.mending.damaged


@pytest.mark.parametrize("others", ["refuse", "give what they have"])
def test_scrub_when_no_whole_copy_is_left_then_nothing_is_written(
    scrubbing: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, others: str
) -> None:
    """A repair that guesses is worse than damage that is known."""
    if others != "refuse":
        monkeypatch.setattr(comparing, "is_whole", lambda *_: True)
    for number, replica in enumerate(scrubbing.replicas.values()):
        flip(replica, place(replica) + BODY_AT + number // 2)
    before = {host: bytes(one.store.view(0, 1500)) for host, one in scrubbing.replicas.items()}
    scrubbing.until(
        lambda: all(one.store.mending.damaged for one in scrubbing.replicas.values()),
        "damage that is known", 20_000,
    )  # fmt: skip
    scrubbing.run_for(5_000)
    assert all(not one.store.mending.mended for one in scrubbing.replicas.values())
    for host, one in scrubbing.replicas.items():
        assert bytes(one.store.view(0, 1500)) == before[host]
    assert pull(scrubbing, master_of(scrubbing), 1).code == 1


def test_scrub_when_two_replicas_have_whole_and_other_bytes_then_it_is_told_only() -> None:
    """Of two nobody knows who is right."""
    with _cluster(2, scrubBytesPerSecond=RATE, scrubPassIntervalMs=2_000) as one:
        master = master_of(one)
        flip(master, place(master) + QUEUE_OFFSET_AT + 7)
        one.until(lambda: master.scrub.differing, "a difference", 20_000)
        one.run_for(5_000)
        assert not logs_equal(one)
        assert sum("record_differs" in line for line in one.trace.lines) == 2


def test_scrub_when_it_is_off_then_nobody_is_asked(cluster: ReplicaCluster) -> None:
    """Stories of the simulator that do not switch it on are as they were."""
    cluster.run_for(10_000)
    assert all(not one.scrub.read_bytes for one in cluster.replicas.values())


def _empty_slave(
    cluster: ReplicaCluster, *, tries_others: bool, at: int = BODY_AT
) -> BrokerReplica:
    """A slave begins anew, and its master's log has a flipped bit since it was opened."""
    hosts = list(cluster.broker_hosts)
    last = next(host for host in hosts if host != master_of(cluster).config.host)
    cluster.kill(last)
    cluster.until(lambda: len(cluster.controller_set()) == len(hosts) - 1, "a smaller set")
    for host in hosts:
        if host != last:
            cluster.kill(host)
    for host in hosts:
        if host != last:
            cluster.boot(host)
    cluster.until(cluster.master, "a master")
    cluster.run_for(2_000)
    master = master_of(cluster)
    flip(master, place(master) + at)
    if not tries_others:
        master.store.mending.mender = None
    for path in [path for path in cluster.disks[last].files if path.startswith("/store")]:
        del cluster.disks[last].files[path]
    cluster.boot(last)
    cluster.run_for(15_000)
    return cluster.replicas[last]


def test_replication_when_the_master_has_damage_then_it_is_mended_before_a_slave_gets_it() -> None:
    """The slave had the same damage, and was one whole copy less."""
    with _cluster(3) as one:
        one.send_many(400)
        one.run_for(2_000)
        slave = _empty_slave(one, tries_others=True)
        assert master_of(one).store.mending.mended == 1
        assert figure(one, master_of(one), "blocksDiffering") == 0, "it is what it was"
        assert sum("block_differs" in line for line in one.trace.lines) == 1
        one.until(one.in_sync, "a whole set")
        one.run_for(2_000)
        assert slave.store.limit() > place(slave)
        assert logs_equal(one)


def test_replication_when_nobody_has_a_copy_then_the_slave_gets_nothing_of_it() -> None:
    """Damage that is copied is on every replica."""
    with _cluster(2) as one:
        slave = _empty_slave(one, tries_others=False)
        master = master_of(one)
        assert slave.store.max_offset <= place(master)
        assert list(master.store.mending.damaged) == [place(master)]
        assert any("ha_batch_damaged" in line for line in one.trace.lines)
        assert master.role is not None


def test_replication_when_a_bit_has_flipped_that_no_crc_covers_then_it_is_told_where() -> None:
    """A full file of the log has the sum of when it was written; a scrub needs three to see it."""
    with _cluster(2) as one:
        one.send_many(400)
        one.run_for(2_000)
        master = master_of(one)
        assert master.store.max_offset > master.store.file_size
        slave = _empty_slave(one, tries_others=False, at=QUEUE_OFFSET_AT + 7)
        master = master_of(one)
        one.until(one.in_sync, "a whole set")
        assert figure(one, master, "blocksDiffering") == 1
        assert figure(one, master, "recordsDamaged") == 0
        told = [line for line in one.trace.lines if "block_differs" in line]
        assert len(told) == 1
        assert figure(one, slave, "blocksDiffering") == 0, "it has no other bytes to compare with"


def test_compare_when_it_is_of_another_epoch_or_damaged_then_it_is_refused(
    cluster: ReplicaCluster,
) -> None:
    """Bytes of another history mend nothing."""
    master = master_of(cluster)
    fields = {"begin": str(place(master)), "end": "0", "epoch": "9", "digest": ""}
    answer = cluster.ask(master.config.address, 60051, fields)
    assert answer.code == 1
    assert "epoch 1" in (answer.remark or "")
    fields["epoch"] = "1"
    flip(master, place(master) + BODY_AT)
    damaged = cluster.ask(master.config.address, 60051, fields)
    assert damaged.code == 1
    assert not damaged.body
    flip(master, place(master) + BODY_AT)
    assert whole_records(cluster.ask(master.config.address, 60051, fields).body) == 1


@pytest.mark.parametrize(
    ("begin", "end"), [(-1, 0), (-5, -1), (1 << 40, 0), (0, scrub.RANGE_BYTES + 1), (7, 0), (9, 3)]
)
def test_compare_when_no_such_range_is_there_then_it_is_refused(
    cluster: ReplicaCluster, begin: int, end: int
) -> None:
    """Any bytes may come."""
    master = master_of(cluster)
    fields = {"begin": str(begin), "end": str(end), "epoch": "1", "digest": "x"}
    assert cluster.ask(master.config.address, 60051, fields).code == 1
